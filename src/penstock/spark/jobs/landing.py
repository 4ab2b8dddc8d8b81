"""The job that lands messages in a table: Spark streaming in, one commit a batch out.

    stream service ──Flight──▶ tasks ──Parquet──▶ files ──commit──▶ table, and dead letters
                                                  driver: foreachBatch ┘

Only the ranges of the checkpoint and the names of the files pass through Spark: a
task reads its messages itself (`penstock.spark.ranges`).

Why foreachBatch and not a Python sink: Spark runs a Python sink's `commit` in a new process for
every batch, calls `abort` when it raises although the commit may have happened, and tells `write`
neither batch nor query. foreachBatch runs in this process, which keeps the table open, knows the
batch id, and can tell a failed commit from an unknown one.

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
from penstock.spark.failures import own_error
from penstock.spark.groups import LEASE_S
from penstock.spark.jobs.lock import job_lock
from penstock.spark.jobs.progress import Progress, Reporter
from penstock.spark.offsets import Position
from penstock.spark.option_values import SERVER
from penstock.spark.options import service_options
from penstock.spark.receipts import Receipts
from penstock.spark.session import LOCAL_MASTER, SparkFailed, local_spark
from penstock.spark.tables.api import ROWS, Batch, LandedTable, Selection
from penstock.spark.tables.columns import DATE, MESSAGE_SCHEMA
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landing_target import LandingResult, LandingTarget
from penstock.spark.tables.splits import undecoded
from penstock.spark.tables.upkeep import Upkeep
from penstock.spark.topics import topics_text
from penstock.stream.client import CONNECT_TIMEOUT_S, StreamClient, StreamOffsets, StreamUnavailable
from penstock.stream.credentials import PLAIN, Credentials

CHECKPOINT_NAME: Final = "_checkpoint"
"""Default place of the checkpoint, in the table's directory: deleting the table deletes both.
Readers of Delta tables pass over names that begin with an underscore."""

LOG_NAME: Final = "spark.log"
"""The file in the checkpoint with the output of Java and of Spark's Python workers."""

POLL_S: Final = 0.25
"""Time between two polls of the query and the log; the end of a query is noticed at once."""

TRIGGER_S: Final = 0.5
"""Shortest time between two batches by default: a single message is in the table
within a second, mostly, and a table that is always written gets two commits a second at most."""

PLANNER_ATTEMPTS_MAX: Final = 10
"""Times a query is started when its planner, a Python process, does not answer in the ten seconds
that Spark gives it on a busy machine. Messages that a query has landed are not landed again."""

PLANNER_LATE: Final = "Python worker failed to connect back"
"""Spark's words for that."""

_INITIALIZING: Final = "Initializing"
"""The beginning of Spark's status of a query whose planner has not started yet."""

BATCH_END_TIMEOUT_S: Final = 15.0
"""Time that the current batch has to finish on stop."""


@dataclass(frozen=True)
class LandingSettings:
    """The settings of a landing job: its source and its table.

    Attributes:
        table: directory of the table; created with the first message.
        server: HOST:PORT of the stream service; in a cluster of each, separated by commas.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        checkpoint: directory of the checkpoint; None: `_checkpoint` in the table's directory.
        available_now: end when everything there was at the start has landed.
        trigger_s: shortest time from the start of one batch to the next, in seconds.
        starting: the begin of a table without rows: earliest, latest or a position.
        starting_timestamp: the time of its first messages, instead.
        offsets_per_batch_max: most offsets of one batch, None for no limit.
        fail_on_data_loss: whether the job ends if retention removed messages before they landed.
        connect_timeout_s: how long the stream service may be away.
        credentials: the credentials for the stream service; a token only by its file.
        master: Spark's master URL.
        group: the name of the job as a registered reader, or None.
        group_lease_s: how long the broker keeps messages for it while it is away.
        derivation: the computation on the messages, in words; empty if they land unchanged. Then
            receipts are sent to publishers that asked for them.
        is_endless: whether Spark never ends the query by itself, because it has timers.
        log: file with the output of a Spark that several jobs share; None: one of its own.
    """

    table: Path
    server: str = SERVER
    stream: str = "messages"
    topics: tuple[str, ...] = ()
    checkpoint: Path | None = None
    available_now: bool = False
    trigger_s: float = TRIGGER_S
    starting: str = "earliest"
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
        """The file with Spark's output."""
        return self.log or self.checkpoint_dir / LOG_NAME


class Target(Protocol):
    """The tables of a query, and how its rows land in them. For one thread at a time."""

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the query of the messages that the options of the source name."""

    def prepare(self, selection: Selection) -> None:
        """Refuse tables of something else."""

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last that landed in the tables; 0 if none did."""

    def land(self, rows: DataFrame, batch: Batch) -> LandingResult:
        """Land one batch of the rows of `query` in the tables, unless it is there."""


class Landing:
    """One run of the job. `run` blocks; `stop` may be called from a signal handler.

    Args:
        settings: the settings of the job.
        on_progress: called with the progress.
        open_spark: makes the Spark session.
        target: the tables; None: messages land unchanged in the Delta table `settings.table`.
    """

    def __init__(
        self,
        settings: LandingSettings,
        on_progress: Callable[[Progress], None] = lambda _: None,
        open_spark: Callable[..., AbstractContextManager[SparkSession]] = local_spark,
        target: Target | None = None,
    ) -> None:
        self._open_spark = open_spark
        self._settings = settings
        self._reporter = Reporter(on_progress)
        self._stopping = False  # no Event: a signal handler that sets one may wait forever
        self._batch_running = threading.Lock()
        self._query_id: Future[str] = Future()  # the first batch may begin before its id is known
        self._receipts: Receipts | None = None  # once the log is known
        self._target: Target = target or _undecoded_target(settings.table)
        self._planned_before = -1  # the last batch of the runs before
        self._available_end = 0  # the end of the log when the run began
        self._failure: Exception | None = None  # the error of a batch, before Spark wrapped it

    def stop(self) -> None:
        """Ask the run to end; the current batch finishes first."""
        self._stopping = True

    @property
    def is_starting(self) -> bool:
        """True until the query has finished its first batch, if there are messages for one."""
        progress = self._reporter.progress
        is_up = progress.state in ("landing", "ended")
        return not is_up or (progress.batch_id is None and progress.lag != 0)

    @property
    def _is_done(self) -> bool:
        """True if a batch of this run has ended, and the log is read up to its end at the start.

        A batch that an earlier run planned does not count: it is processed with the time of that
        run, so timers that expired since then have not fired.
        """
        progress = self._reporter.progress
        if progress.batch_id is None or progress.batch_id <= self._planned_before:
            return False
        return (progress.offset or 0) >= self._available_end

    def run(self) -> Progress:
        """Land messages until stopped, or until done if `available_now`.

        Raises:
            ConfigError: the settings contradict each other, the table or the checkpoint.
            StreamUnavailable: the stream service does not answer.
            EpochMismatch: the log is not the one for which the checkpoint was made.
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
                starting = self._starting(selection, log)
                self._available_end = log.latest
                self._planned_before = last_planned(settings.checkpoint_dir)
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
        """Return the offsets of the stream, once the service answers; None if stopped before."""
        deadline = time.monotonic() + self._settings.connect_timeout_s
        planned = read_checkpoint(self._settings.checkpoint_dir).planned
        known = None if planned is None else (planned.only.epoch, planned.only.offset)
        while not self._stopping:
            self._reporter.change(state="waiting")
            try:
                return client.offsets(self._settings.stream, at_least=known)
            except StreamUnavailable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)
        return None

    def _begin_receipts(self, client: StreamClient, epoch: str) -> Receipts:
        settings = self._settings
        receipts = Receipts(
            client,
            settings.table.name,
            settings.stream,
            settings.topics,
            epoch,
            settings.checkpoint_dir,
        )
        if self._reporter.progress.offset:  # after a crash it may be more than was reported
            receipts.report(self._reporter.progress.offset)
        return receipts

    def _starting(self, selection: Selection, log: StreamOffsets) -> dict[str, str]:
        """Return the start of a query without history: after the last offset in the table, if
        any."""
        found = read_checkpoint(self._settings.checkpoint_dir)
        if found.planned is not None and found.planned.only.epoch != log.epoch:
            ours = replace(selection, epoch=found.planned.only.epoch)
            raise self._other_epoch(ours, log.epoch)
        landed = self._target.landed_end(selection)
        done = 0 if found.done is None else found.done.only.offset
        self._reporter.change(offset=max(landed, done))
        if found.planned is None and landed:
            return {"startingOffsets": Position.of_one(log.epoch, landed).to_json()}
        if self._settings.starting_timestamp is not None:
            return {"startingTimestamp": self._settings.starting_timestamp}
        return {"startingOffsets": self._settings.starting}

    def _other_epoch(self, ours: Selection, theirs: str) -> EpochMismatch:
        """Return the error for another log.

        It names the old offset, at which a user who knows where the logs differ can begin.
        """
        directory = self._settings.checkpoint_dir
        done = read_checkpoint(directory).done
        passed = done.only.offset if done is not None and done.only.epoch == ours.epoch else 0
        return EpochMismatch(
            f"the checkpoint in {directory} belongs to epoch {ours.epoch}, of which all before"
            f" offset {max(passed, self._target.landed_end(ours))} has landed, and the log is now"
            f" of epoch {theirs}: it was restored or created anew. Give a new --checkpoint, or"
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
        if settings.is_endless:  # for timers that expired while it was away, and to end when done
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
                    if query.isActive:  # after any error the query is not watched any more
                        query.stop()
                return
            except PySparkException as error:
                raise own_error(error, settings.log_file) from error
            except SparkFailed as failure:
                is_late = PLANNER_LATE in f"{failure} {failure.__cause__}"
                if not is_late or attempt == PLANNER_ATTEMPTS_MAX:
                    raise

    def _land_batch(self, frame: DataFrame, batch: Batch) -> None:
        """Land one batch in the table, unless it is there."""
        with self._batch_running:
            if self._stopping:
                raise _Stopped
            self._check_epoch(batch)
            landed = self._target.land(frame, batch)
            if landed.is_replay:
                self._reporter.replayed(batch.batch_id)
            else:
                self._reporter.landed(batch.batch_id, landed)

    def _check_epoch(self, batch: Batch) -> None:
        """Raise if the source continued with another log (failOnDataLoss): that is another
        selection.

        The last planned batch is the current one.
        """
        planned = read_checkpoint(self._settings.checkpoint_dir).planned
        if planned is not None and planned.only.epoch != batch.selection.epoch:
            raise self._other_epoch(batch.selection, planned.only.epoch)

    def _watch(self, query: StreamingQuery, client: StreamClient) -> None:
        """Report progress while the query runs, and end it when asked to."""
        settings = self._settings
        while query.isActive and not self._stopping:
            if not query.status["message"].startswith(_INITIALIZING):
                self._reporter.change(state="landing")
            self._report_positions(query, client)
            if settings.is_endless and settings.available_now and self._is_done:
                self.stop()
            with suppress(PySparkException):  # the reason is found below
                query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # it takes a float
        if self._stopping:
            # The current batch may finish; one that begins now gives up by itself.
            if self._batch_running.acquire(timeout=BATCH_END_TIMEOUT_S):
                self._batch_running.release()
            with suppress(PySparkException):  # a planner may wait for the service: Java ends it
                query.stop()
            with suppress(PySparkException):
                self._report_positions(query, client)
            return
        self._report_positions(query, client)
        failure = query.exception()
        if isinstance(self._failure, PenstockError):
            raise self._failure
        if failure is not None:
            raise own_error(failure, settings.log_file) from self._failure or failure

    def _report_positions(self, query: StreamingQuery, client: StreamClient) -> None:
        """Report the positions of the query and the log."""
        last = query.lastProgress
        end = json.loads(last.sources[0].endOffset or "null") if last is not None else None
        if end is not None:
            position = Position.from_spark(end).only
            self._reporter.change(offset=position.offset)
            if self._receipts is not None:
                self._receipts.report(position.offset)
        try:
            self._reporter.change(latest=client.offsets(self._settings.stream).latest)
        except PenstockError:
            self._reporter.change(latest=None)


def _undecoded_target(path: Path) -> LandingTarget:
    tables: dict[str, LandedTable] = {ROWS: DeltaMessageTable(path, MESSAGE_SCHEMA, (DATE,))}
    upkeep = Upkeep(tables.values(), UpkeepDefinition())
    return LandingTarget(tables, undecoded, after_commit=upkeep.after_commit)


class _Stopped(Exception):
    """Raised in a batch that begins while the job is being stopped."""
