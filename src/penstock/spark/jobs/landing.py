"""Lands messages in a table, batch after batch; the table itself says where the next one begins.

    table ──landed end──▶ plan a range ──▶ tasks: read, decode, write files ──▶ commit to the table
      ▲                        ▲ the log's end                                        │
      ╰───────────────────────────────────────────────────────────────────────────────╯

Only numbers of ranges and names of files pass through Spark: each task reads its messages itself
(`penstock.spark.ranges`).

Why no streaming query of Spark: its checkpoint would be a second truth beside the table. A
checkpoint that comes back from an older copy, that a power cut takes back (Spark does not sync it),
or that belongs to another table would skip messages or land them twice. Here nothing beside the
table decides what lands, so nothing has to fit it.

Exactly once rests on two things: a range always gives the same rows (the log), and a commit moves
the table's landed end only from where the range begins (`penstock.spark.tables.landed_table`).
Files of lost attempts are in no table.

A range without messages for the table needs no commit: the job remembers that it has passed it,
and stores that in the table from time to time and at its end, for the next run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.config.upkeep import UpkeepDefinition
from penstock.errors import EpochMismatch
from penstock.spark.failures import translate_spark_error
from penstock.spark.groups import ReaderGroup
from penstock.spark.jobs.job import BATCH_END_TIMEOUT_S, POLL_S, TableJob
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.settings import LandingSettings
from penstock.spark.jobs.steps import LandingSteps, MessagesTarget
from penstock.spark.offsets import LogPosition
from penstock.spark.pace_file import PaceWriter
from penstock.spark.ranges import MessageRanges, RangePlanner
from penstock.spark.session import local_spark
from penstock.spark.storage.location import Location
from penstock.spark.tables.columns import DATE, MESSAGE_SCHEMA
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landed_table import (
    ROWS,
    Landed,
    LandedTable,
    Outcome,
    Selection,
)
from penstock.spark.tables.landing_target import LandingResult, LandingTarget
from penstock.spark.tables.splits import unchanged_rows
from penstock.spark.tables.upkeep import Upkeep
from penstock.store.mark import NO_MARK, Mark
from penstock.store.ranges import range_in_words
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

IDLE_S: Final = 0.05
"""Shortest time between two looks at a log without new messages, in seconds."""


class Landing(TableJob):
    """One run of the job. `run` blocks; `stop` may be called from a signal handler.

    Args:
        settings: the settings of the job.
        on_progress: called with each change of the progress.
        open_spark: opens a Spark session, as `local_spark` does.
        target: the tables; None to land messages unchanged in a Delta table.
        numbers: the numbers of batches, for people.
    """

    def __init__(
        self,
        settings: LandingSettings,
        on_progress: Callable[[Progress], None] = lambda _: None,
        open_spark: Callable[..., AbstractContextManager[SparkSession]] = local_spark,
        target: MessagesTarget[MessageRanges] | None = None,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._target: MessagesTarget[MessageRanges] = target or _unchanged_messages_target(
            settings.location
        )
        super().__init__(settings, self._target, on_progress, open_spark)
        self._numbers = numbers or itertools.count()
        self._group: ReaderGroup | None = None
        self._pace = PaceWriter(settings.checkpoint_dir)
        self._reached: tuple[int, Mark] = (0, NO_MARK)  # all messages before it have landed
        self._is_left = False  # whether the thread that lands must end
        self._history: StreamClient  # for questions of that thread

    def _prepare(self, client: StreamClient, selection: Selection, landed: Landed) -> None:
        super()._prepare(client, selection, landed)
        settings = self._settings
        if settings.group is None:
            return
        self._group = ReaderGroup(
            settings.group, settings.stream, settings.topics, settings.group_lease_s
        )
        patience_s = settings.connect_timeout_s
        with StreamClient(settings.server, patience_s, settings.credentials) as patient:
            self._group.renew(patient, LogPosition(selection.epoch, landed.end, landed.mark))

    def _land(
        self, spark: SparkSession, client: StreamClient, selection: Selection, landed: Landed
    ) -> None:
        """Land batches in a thread of its own, and report the progress in this one."""
        self._reached = landed.end, landed.mark
        self._is_left = False
        self._reporter.change(state="landing")
        settings = self._settings
        tag = f"penstock-{id(self)}"
        self._history = StreamClient(
            settings.server, settings.connect_timeout_s, settings.credentials
        )
        with ThreadPoolExecutor(1) as thread, self._history:
            batches = thread.submit(self._land_batches, spark, selection, landed, tag)
            try:
                self._watch(batches, client, selection.epoch)
            finally:
                self._is_left = True
                if not batches.done():
                    self._history.cancel()
                    spark.interruptTag(tag)
                wait([batches])
        self._report_position(client, *self._reached)
        batches.result()

    @property
    def _is_ending(self) -> bool:
        return self._stopping or self._is_left

    def _watch(self, batches: Future[None], client: StreamClient, epoch: str) -> None:
        """Report progress until the batches end; after `stop` for a limited time."""
        while not batches.done() and not self._stopping:
            self._report_position(client, *self._reached)
            self._pace.report(self._reached[0])
            if self._group is not None:
                with suppress(StreamUnavailable):
                    self._group.renew(client, LogPosition(epoch, *self._reached))
            wait([batches], POLL_S)
        wait([batches], BATCH_END_TIMEOUT_S)

    def _land_batches(
        self, spark: SparkSession, selection: Selection, landed: Landed, tag: str
    ) -> None:
        """Land batch after batch, until stopped or done."""
        spark.addTag(tag)
        settings = self._settings
        options = {
            **settings.source_options(),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
        }
        steps = LandingSteps(self._target, selection, landed, settings.offsets_per_batch_max)
        planner = RangePlanner(options)
        try:
            with StreamClient(settings.server, 0, settings.credentials) as client:
                while (log := self._read_log(client, selection)) is not None:
                    begun_s = time.monotonic()
                    end = self._next_end(steps, log)
                    if end is not None or steps.position > log.latest:
                        self._check_history(log, steps)
                    if end is not None:
                        mark = self._mark_at(log, end)
                        ranges = planner.plan(log, steps.position, end, mark)
                        messages = MessageRanges(spark, options, ranges, self._target.columns)
                        begin = steps.position
                        self._report(steps.land(messages, end, mark), end)
                        self._report_damage(client, begin, steps.position)
                        self._reached = steps.position, steps.mark
                    elif settings.available_now:
                        self.is_complete = True
                        break
                    self._pause(begun_s + max(settings.trigger_s, IDLE_S))
            steps.store_passed()
        except (PySparkException, Py4JError, StreamUnavailable) as error:
            if self._is_ending:  # what it waited for was cancelled
                return
            if isinstance(error, StreamUnavailable):
                raise
            raise translate_spark_error(error, settings.log_file) from error
        finally:
            planner.close()

    def _read_log(self, client: StreamClient, selection: Selection) -> StreamOffsets | None:
        """Return the present offsets of the stream; None if stopped.

        Raises:
            StreamUnavailable: no service answered in time.
            EpochMismatch: the log has another epoch than before.
        """
        deadline = time.monotonic() + self._settings.connect_timeout_s
        known = (selection.epoch, self._reached[0])
        while not self._is_ending:
            try:
                log = client.offsets(self._settings.stream, at_least=known)
            except StreamUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
                continue
            if log.epoch != selection.epoch:
                raise EpochMismatch(
                    f"the log is now of epoch {log.epoch}, and was of epoch {selection.epoch} when"
                    " the job began to land"
                )
            return log
        return None

    def _next_end(self, steps: LandingSteps[MessageRanges], log: StreamOffsets) -> int | None:
        """Return the offset up to which the next batch reads; None if there is nothing new."""
        is_bounded = self._settings.available_now
        return steps.next_end(min(self._available_end, log.latest) if is_bounded else log.latest)

    def _check_history(self, log: StreamOffsets, steps: LandingSteps[MessageRanges]) -> None:
        """Raise EpochMismatch if the log no longer has the messages that the table knows."""
        offset, mark = steps.reached()
        found = self._history.check_position(log.stream, log.epoch, offset, mark)
        if (found.epoch, found.offset) != (log.epoch, offset):
            raise EpochMismatch(found.why or f"the log is now of epoch {found.epoch}")
        steps.check_log(log.latest)

    def _mark_at(self, log: StreamOffsets, offset: int) -> Mark:
        if offset == log.latest:
            return log.mark
        return self._history.mark_at(log.stream, log.epoch, offset)

    def _report(self, result: LandingResult, end: int) -> None:
        if result.outcome is Outcome.LANDED:
            self._reporter.report_landed(next(self._numbers), result.rows, result.dead_letters, end)

    def _report_damage(self, client: StreamClient, begin: int, end: int) -> None:
        """Log which offsets of a landed range could not be read, and so are not in the table."""
        if self._settings.fail_on_data_loss:  # a batch that lacks some has failed
            return
        with suppress(StreamUnavailable):
            for first, last in client.offsets(self._settings.stream).damaged:
                if first < end and begin < last:
                    logger.warning(
                        "%s are not in the table in %s: a damaged block of the log hides them,"
                        " and data loss is accepted",
                        Sentence(range_in_words(max(first, begin), min(last, end))),
                        self._settings.location,
                    )

    def _pause(self, until_s: float) -> None:
        while not self._is_ending and (remaining_s := until_s - time.monotonic()) > 0:
            time.sleep(min(remaining_s, POLL_S))


def _unchanged_messages_target(table: Location) -> LandingTarget:
    tables: dict[str, LandedTable] = {ROWS: DeltaMessageTable(table, MESSAGE_SCHEMA, (DATE,))}
    upkeep = Upkeep(tables.values(), UpkeepDefinition())
    return LandingTarget(tables, unchanged_rows, after_commit=upkeep.after_commit)
