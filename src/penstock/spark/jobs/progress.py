"""The progress of a landing job, passed to a callback.

Batches end in one thread, and another polls the end of the log; `Reporter` combines both and calls
back with an immutable value.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

RATE_WINDOW_S: Final = 10.0
"""Seconds over which the rate of rows is averaged."""

State = Literal["waiting", "starting", "landing", "ended", "failing", "gave up"]
"""The states of a job; only `penstock.spark.jobs.supervision` sets the last two."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job.

    Attributes:
        state: the state of the job.
        batch_id: the number of the last committed batch: of this run, or of the query, if it has
            state; None before the first.
        rows_landed: the number of rows that this run has added to the table.
        dead_letters: the number of messages that became dead letters in this run.
        rows_per_second: the mean rate of rows over RATE_WINDOW_S.
        replayed: the number of batches that the table had already.
        offset: the job's position in the log; None if unknown.
        latest: the end of the log; None while the stream service does not answer.
        failure: the current error, in one sentence; empty if there is none.
    """

    state: State = "waiting"
    batch_id: int | None = None
    rows_landed: int = 0
    dead_letters: int = 0
    rows_per_second: float = 0.0
    replayed: int = 0
    offset: int | None = None
    latest: int | None = None
    failure: str = ""

    @property
    def lag(self) -> int | None:
        """The number of offsets from the job's position to the end of the log; None if
        unknown."""
        if self.offset is None or self.latest is None:
            return None
        return max(0, self.latest - self.offset)


class Reporter:
    """Keeps the progress, and calls back with each new value. Any thread may call it."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque()  # (monotonic seconds, rows)
        self.progress = Progress()

    def change(self, **changes: Any) -> None:
        """Set attributes of the progress, by name."""
        with self._lock:
            self._change(changes)

    def report_landed(self, batch_id: int, rows: int, dead_letters: int, end: int) -> None:
        """Report that a batch landed: its number, what it added, and the offset after it."""
        progress = self.progress
        with self._lock:
            if rows:
                self._recent.append((time.monotonic(), rows))
            self._change(
                {
                    "batch_id": batch_id,
                    "rows_landed": progress.rows_landed + rows,
                    "dead_letters": progress.dead_letters + dead_letters,
                    "offset": max(progress.offset or 0, end),
                }
            )

    def report_replayed(self, batch_id: int) -> None:
        """Report that the table had a batch already."""
        with self._lock:
            self._change({"batch_id": batch_id, "replayed": self.progress.replayed + 1})

    def _change(self, changes: dict[str, Any]) -> None:
        horizon = time.monotonic() - RATE_WINDOW_S
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        rate = sum(rows for _, rows in self._recent) / RATE_WINDOW_S
        self.progress = replace(self.progress, rows_per_second=rate, **changes)
        self._on_progress(self.progress)
