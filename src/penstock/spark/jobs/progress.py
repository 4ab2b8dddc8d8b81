"""The progress of a landing job, passed to a callback.

Batches end in one thread and the log's end is polled in another; `Reporter` combines both
and calls back with an immutable value.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from penstock.spark.tables.landing_target import LandingResult

RATE_WINDOW_S: Final = 10.0
"""The time over which the rate of rows is averaged."""

State = Literal["waiting", "starting", "landing", "ended", "failing", "gave up"]
"""The last two are those of a table among several, which is started again when it fails."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job.

    Attributes:
        state: the state of the job.
        batch_id: the last batch that ended, or None.
        rows_landed: rows this run has added to the table.
        dead_letters: messages that became dead letters instead.
        rows_per_second: over the last ten seconds.
        replayed: batches this run found in the table already.
        offset: the query's position in the log, or None.
        latest: the end of the log, or None while the stream service is away.
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
        """Offsets between the query's position and the end of the log."""
        if self.offset is None or self.latest is None:
            return None
        return max(0, self.latest - self.offset)


class Reporter:
    """Gathers the progress and passes each new value on. Any thread may call it."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque()  # (monotonic seconds, rows)
        self.progress = Progress()

    def change(self, **known: Any) -> None:
        """Set these attributes of `Progress`."""
        with self._lock:
            self._change(known)

    def landed(self, batch_id: int, landed: LandingResult) -> None:
        """Report that batch `batch_id` ended, with this result."""
        progress = self.progress
        with self._lock:
            if landed.rows:
                self._recent.append((time.monotonic(), landed.rows))
            self._change(
                {
                    "batch_id": batch_id,
                    "rows_landed": progress.rows_landed + landed.rows,
                    "dead_letters": progress.dead_letters + landed.dead_letters,
                    "offset": max(progress.offset or 0, landed.end),
                }
            )

    def replayed(self, batch_id: int) -> None:
        """Report that batch `batch_id` was in the table already."""
        with self._lock:
            self._change({"batch_id": batch_id, "replayed": self.progress.replayed + 1})

    def _change(self, known: dict[str, Any]) -> None:
        horizon = time.monotonic() - RATE_WINDOW_S
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        rate = sum(rows for _, rows in self._recent) / RATE_WINDOW_S
        self.progress = replace(self.progress, rows_per_second=rate, **known)
        self._on_progress(self.progress)
