"""Fills a table by a streaming query that has state: windows, sessions, and silence.

    stream service ──▶ Spark: source, operators, state ──rows of a micro-batch──▶ files ──▶ commit
                                    └ in the checkpoint

Why foreachBatch and not a Python sink: Spark runs a Python sink's `commit` in a new process for
every batch, calls `abort` when it raises although the commit may have happened, and gives `write`
neither batch nor query. foreachBatch runs in this process, which keeps the table open, knows the
batch id, and can distinguish a failed commit from one of unknown outcome.

The state is computed from all messages before, so it cannot be made again from the table: a table
whose state is missing, older or another's is refused (`penstock.spark.derived.appending`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from typing import Final, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import ConfigError, EpochMismatch, PenstockError
from penstock.spark.checkpoints import last_planned, read_checkpoint, store_selection
from penstock.spark.failures import translate_spark_error
from penstock.spark.jobs.job import BATCH_END_TIMEOUT_S, POLL_S, TableJob
from penstock.spark.jobs.job_target import JobTarget
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.settings import LandingSettings
from penstock.spark.offsets import Position
from penstock.spark.ranges import WritableFrame
from penstock.spark.session import SparkFailed, local_spark
from penstock.spark.tables.landed_table import Landed, Outcome, QueryBatch, Selection
from penstock.spark.tables.landing_target import LandingResult
from penstock.stream.client import StreamClient

PLANNER_ATTEMPTS_MAX: Final = 10
"""Most starts of a query whose planner, a Python process, does not answer within the ten seconds
that Spark allows. Messages that a query has landed are not landed again."""

PLANNER_LATE: Final = "Python worker failed to connect back"
"""The text of Spark's error for a planner that does not answer in time."""

_INITIALIZING: Final = "Initializing"
"""The beginning of Spark's status of a query whose planner has not started yet."""


class QueryTarget(JobTarget, Protocol):
    """A streaming query with state, and the table for its rows."""

    def check_state(self, selection: Selection) -> None:
        """Raise ConfigError if the state of the query does not fit the table."""

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the streaming query over the messages that the options of the source select."""

    def land(self, rows: WritableFrame, selection: Selection, query: QueryBatch) -> LandingResult:
        """Add the rows of one micro-batch to the table, unless it has them already."""


class StatefulLanding(TableJob):
    """One run of the job. `run` blocks; `stop` may be called from a signal handler.

    Args:
        settings: the settings of the job.
        target: the query and its table.
        on_progress: called with each change of the progress.
        open_spark: opens a Spark session, as `local_spark` does.
    """

    def __init__(
        self,
        settings: LandingSettings,
        target: QueryTarget,
        on_progress: Callable[[Progress], None] = lambda _: None,
        open_spark: Callable[..., AbstractContextManager[SparkSession]] = local_spark,
    ) -> None:
        super().__init__(settings, target, on_progress, open_spark)
        self._target = target
        self._batch_running = threading.Lock()
        self._query_id: Future[str] = Future()  # the first batch may begin before the id is known
        self._earlier_batch_id = -1  # the last batch that an earlier run planned
        self._failure: Exception | None = None  # the error of a batch, before Spark wrapped it

    @property
    def _is_done(self) -> bool:
        """True if a batch that this run planned has ended, and the log was read to its end.

        The end is that at the start of the run. A batch that an earlier run planned does not count:
        it is processed with the time of that run, so timers that expired since then do not fire.
        """
        progress = self._reporter.progress
        if progress.batch_id is None or progress.batch_id <= self._earlier_batch_id:
            return False
        return (progress.offset or 0) >= self._available_end

    def _known_position(self) -> tuple[str, int] | None:
        planned = read_checkpoint(self._settings.checkpoint_dir).planned
        return None if planned is None else (planned.single_log.epoch, planned.single_log.offset)

    def _prepare(self, client: StreamClient, selection: Selection, landed: Landed) -> None:
        super()._prepare(client, selection, landed)
        settings = self._settings
        directory = settings.checkpoint_dir
        self._target.check_state(selection)
        planned = read_checkpoint(directory).planned
        if planned is not None:
            at = planned.single_log
            found = client.check_position(settings.stream, at.epoch, at.offset, at.mark)
            if found.parts_at is not None:
                raise self._counted_too_much(found.parts_at)
        store_selection(directory, settings.stream, settings.topics, settings.derivation)
        self._earlier_batch_id = last_planned(directory)
        done = read_checkpoint(directory).done
        if done is not None:
            self._reporter.change(offset=max(landed.end, done.single_log.offset))

    def _land(
        self, spark: SparkSession, client: StreamClient, selection: Selection, landed: Landed
    ) -> None:
        settings = self._settings
        start = Position.of_single_log(selection.epoch, landed.end)
        options = {
            **settings.source_options(),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
            "checkpointLocation": str(settings.checkpoint_dir),
            "startingOffsets": start.to_json(),  # of a query without a checkpoint
        }
        if settings.offsets_per_batch_max is not None:
            options["maxOffsetsPerTrigger"] = str(settings.offsets_per_batch_max)
        if settings.is_endless:  # fires timers that expired before, and makes `_is_done` true
            options["batchAtStart"] = "true"
        if settings.group is not None:
            options["groupId"] = settings.group
            options["groupLeaseSeconds"] = str(settings.group_lease_s)

        def land(frame: DataFrame, batch_id: int) -> None:
            try:
                self._land_batch(frame, selection, QueryBatch(self._query_id.result(), batch_id))
            except Exception as error:
                self._failure = error
                raise

        writer = (
            self._target.query(spark, options)
            .writeStream.queryName(f"penstock table {settings.location.name}")
            .option("checkpointLocation", str(settings.checkpoint_dir))
            .foreachBatch(land)
        )
        if settings.available_now and not settings.is_endless:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(
                processingTime=f"{round(settings.trigger_s * 1000)} milliseconds"
            )
        for attempt in range(1, PLANNER_ATTEMPTS_MAX + 1):
            self._failure = None
            try:
                query = writer.start()
                if not self._query_id.done():  # the id stays the same: it is in the checkpoint
                    self._query_id.set_result(str(query.id))
                try:
                    self._watch(query, client)
                finally:
                    if query.isActive:  # `_watch` raised an error
                        query.stop()
                return
            except (PySparkException, Py4JError) as error:
                raise translate_spark_error(error, settings.log_file) from error
            except SparkFailed as failure:
                is_late = PLANNER_LATE in f"{failure} {failure.__cause__}"
                if not is_late or attempt == PLANNER_ATTEMPTS_MAX:
                    raise

    def _land_batch(self, frame: DataFrame, selection: Selection, query: QueryBatch) -> None:
        """Land one batch in the table, unless it has landed already, and report the progress."""
        with self._batch_running:
            if self._stopping:
                raise _LandingStopped
            end = self._planned_end(selection)
            result = self._target.land(WritableFrame(frame), selection, query)
            if result.outcome is Outcome.REPLAYED:
                self._reporter.report_replayed(query.batch_id)
            else:
                self._reporter.report_landed(query.batch_id, result.rows, result.dead_letters, end)

    def _planned_end(self, selection: Selection) -> int:
        """Return the end of the last planned batch, which is the current one.

        Raises:
            EpochMismatch: the source continued in another epoch.
            ConfigError: the source went back, to where the log's history parts from the query's.
        """
        checkpoint = read_checkpoint(self._settings.checkpoint_dir)
        planned, done = checkpoint.planned, checkpoint.done
        if planned is None:
            return 0
        if done is not None and planned.single_log.offset < done.single_log.offset:
            raise self._counted_too_much(planned.single_log.offset)
        if planned.single_log.epoch != selection.epoch:
            raise EpochMismatch(
                f"the state in {self._settings.checkpoint_dir} belongs to epoch"
                f" {planned.single_log.epoch}, and the log is of epoch {selection.epoch}"
            )
        return planned.single_log.offset

    def _counted_too_much(self, parts_at: int) -> ConfigError:
        directory, table = self._settings.checkpoint_dir, self._settings.location
        return ConfigError(
            f"the state in {directory} counts messages that the log no longer has: they part at"
            f" offset {parts_at} (an older copy of the data directory was put back?). Put back the"
            f" newest data directory, or remove {table} to compute the table anew from what is in"
            " the log"
        )

    def _watch(self, query: StreamingQuery, client: StreamClient) -> None:
        """Report progress while the query runs; stop it on `stop`, and raise its error.

        An endless query is also stopped when it is done, with `available_now`.
        """
        settings = self._settings
        while query.isActive and not self._stopping:
            if not query.status["message"].startswith(_INITIALIZING):
                self._reporter.change(state="landing")
            self._report_query(query, client)
            if settings.is_endless and settings.available_now and self._is_done:
                self.is_complete = True
                self.stop()
            with suppress(PySparkException):  # raised below, from `query.exception`
                query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # it takes a float
        if self._stopping:
            # The current batch may finish; a batch that begins now raises _LandingStopped.
            if self._batch_running.acquire(timeout=BATCH_END_TIMEOUT_S):
                self._batch_running.release()
            with suppress(PySparkException):  # the planner may wait for the service: Java kills it
                query.stop()
            with suppress(PySparkException):
                self._report_query(query, client)
            return
        self._report_query(query, client)
        failure = query.exception()
        if isinstance(self._failure, PenstockError):
            raise self._failure
        if failure is not None:
            raise translate_spark_error(failure, settings.log_file) from self._failure or failure
        self.is_complete = True

    def _report_query(self, query: StreamingQuery, client: StreamClient) -> None:
        """Report the position of the query and the end of the log."""
        last = query.lastProgress
        end = json.loads(last.sources[0].endOffset or "null") if last is not None else None
        known = self._reporter.progress.offset or 0
        offset = known if end is None else Position.from_spark(end).single_log.offset
        self._report_position(client, offset)


class _LandingStopped(Exception):
    """Raised in a batch that begins while the job is being stopped."""
