"""Supervises the landing of one table among several: restarts it when it fails.

                   ╭──────── another batch has ended ────────╮
                   ▼                                         │
    start ─▶ landing ── error ─▶ failing ── pause ─▶ landing, still failing
                │                 ▲   │                      │
           done │ stop            ╰───│──────── error ───────╯
                ▼                     │ a mistake of the caller, Spark is gone, or
              ended                   ▼ with `available_now` too often in a row
                                   gave up

A failure is reported in a line of the log, in the progress, and in the checkpoint
(`penstock.spark.failure_file`), where `penstock tables status` finds it. A pause is twice as long
as the one before, up to a minute, and uneven, so that tables which failed together do not come back
together.
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
from penstock.spark.failures import sentence_of
from penstock.spark.jobs.lock import JobRunning
from penstock.spark.jobs.progress import Progress
from penstock.spark.session import SparkFailed
from penstock.stream.client import StreamUnavailable
from penstock.telemetry.logs import Sentence, get_logger
from penstock.transport.backoff import STABLE_S, Backoff

logger = get_logger(__name__)

PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 60.0

ATTEMPTS_MAX: Final = 3
"""Most failures in a row of a table that is to end when all present messages have landed."""

_POLL_S: Final = 0.25

_MISTAKES: Final = (ConfigError, EpochMismatch, OffsetOutOfRange)
"""Errors that only a person can resolve. The last one is data loss that was not accepted."""


class Attempt(Protocol):
    """One run of a landing, such as `penstock.spark.jobs.landing.Landing`."""

    @property
    def is_starting(self) -> bool:
        """True until it has finished its first batch, if there are messages for one."""

    def run(self) -> object:
        """Land until done or stopped, or raise."""

    def stop(self) -> None:
        """Ask it to end."""


class SupervisedLanding:
    """Lands one table, again after each failure. `run` blocks; any thread may call `stop`.

    Args:
        name: the name of the table.
        make: returns a landing, to be run once, that reports its progress to the given function.
        checkpoint: the directory of its checkpoint.
        available_now: whether it ends when messages present at its start have landed.
        on_progress: called with the progress of the table over all attempts.
        spark_failure: returns why no attempt can succeed any more; None if one can.

    Attributes:
        error: the error with which it gave up, or failed while being stopped; None otherwise.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Callable[[Progress], None]], Attempt],
        checkpoint: Path,
        *,
        available_now: bool,
        on_progress: Callable[[Progress], None],
        spark_failure: Callable[[], SparkFailed | None],
    ) -> None:
        self._name = name
        self._make = make
        self._checkpoint = checkpoint
        self._available_now = available_now
        self._on_progress = on_progress
        self._spark_failure = spark_failure
        self._landing: Attempt | None = None
        self._before = Progress()  # the progress of the attempts before this one
        self._progress = Progress()
        self._failure: TableFailure | None = None  # while it fails
        self._failures_in_a_row = 0
        self._has_recovered = False
        self._failed_after: int | None = None  # the last batch that ended before a failure
        self._up_since_s: float | None = None
        self._stopping = False  # no Event: a signal handler that sets one may wait forever
        self._pauses = _new_pauses()
        self.error: Exception | None = None

    def stop(self) -> None:
        """Ask the run to end; the current batch finishes first."""
        self._stopping = True
        if self._landing is not None:
            self._landing.stop()

    @property
    def is_starting(self) -> bool:
        """True until the first attempt has finished its first batch or failed."""
        return self._failure is None and (self._landing is None or self._landing.is_starting)

    def run(self) -> None:
        """Land until done, stopped, or given up."""
        while self.error is None:
            self._up_since_s = None
            try:
                self._landing = self._make(self._note)
                if self._stopping:  # perhaps before this landing existed
                    self._landing.stop()
                self._landing.run()
            except Exception as error:  # of any kind: it must not end other tables
                self._on_failure(error)
                if self._stopping:
                    return
            else:
                return

    def _note(self, progress: Progress) -> None:
        """Pass on the progress of the current attempt."""
        if not self._has_recovered and self._is_past_failure(progress):
            self._on_recovery()
        before, failure = self._before, self._failure
        is_failing = failure is not None and progress.state != "ended"
        self._progress = replace(
            progress,
            state="failing" if is_failing else progress.state,
            rows_landed=before.rows_landed + progress.rows_landed,
            dead_letters=before.dead_letters + progress.dead_letters,
            replayed=before.replayed + progress.replayed,
            failure="" if failure is None else failure.sentence,
        )
        self._on_progress(self._progress)

    def _is_past_failure(self, progress: Progress) -> bool:
        """Return whether the attempt has got past the previous failure.

        It has if it ran for a while, or ended another batch than the last one before the failure:
        that one it may end again, and then fail again.
        """
        if self._landing is None or self._landing.is_starting:
            return False
        if self._failure is None:
            return True
        now_s = time.monotonic()
        if self._up_since_s is None:
            self._up_since_s = now_s
        is_stable = now_s - self._up_since_s >= STABLE_S
        return is_stable or progress.batch_id not in (None, self._failed_after)

    def _on_recovery(self) -> None:
        self._has_recovered = True
        remove_failure(self._checkpoint)
        if self._failure is not None:
            logger.warning("table %s lands again", self._name)
        self._failure = None
        self._failures_in_a_row = 0
        self._pauses = _new_pauses()

    def _on_failure(self, error: Exception) -> None:
        """Report the failure, and pause; or give up."""
        spark_failure = self._spark_failure()
        error = spark_failure or error
        self._failures_in_a_row += 1
        gives_up = spark_failure is not None or self._gives_up(error)
        self._failure = self._record_failure(error, gives_up)
        self._has_recovered = False
        if self._progress.batch_id is not None:
            self._failed_after = self._progress.batch_id
        self._progress = replace(
            self._progress,
            state="gave up" if gives_up else "failing",
            failure=self._failure.sentence,
        )
        self._before = self._progress
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
        if isinstance(error, _MISTAKES):
            return True
        if not self._available_now:
            return False
        has_waited = isinstance(error, StreamUnavailable)  # for as long as the service may be away
        return has_waited or self._failures_in_a_row >= ATTEMPTS_MAX

    def _record_failure(self, error: Exception, gives_up: bool) -> TableFailure:
        """Return the failure, written to the checkpoint unless another job has that."""
        now = datetime.now(UTC)
        known = None if self._has_recovered else read_failure(self._checkpoint)
        since, attempts = (now, 0) if known is None else (known.since, known.attempts)
        failure = TableFailure(sentence_of(error), since, now, attempts + 1, gives_up)
        if not isinstance(error, JobRunning):
            write_failure(self._checkpoint, failure)
        return failure

    def _wait(self, pause_s: float) -> None:
        until_s = time.monotonic() + pause_s
        while not self._stopping and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left_s))


def _new_pauses() -> Backoff:
    return Backoff(PAUSE_S_MIN, PAUSE_S_MAX, Random())  # noqa: S311  # only spreads, not a secret
