"""The part that all jobs which fill a table share: the run from its lock to its end.

    waiting ──service answers──▶ starting ──Spark is up──▶ landing ──▶ ended
       └──────────────── stop ───────┴──────── stop ──────────┘

There are two kinds. `penstock.spark.jobs.landing` lands messages and keeps nothing beside the
table; `penstock.spark.jobs.stateful` runs a query whose state is in Spark's checkpoint.
"""

from __future__ import annotations

import contextlib
import itertools
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
from penstock.spark.jobs.lock import JobLock
from penstock.spark.jobs.progress import Progress, Reporter
from penstock.spark.jobs.resuming import resume
from penstock.spark.jobs.settings import LandingSettings
from penstock.spark.jobs.steps import EpochBegun, begin
from penstock.spark.offsets import SINGLE_SERVER
from penstock.spark.options import SourceOptions, parse_options
from penstock.spark.range_limits import SpecificOffset
from penstock.spark.receipts import ReceiptReporter
from penstock.spark.session import local_spark
from penstock.spark.tables.landed_table import Landed, Selection
from penstock.store.mark import NO_MARK, Mark
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

POLL_S: Final = 0.25
"""Seconds between two looks at the log while a batch runs; the end of a batch is noticed at
once."""

RESUMES_MAX: Final = 10
"""Most times in one run that a job goes on in another history of the log."""

BATCH_END_TIMEOUT_S: Final = 15.0
"""Seconds for which `stop` waits for the current batch to finish."""


class JobStopped(PenstockError):
    """Raised when a job was stopped before it had landed what `available_now` means."""


class TableJob(ABC):
    """One run of a job. `run` blocks; `stop` may be called from a signal handler.

    Args:
        settings: the settings of the job.
        target: the table.
        on_progress: called with each change of the progress.
        open_spark: opens a Spark session, as `local_spark` does.

    Attributes:
        is_complete: whether all messages that were present at the start of the run have landed.
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
        self.is_complete = False

    def stop(self) -> None:
        """Ask the run to end; the current batch finishes first."""
        self._stopping = True

    @property
    def is_starting(self) -> bool:
        """True until messages can land."""
        return self._reporter.progress.state not in ("landing", "ended")

    def run(self) -> Progress:
        """Land messages until stopped; with `available_now`, until the present ones have landed.

        Raises:
            ConfigError: the settings contradict each other, the table or its state.
            StreamUnavailable: the stream service does not answer.
            EpochMismatch: the log has another epoch than the table.
            TableError: the table cannot be read or written.
            SparkFailed: Spark does not start or end, or a batch failed for another reason.
            JobRunning: another job runs with the same checkpoint.
            JobStopped: with `available_now`, the run was stopped before all had landed.
        """
        with JobLock(self._settings.checkpoint_dir) as lock:
            lock.take()
            return self.run_locked()

    def run_locked(self) -> Progress:
        """Do the same for a caller that has the lock of the checkpoint; raise the same."""
        settings = self._settings
        with StreamClient(settings.server, 0, settings.credentials) as client:
            log = self._wait_for_log(client)
            if log is not None:
                self._available_end = log.latest
                with contextlib.ExitStack() as stack:
                    self._run(client, log, stack)
        self._reporter.change(state="ended")
        if settings.available_now and not self.is_complete:
            raise JobStopped(
                f"stopped before all messages had landed in {settings.location}: run it again to"
                " land the rest"
            )
        return self._reporter.progress

    def _run(self, client: StreamClient, log: StreamOffsets, stack: contextlib.ExitStack) -> None:
        """Land messages; where the log turns out to have another history, go on from there."""
        settings = self._settings
        spark: SparkSession | None = None
        for attempt in itertools.count():
            selection, landed = self._resume(client, log)
            self._reporter.change(state="starting", latest=log.latest, offset=landed.end)
            self._prepare(client, selection, landed)
            if spark is None and not self._stopping:
                spark = stack.enter_context(
                    self._open_spark(
                        f"penstock table {settings.location.name}",
                        settings.master,
                        settings.log_file,
                        lambda: self._stopping,
                    )
                )
            if spark is None or self._stopping:
                return
            try:
                self._land(spark, client, selection, landed)
            except (EpochMismatch, EpochBegun) as error:
                if attempt == RESUMES_MAX:
                    raise
                logger.warning("%s", Sentence(error))
                found = self._wait_for_log(client)
                if found is None:
                    return
                log = found
                self._available_end = max(self._available_end, log.latest)
            else:
                return

    def _resume(self, client: StreamClient, log: StreamOffsets) -> tuple[Selection, Landed]:
        """Return the messages that land, and what has landed of them; begin landing if nothing
        has."""
        selection = self._settings.selection(log.epoch)
        self._job_target.prepare(selection)
        try:
            found = resume(self._job_target, self._settings.selection, log, client)
        except EpochMismatch as error:
            self._accept_other_log(selection, error)
            found = None
        return found or (selection, self._begin(client, selection, log))

    def _prepare(self, client: StreamClient, selection: Selection, landed: Landed) -> None:
        """Prepare the run, before Spark starts."""
        settings = self._settings
        if settings.derivation:
            return
        self._receipts = ReceiptReporter(client, settings.location.name, selection, landed.start)
        self._receipts.report(landed.end, landed.mark)  # an earlier run may not have reported it

    @abstractmethod
    def _land(
        self, spark: SparkSession, client: StreamClient, selection: Selection, landed: Landed
    ) -> None:
        """Land messages until stopped, or until the present ones have landed.

        Raises:
            EpochMismatch: the log has another history than that in which messages have landed.
        """

    def _known_position(self) -> tuple[str, int] | None:
        """Return an epoch and offset that the log is known to have reached; None if unknown."""
        epoch = next(reversed(self._job_target.epochs()), None)
        if epoch is None:
            return None
        landed = self._job_target.landed(self._settings.selection(epoch))
        return epoch, 0 if landed is None else landed.end

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

    def _begin(self, client: StreamClient, selection: Selection, log: StreamOffsets) -> Landed:
        """Store in the table where landing begins: asked again, `latest` is a later offset.

        A job of an older version stored that in its checkpoint.
        """
        settings = self._settings
        options = self._starting_options()
        brokers = BrokerConnections(options)
        try:
            limit = options.starting_limits[SINGLE_SERVER]
            start = brokers.find_position(SINGLE_SERVER, limit, log).offset
        finally:
            brokers.close()
        pinned = read_pinned_position(settings.checkpoint_dir)
        if pinned is not None and pinned.epoch == log.epoch:
            start = min(start, pinned.offset)
        mark = client.mark_at(settings.stream, log.epoch, start)
        return begin(self._job_target, selection, start, mark)

    def _starting_options(self) -> SourceOptions:
        settings = self._settings
        return parse_options({**settings.source_options(), **settings.starting_options()})

    def _accept_other_log(self, selection: Selection, error: EpochMismatch) -> None:
        """Raise EpochMismatch for a table with rows of another log, unless the user accepts it."""
        options = self._starting_options()
        limit = options.starting_limits[SINGLE_SERVER]
        is_named = isinstance(limit, SpecificOffset) and limit.epoch == selection.epoch
        if is_named or not options.fail_on_data_loss:
            return
        raise EpochMismatch(
            f"{error}. The table in {self._settings.location} has landed messages of that log. To"
            " add those of the present one, name the offset at which they begin, as in starting"
            f' offsets {{"0": 0, "epoch": "{selection.epoch}"}}, or accept data loss to begin as'
            " a new table does"
        )

    def _report_position(self, client: StreamClient, offset: int, mark: Mark = NO_MARK) -> None:
        """Report the position of the job and the end of the log."""
        self._reporter.change(offset=offset)
        if self._receipts is not None:
            self._receipts.report(offset, mark)
        try:
            self._reporter.change(latest=client.offsets(self._settings.stream).latest)
        except PenstockError:
            self._reporter.change(latest=None)
