"""Lands messages in a table: a Spark streaming query reads them, and each batch is one commit.

    stream service ──Flight──▶ tasks ──Parquet──▶ files ──commit──▶ table, and dead letters
                                                  driver: foreachBatch ┘

Only ranges of offsets and the names of files pass through Spark: each task reads its messages
itself (`penstock.spark.ranges`).

Why foreachBatch and not a Python sink: Spark runs a Python sink's `commit` in a new process for
every batch, calls `abort` when it raises although the commit may have happened, and gives `write`
neither batch nor query. foreachBatch runs in this process, which keeps the table open, knows the
batch id, and can distinguish a failed commit from one of unknown outcome.

Exactly once rests on three things: a batch id always means the same range of offsets (Spark's
checkpoint), a range always gives the same rows (the log), and the table knows which batches and
which offsets it has (`penstock.spark.tables.landing_target`). Files of lost attempts are
in no table.

    waiting ──service answers──▶ starting ──Spark is up──▶ landing ──▶ ended
       └──────────────── stop ───────┴──────── stop ──────────┘
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.config.upkeep import UpkeepDefinition
from penstock.errors import EpochMismatch, PenstockError
from penstock.spark.checkpoints import last_planned, read_checkpoint, store_selection
from penstock.spark.failures import translate_spark_error
from penstock.spark.groups import LEASE_S
from penstock.spark.jobs.lock import job_lock
from penstock.spark.jobs.progress import Progress, Reporter
from penstock.spark.offsets import Position
from penstock.spark.option_values import SERVER
from penstock.spark.options import service_options
from penstock.spark.receipts import ReceiptReporter
from penstock.spark.session import LOCAL_MASTER, SparkFailed, local_spark
from penstock.spark.tables.api import ROWS, Batch, LandedTable, Selection
from penstock.spark.tables.columns import DATE, MESSAGE_SCHEMA
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landing_target import LandingResult, LandingTarget
from penstock.spark.tables.splits import unchanged_rows
from penstock.spark.tables.upkeep import Upkeep
from penstock.spark.topics import topics_text
from penstock.stream.client import CONNECT_TIMEOUT_S, StreamClient, StreamOffsets, StreamUnavailable
from penstock.stream.credentials import PLAIN, Credentials

CHECKPOINT_NAME: Final = "_checkpoint"
"""The default name of the checkpoint in the table's directory: deleting that deletes both. Readers
of Delta tables ignore names that begin with an underscore."""

LOG_NAME: Final = "spark.log"
"""The file in the checkpoint with the output of Java and of Spark's Python workers."""

POLL_S: Final = 0.25
"""Seconds between two polls of the query and the log; the end of a query is noticed at once."""

TRIGGER_S: Final = 0.5
"""The default of the shortest time between two batches, in seconds: a message is usually in the
table within a second, and a table gets at most two commits a second."""

PLANNER_ATTEMPTS_MAX: Final = 10
"""Most starts of a query whose planner, a Python process, does not answer within the ten seconds
that Spark allows. Messages that a query has landed are not landed again."""

PLANNER_LATE: Final = "Python worker failed to connect back"
"""The text of Spark's error for a planner that does not answer in time."""

_INITIALIZING: Final = "Initializing"
"""The beginning of Spark's status of a query whose planner has not started yet."""

BATCH_END_TIMEOUT_S: Final = 15.0
"""Seconds for which `stop` waits for the current batch to finish."""


@dataclass(frozen=True)
class LandingSettings:
    """The settings of a landing job.

    Attributes:
        table: directory of the table, which is created with the first message.
        server: HOST:PORT of the stream service; in a cluster of each, separated by commas.
        stream: name of the stream.
        topics: MQTT topic filters; empty for every message of the stream.
        checkpoint: directory of the checkpoint; None for `_checkpoint` in the table's directory.
        available_now: whether the job ends when the messages present at its start have landed.
        trigger_s: shortest time from the start of one batch to the next, in seconds.
        starting_offsets: the start of a table without rows: earliest, latest or a position.
        starting_timestamp: the time of receipt of the first message, instead of `starting_offsets`.
        offsets_per_batch_max: most offsets of one batch; None for no limit.
        fail_on_data_loss: whether the job ends if the log loses messages before they land.
        connect_timeout_s: seconds for which the stream service may be unreachable.
        credentials: the credentials for the stream service; a token only by its file.
        master: Spark's master URL.
        group: the name of the job as a registered reader, or None.
        group_lease_s: seconds for which the broker keeps messages after the last renewal.
        derivation: the computation on the messages, in words; empty if they land unchanged, and
            only then are landed offsets reported for receipts.
        is_endless: whether Spark never ends the query by itself, because it has timers.
        log: file with the output of a Spark that several jobs share; None for a Spark and file of
            its own.
    """

    table: Path
    server: str = SERVER
    stream: str = "messages"
    topics: tuple[str, ...] = ()
    checkpoint: Path | None = None
    available_now: bool = False
    trigger_s: float = TRIGGER_S
    starting_offsets: str = "earliest"
    starting_timestamp: str | None = None
    offsets_per_batch_max: int | None = None
    fail_on_data_loss: bool = True
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    credentials: Credentials = PLAIN
    master: str = LOCAL_MASTER
    group: str | None = None
    group_lease_s: float = LEASE_S
    derivation: str = ""
    is_endless: bool = False
    log: Path | None = None

    @property
    def checkpoint_dir(self) -> Path:
        """The directory of the checkpoint."""
        return (self.checkpoint or self.table / CHECKPOINT_NAME).absolute()

    @property
    def log_file(self) -> Path:
        """The file with the output of Spark."""
        return self.log or self.checkpoint_dir / LOG_NAME


class QueryTarget(Protocol):
    """A streaming query, and the tables in which its rows land. For one thread at a time."""

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the streaming query over the messages that the options of the source select."""

    def prepare(self, selection: Selection) -> None:
        """Prepare the tables; raise ConfigError if they have another selection."""

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last landed message; 0 if none has landed."""

    def land(self, rows: DataFrame, batch: Batch) -> LandingResult:
        """Land one batch of the query in the tables, unless it has landed already."""


class Landing:
    """One run of the job. `run` blocks; `stop` may be called from a signal handler.

    Args:
        settings: the settings of the job.
        on_progress: called with each change of the progress.
        open_spark: opens a Spark session, as `local_spark` does.
        target: the query and its tables; None to land messages unchanged in a Delta table.
    """

    def __init__(
        self,
        settings: LandingSettings,
        on_progress: Callable[[Progress], None] = lambda _: None,
        open_spark: Callable[..., AbstractContextManager[SparkSession]] = local_spark,
        target: QueryTarget | None = None,
    ) -> None:
        self._open_spark = open_spark
        self._settings = settings
        self._reporter = Reporter(on_progress)
        self._stopping = False  # no Event: a signal handler that sets one may block forever
        self._batch_running = threading.Lock()
        self._query_id: Future[str] = Future()  # the first batch may begin before the id is known
        self._receipts: ReceiptReporter | None = None  # set when the log is known
        self._target: QueryTarget = target or _unchanged_messages_target(settings.table)
        self._earlier_batch_id = -1  # the last batch that an earlier run planned
        self._available_end = 0  # the end of the log when the run began
        self._failure: Exception | None = None  # the error of a batch, before Spark wrapped it

    def stop(self) -> None:
        """Ask the run to end; the current batch finishes first."""
        self._stopping = True

    @property
    def is_starting(self) -> bool:
        """True until the query has committed its first batch, or has no messages for one."""
        progress = self._reporter.progress
        is_up = progress.state in ("landing", "ended")
        return not is_up or (progress.batch_id is None and progress.lag != 0)

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

    def run(self) -> Progress:
        """Land messages until stopped; with `available_now`, until the present ones have landed.

        Raises:
            ConfigError: the settings contradict each other, the table or the checkpoint.
            StreamUnavailable: the stream service does not answer.
            EpochMismatch: the log has another epoch than the checkpoint.
            TableError: the table cannot be read or written.
            SparkFailed: Spark does not start, or a batch failed for another reason.
        """
        settings = self._settings
        settings.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        with (
            job_lock(settings.checkpoint_dir),
            StreamClient(settings.server, 0, settings.credentials) as client,
        ):
            log = self._wait_for_log(client)
            if log is not None:
                selection = Selection(
                    log.epoch, settings.stream, settings.topics, settings.derivation
                )
                self._target.prepare(selection)
                store_selection(
                    settings.checkpoint_dir, settings.stream, settings.topics, settings.derivation
                )
                starting = self._start_options(selection, log)
                self._available_end = log.latest
                self._earlier_batch_id = last_planned(settings.checkpoint_dir)
                self._reporter.change(state="starting", latest=log.latest)
                if not settings.derivation:
                    self._receipts = self._begin_receipts(client, log.epoch)
                with self._open_spark(
                    f"penstock table {settings.table.name}",
                    settings.master,
                    settings.log_file,
                ) as spark:
                    if not self._stopping:
                        self._land_stream(spark, client, selection, starting)
        self._reporter.change(state="ended")
        return self._reporter.progress

    def _wait_for_log(self, client: StreamClient) -> StreamOffsets | None:
        """Wait until the service answers, and return the offsets of the stream; None if stopped."""
        deadline = time.monotonic() + self._settings.connect_timeout_s
        planned = read_checkpoint(self._settings.checkpoint_dir).planned
        known = None if planned is None else (planned.single_log.epoch, planned.single_log.offset)
        while not self._stopping:
            self._reporter.change(state="waiting")
            try:
                return client.offsets(self._settings.stream, at_least=known)
            except StreamUnavailable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)
        return None

    def _begin_receipts(self, client: StreamClient, epoch: str) -> ReceiptReporter:
        settings = self._settings
        receipts = ReceiptReporter(
            client,
            settings.table.name,
            settings.stream,
            settings.topics,
            epoch,
            settings.checkpoint_dir,
        )
        if self._reporter.progress.offset:  # an earlier run may not have reported it
            receipts.report(self._reporter.progress.offset)
        return receipts

    def _start_options(self, selection: Selection, log: StreamOffsets) -> dict[str, str]:
        """Return the options of the source for the start of a query without a checkpoint.

        If the table has rows of the log, the start is the offset after the last landed one.
        """
        found = read_checkpoint(self._settings.checkpoint_dir)
        if found.planned is not None and found.planned.single_log.epoch != log.epoch:
            old_selection = replace(selection, epoch=found.planned.single_log.epoch)
            raise self._epoch_mismatch(old_selection, log.epoch)
        landed = self._target.landed_end(selection)
        done = 0 if found.done is None else found.done.single_log.offset
        self._reporter.change(offset=max(landed, done))
        if found.planned is None and landed:
            return {"startingOffsets": Position.of_single_log(log.epoch, landed).to_json()}
        if self._settings.starting_timestamp is not None:
            return {"startingTimestamp": self._settings.starting_timestamp}
        return {"startingOffsets": self._settings.starting_offsets}

    def _epoch_mismatch(self, old_selection: Selection, log_epoch: str) -> EpochMismatch:
        """Return the error for a log with another epoch than that of the checkpoint.

        Its message has the landed offset of the old log, for a user who knows where the logs
        differ.
        """
        directory = self._settings.checkpoint_dir
        done = read_checkpoint(directory).done
        committed_end = (
            done.single_log.offset
            if done is not None and done.single_log.epoch == old_selection.epoch
            else 0
        )
        landed_end = max(committed_end, self._target.landed_end(old_selection))
        return EpochMismatch(
            f"the checkpoint in {directory} belongs to epoch {old_selection.epoch}, of which all"
            f" before offset {landed_end} has landed, and the log is now"
            f" of epoch {log_epoch}: it was restored or created anew. Give a new --checkpoint, or"
            " remove that directory, to add the new log's messages"
        )

    def _land_stream(
        self,
        spark: SparkSession,
        client: StreamClient,
        selection: Selection,
        starting: dict[str, str],
    ) -> None:
        settings = self._settings
        options = {
            **service_options(settings.server, settings.credentials),
            "stream": settings.stream,
            "topics": topics_text(settings.topics),
            "failOnDataLoss": str(settings.fail_on_data_loss),
            "connectTimeoutSeconds": str(settings.connect_timeout_s),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
            "checkpointLocation": str(settings.checkpoint_dir),
            **starting,
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
                self._land_batch(frame, Batch(self._query_id.result(), batch_id, selection))
            except Exception as error:
                self._failure = error
                raise

        writer = (
            self._target.query(spark, options)
            .writeStream.queryName(f"penstock table {settings.table.name}")
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
            except PySparkException as error:
                raise translate_spark_error(error, settings.log_file) from error
            except SparkFailed as failure:
                is_late = PLANNER_LATE in f"{failure} {failure.__cause__}"
                if not is_late or attempt == PLANNER_ATTEMPTS_MAX:
                    raise

    def _land_batch(self, frame: DataFrame, batch: Batch) -> None:
        """Land one batch in the table, unless it has landed already, and report the progress."""
        with self._batch_running:
            if self._stopping:
                raise _LandingStopped
            self._check_epoch(batch)
            result = self._target.land(frame, batch)
            if result.is_replay:
                self._reporter.report_replayed(batch.batch_id)
            else:
                self._reporter.report_landed(batch.batch_id, result)

    def _check_epoch(self, batch: Batch) -> None:
        """Raise EpochMismatch if the source continued with another log (failOnDataLoss is false).

        The epoch is that of the last planned batch, which is the current one.
        """
        planned = read_checkpoint(self._settings.checkpoint_dir).planned
        if planned is not None and planned.single_log.epoch != batch.selection.epoch:
            raise self._epoch_mismatch(batch.selection, planned.single_log.epoch)

    def _watch(self, query: StreamingQuery, client: StreamClient) -> None:
        """Report progress while the query runs; stop it on `stop`, and raise its error.

        An endless query is also stopped when it is done, with `available_now`.
        """
        settings = self._settings
        while query.isActive and not self._stopping:
            if not query.status["message"].startswith(_INITIALIZING):
                self._reporter.change(state="landing")
            self._report_positions(query, client)
            if settings.is_endless and settings.available_now and self._is_done:
                self.stop()
            with suppress(PySparkException):  # raised below, from `query.exception`
                query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # it takes a float
        if self._stopping:
            # The current batch may finish; a batch that begins now raises _Stopped.
            if self._batch_running.acquire(timeout=BATCH_END_TIMEOUT_S):
                self._batch_running.release()
            with suppress(PySparkException):  # the planner may wait for the service: Java kills it
                query.stop()
            with suppress(PySparkException):
                self._report_positions(query, client)
            return
        self._report_positions(query, client)
        failure = query.exception()
        if isinstance(self._failure, PenstockError):
            raise self._failure
        if failure is not None:
            raise translate_spark_error(failure, settings.log_file) from self._failure or failure

    def _report_positions(self, query: StreamingQuery, client: StreamClient) -> None:
        """Report the position of the query and the end of the log."""
        last = query.lastProgress
        end = json.loads(last.sources[0].endOffset or "null") if last is not None else None
        if end is not None:
            position = Position.from_spark(end).single_log
            self._reporter.change(offset=position.offset)
            if self._receipts is not None:
                self._receipts.report(position.offset)
        try:
            self._reporter.change(latest=client.offsets(self._settings.stream).latest)
        except PenstockError:
            self._reporter.change(latest=None)


def _unchanged_messages_target(path: Path) -> LandingTarget:
    tables: dict[str, LandedTable] = {ROWS: DeltaMessageTable(path, MESSAGE_SCHEMA, (DATE,))}
    upkeep = Upkeep(tables.values(), UpkeepDefinition())
    return LandingTarget(tables, unchanged_rows, after_commit=upkeep.after_commit)


class _LandingStopped(Exception):
    """Raised in a batch that begins while the job is being stopped."""
