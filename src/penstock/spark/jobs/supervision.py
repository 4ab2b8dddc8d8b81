"""Restarts the landing of a table among several when it fails.

                   ╭──────── another batch has ended ────────╮
                   ▼                                         │
    start ─▶ landing ── error ─▶ failing ── pause ─▶ landing, still failing
                │                 ▲   │                      │
           done │ stop            ╰───│──────── error ───────╯
                ▼                     │ a permanent error, Spark has ended, or
              ended                   ▼ with `available_now` too often in a row
                                   gave up

A failure is logged, and reported in the progress and in the checkpoint
(`penstock.spark.failure_file`), where `penstock tables status` finds it. Each pause is twice as
long as the one before, up to a minute, and randomly shortened, so that tables that failed together
are not restarted together.

The first attempt that gets the lock of the checkpoint has it for all that follow; a table that
another job lands fails until then, and asks for no Spark (`penstock.spark.jobs.lock`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final, Protocol

from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange
from penstock.spark.failure_file import TableFailure, read_failure, remove_failure, write_failure
from penstock.spark.failures import error_sentence
from penstock.spark.jobs.job import JobStopped
from penstock.spark.jobs.lock import JobLock, JobRunning
from penstock.spark.jobs.progress import Progress
from penstock.spark.session import SparkFailed
from penstock.stream.client import StreamUnavailable
from penstock.telemetry.logs import Sentence, get_logger
from penstock.transport.backoff import STABLE_S, Backoff

logger = get_logger(__name__)

PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 60.0

ATTEMPTS_MAX: Final = 3
"""Most failures in a row with `available_now`, before the table is given up."""

_POLL_S: Final = 0.25

_PERMANENT_ERRORS: Final = (ConfigError, EpochMismatch, OffsetOutOfRange)
"""Permanent errors, which only a person can resolve; the last is data loss that was not
accepted."""


class Attempt(Protocol):
    """One run of a landing, such as `penstock.spark.jobs.landing.Landing`."""

    @property
    def is_starting(self) -> bool:
        """True until messages can land."""

    @property
    def is_complete(self) -> bool:
        """True if all messages that were present at its start have landed."""

    def run_locked(self) -> object:
        """Land until done or stopped; raise the error if it fails. The caller has the lock."""

    def stop(self) -> None:
        """Ask the run to end; the current batch finishes first."""


class SupervisedLanding:
    """Lands one table, and restarts after each failure. `run` blocks; any thread may call `stop`.

    Args:
        name: the name of the table.
        make_attempt: returns a new attempt, which reports its progress to the given function.
        checkpoint: the directory of the checkpoint.
        available_now: whether the landing ends when the messages present at its start have landed.
        on_progress: called with the progress of the table over all attempts.
        spark_failure: returns the error of a Spark that has ended; None while it runs.

    Attributes:
        error: the error with which the landing gave up, or failed while being stopped; else None.
        is_complete: whether it has ended, and all messages present at its start have landed.
    """

    def __init__(
        self,
        name: str,
        make_attempt: Callable[[Callable[[Progress], None]], Attempt],
        checkpoint: Path,
        *,
        available_now: bool,
        on_progress: Callable[[Progress], None],
        spark_failure: Callable[[], SparkFailed | None],
    ) -> None:
        self._name = name
        self._make_attempt = make_attempt
        self._checkpoint = checkpoint
        self._available_now = available_now
        self._on_progress = on_progress
        self._spark_failure = spark_failure
        self._attempt: Attempt | None = None
        self._earlier_progress = Progress()  # the progress of all earlier attempts
        self._progress = Progress()
        self._failure: TableFailure | None = None  # set while the table fails
        self._failures_in_a_row = 0
        self._has_recovered = False
        self._batch_before_failure: int | None = None  # the last batch that ended before a failure
        self._up_since_s: float | None = None
        self._stopping = False  # no Event: a signal handler that sets one may block forever
        self._pauses = _new_pauses()
        self.error: Exception | None = None
        self.is_complete = False

    def stop(self) -> None:
        """Ask the run to end; the current batch finishes first."""
        self._stopping = True
        if self._attempt is not None:
            self._attempt.stop()

    @property
    def is_starting(self) -> bool:
        """True until messages can land, or the first attempt has failed."""
        return self._failure is None and (self._attempt is None or self._attempt.is_starting)

    def run(self) -> None:
        """Land until done, stopped, or given up; then `error` is set."""
        with JobLock(self._checkpoint) as lock:
            self._run(lock)

    def _run(self, lock: JobLock) -> None:
        while self.error is None:
            self._up_since_s = None
            try:
                lock.take()
                self._attempt = self._make_attempt(self._report_progress)
                if self._stopping:  # `stop` may have been called before this attempt existed
                    self._attempt.stop()
                self._attempt.run_locked()
            except JobStopped:
                return
            except Exception as error:  # no error of a table may end other tables
                self._on_failure(error)
                if self._stopping:
                    return
            else:
                self.is_complete = self._attempt.is_complete
                return

    def _report_progress(self, progress: Progress) -> None:
        """Add the progress of earlier attempts to that of the current one, and report it."""
        if not self._has_recovered and self._is_past_failure(progress):
            self._on_recovery()
        earlier, failure = self._earlier_progress, self._failure
        is_failing = failure is not None and progress.state != "ended"
        self._progress = replace(
            progress,
            state="failing" if is_failing else progress.state,
            rows_landed=earlier.rows_landed + progress.rows_landed,
            dead_letters=earlier.dead_letters + progress.dead_letters,
            replayed=earlier.replayed + progress.replayed,
            failure="" if failure is None else failure.sentence,
        )
        self._on_progress(self._progress)

    def _is_past_failure(self, progress: Progress) -> bool:
        """Return whether the attempt has passed the point of the previous failure.

        It has if it ran for STABLE_S, or committed a batch after the last one before the failure:
        it may commit that batch again, and then fail again.
        """
        if self._attempt is None or self._attempt.is_starting:
            return False
        if self._failure is None:
            return True
        now_s = time.monotonic()
        if self._up_since_s is None:
            self._up_since_s = now_s
        is_stable = now_s - self._up_since_s >= STABLE_S
        return is_stable or progress.batch_id not in (None, self._batch_before_failure)

    def _on_recovery(self) -> None:
        self._has_recovered = True
        remove_failure(self._checkpoint)
        if self._failure is not None:
            logger.warning("table %s lands again", self._name)
        self._failure = None
        self._failures_in_a_row = 0
        self._pauses = _new_pauses()

    def _on_failure(self, error: Exception) -> None:
        """Report the failure, then pause before the next attempt, or give up."""
        spark_failure = self._spark_failure()
        error = spark_failure or error
        self._failures_in_a_row += 1
        gives_up = spark_failure is not None or self._gives_up(error)
        self._failure = self._record_failure(error, gives_up)
        self._has_recovered = False
        if self._progress.batch_id is not None:
            self._batch_before_failure = self._progress.batch_id
        self._progress = replace(
            self._progress,
            state="gave up" if gives_up else "failing",
            failure=self._failure.sentence,
        )
        self._earlier_progress = self._progress
        self._on_progress(self._progress)
        if gives_up or self._stopping:
            self.error = error
        pause_s = self._pauses.after_failure()
        logger.warning(
            "table %s fails: %s; %s",
            self._name,
            Sentence(self._failure.sentence),
            Sentence("it gives up" if gives_up else f"it is tried again in {pause_s:.0f} s"),
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
        )
        if self.error is None:
            self._wait(pause_s)

    def _gives_up(self, error: Exception) -> bool:
        if isinstance(error, _PERMANENT_ERRORS):
            return True
        if not self._available_now:
            return False
        has_waited = isinstance(error, StreamUnavailable)  # for connect_timeout_s
        return has_waited or self._failures_in_a_row >= ATTEMPTS_MAX

    def _record_failure(self, error: Exception, gives_up: bool) -> TableFailure:
        """Return the failure, and write it to the checkpoint unless another job uses that."""
        now = datetime.now(UTC)
        known = None if self._has_recovered else read_failure(self._checkpoint)
        since, attempts = (now, 0) if known is None else (known.since, known.attempts)
        failure = TableFailure(error_sentence(error), since, now, attempts + 1, gives_up)
        if not isinstance(error, JobRunning):
            write_failure(self._checkpoint, failure)
        return failure

    def _wait(self, pause_s: float) -> None:
        deadline_s = time.monotonic() + pause_s
        while not self._stopping and (remaining_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, remaining_s))


def _new_pauses() -> Backoff:
    return Backoff(PAUSE_S_MIN, PAUSE_S_MAX, Random())  # noqa: S311  # not for secrets
