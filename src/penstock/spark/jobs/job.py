"""The part that all jobs which fill a table share: the run from its lock to its end.

    waiting ──service answers──▶ starting ──Spark is up──▶ landing ──▶ ended
       └──────────────── stop ───────┴──────── stop ──────────┘

There are two kinds. `penstock.spark.jobs.landing` lands messages and keeps nothing beside the
table; `penstock.spark.jobs.stateful` runs a query whose state is in Spark's checkpoint.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from pyspark.sql import SparkSession

from penstock.errors import EpochMismatch, PenstockError
from penstock.spark.brokers import BrokerConnections
from penstock.spark.initial_offsets import read_pinned_position
from penstock.spark.jobs.job_target import JobTarget
from penstock.spark.jobs.lock import job_lock
from penstock.spark.jobs.progress import Progress, Reporter
from penstock.spark.jobs.settings import LandingSettings
from penstock.spark.jobs.steps import begin
from penstock.spark.offsets import SINGLE_SERVER
from penstock.spark.options import SourceOptions, parse_options
from penstock.spark.range_limits import SpecificOffset
from penstock.spark.receipts import ReceiptReporter
from penstock.spark.session import local_spark
from penstock.spark.tables.api import Landed, Selection
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable

POLL_S: Final = 0.25
"""Seconds between two looks at the log while a batch runs; the end of a batch is noticed at
once."""

BATCH_END_TIMEOUT_S: Final = 15.0
"""Seconds for which `stop` waits for the current batch to finish."""


class TableJob(ABC):
    """One run of a job. `run` blocks; `stop` may be called from a signal handler.

    Args:
        settings: the settings of the job.
        target: the table.
        on_progress: called with each change of the progress.
        open_spark: opens a Spark session, as `local_spark` does.
    """

    def __init__(
        self,
        settings: LandingSettings,
        target: JobTarget,
        on_progress: Callable[[Progress], None] = lambda _: None,
        open_spark: Callable[..., AbstractContextManager[SparkSession]] = local_spark,
    ) -> None:
        self._settings = settings
        self._job_target = target
        self._open_spark = open_spark
        self._reporter = Reporter(on_progress)
        self._stopping = False  # no Event: a signal handler that sets one may block forever
        self._receipts: ReceiptReporter | None = None  # set when the log is known
        self._available_end = 0  # the end of the log when the run began

    def stop(self) -> None:
        """Ask the run to end; the current batch finishes first."""
        self._stopping = True

    @property
    def is_starting(self) -> bool:
        """True until the job has finished its first batch, or has no messages for one."""
        progress = self._reporter.progress
        is_up = progress.state in ("landing", "ended")
        return not is_up or (progress.batch_id is None and progress.lag != 0)

    def run(self) -> Progress:
        """Land messages until stopped; with `available_now`, until the present ones have landed.

        Raises:
            ConfigError: the settings contradict each other, the table or its state.
            StreamUnavailable: the stream service does not answer.
            EpochMismatch: the log has another epoch than the table.
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
                selection = settings.selection(log.epoch)
                self._job_target.prepare(selection)
                landed = self._job_target.landed(selection) or self._begin(selection, log)
                self._available_end = log.latest
                self._reporter.change(state="starting", latest=log.latest, offset=landed.end)
                self._prepare(client, selection, landed)
                with self._open_spark(
                    f"penstock table {settings.table.name}", settings.master, settings.log_file
                ) as spark:
                    if not self._stopping:
                        self._land(spark, client, selection, landed.end)
        self._reporter.change(state="ended")
        return self._reporter.progress

    def _prepare(self, client: StreamClient, selection: Selection, landed: Landed) -> None:
        """Prepare the run, before Spark starts."""
        settings = self._settings
        if settings.derivation:
            return
        self._receipts = ReceiptReporter(client, settings.table.name, selection, landed.start)
        self._receipts.report(landed.end)  # an earlier run may not have reported it

    @abstractmethod
    def _land(
        self, spark: SparkSession, client: StreamClient, selection: Selection, landed_end: int
    ) -> None:
        """Land messages from the landed end on until stopped, or until the present ones have."""

    def _known_position(self) -> tuple[str, int] | None:
        """Return an epoch and offset that the log is known to have reached; None if unknown."""
        contents = self._job_target.contents()
        if contents is None or contents.epoch is None:
            return None
        return contents.epoch, contents.landed_end or 0

    def _wait_for_log(self, client: StreamClient) -> StreamOffsets | None:
        """Wait until the service answers, and return the offsets of the stream; None if stopped."""
        deadline = time.monotonic() + self._settings.connect_timeout_s
        known = self._known_position()
        while not self._stopping:
            self._reporter.change(state="waiting")
            try:
                return client.offsets(self._settings.stream, at_least=known)
            except StreamUnavailable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)
        return None

    def _begin(self, selection: Selection, log: StreamOffsets) -> Landed:
        """Store in the table where landing begins: asked again, `latest` is a later offset.

        A job of an older version stored that in its checkpoint.
        """
        settings = self._settings
        options = parse_options({**settings.source_options(), **settings.starting_options()})
        self._check_other_epoch(selection, options)
        limit = options.starting_limits[SINGLE_SERVER]
        brokers = BrokerConnections(options)
        try:
            start = brokers.find_position(SINGLE_SERVER, limit, log).offset
        finally:
            brokers.close()
        pinned = read_pinned_position(settings.checkpoint_dir)
        if pinned is not None and pinned.epoch == log.epoch:
            start = min(start, pinned.offset)
        return begin(self._job_target, selection, start)

    def _check_other_epoch(self, selection: Selection, options: SourceOptions) -> None:
        """Raise EpochMismatch if the table has rows of another log, unless the user accepts it."""
        contents = self._job_target.contents()
        if contents is None or contents.epoch in (None, selection.epoch):
            return
        limit = options.starting_limits[SINGLE_SERVER]
        is_named = isinstance(limit, SpecificOffset) and limit.epoch == selection.epoch
        if is_named or not options.fail_on_data_loss:
            return
        old = self._settings.selection(contents.epoch or "")
        landed = self._job_target.landed(old)
        end = (contents.landed_end or 0) if landed is None else landed.end
        raise EpochMismatch(
            f"the table in {self._settings.table} has messages of epoch {old.epoch}, of which all"
            f" before offset {end} has landed, and the log is now of epoch {selection.epoch}: it"
            " was restored or created anew, so its offsets mean other messages. To add the new"
            f" log's messages, name the offset at which they begin, as in starting offsets"
            f' {{"0": {end}, "epoch": "{selection.epoch}"}}, or accept data loss to begin as a new'
            " table does"
        )

    def _report_position(self, client: StreamClient, offset: int) -> None:
        """Report the position of the job and the end of the log."""
        self._reporter.change(offset=offset)
        if self._receipts is not None:
            self._receipts.report(offset)
        try:
            self._reporter.change(latest=client.offsets(self._settings.stream).latest)
        except PenstockError:
            self._reporter.change(latest=None)
