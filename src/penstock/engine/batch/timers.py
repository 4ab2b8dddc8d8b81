"""Timers: calls at a later time.

::

      wake_at(target, due) ─▶ heap ── due, and still the timer of the target ─▶ target.wake(now)

A target has at most one timer, the earliest that was set; when the target is woken, it may set the
next. While no timer is due, only the first entry of the heap is read.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import final

from penstock.engine.values.clock import Now
from penstock.engine.values.limits import OUT_OF_DATE_MAX


class TimerTarget:
    """The port of an object with a timer, which is due at ``due_us`` of the steady clock; 0 = no
    timer is set."""

    due_us = 0

    def wake(self, now: Now) -> None:
        """Handle the timer that became due; it is not set any more."""


@final
class Timers:
    """The timers of one broker, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerTarget]] = []
        self._pushed = 0
        self._in_use = 0

    def wake_at(self, target: TimerTarget, due_us: int) -> None:
        """Wake ``target`` at ``due_us``, or earlier if it has an earlier timer."""
        assert due_us > 0, "0 means that there is no timer"
        if 0 < target.due_us <= due_us:
            return
        if target.due_us == 0:
            self._in_use += 1
        target.due_us = due_us
        self._pushed += 1
        heappush(self._heap, (due_us, self._pushed, target))
        if len(self._heap) > 2 * self._in_use + OUT_OF_DATE_MAX:
            self._heap = [entry for entry in self._heap if entry[2].due_us == entry[0]]
            heapify(self._heap)

    def wake_due(self, now: Now) -> None:
        """Wake all targets whose timer is due."""
        while self._heap and self._heap[0][0] <= now.steady_us:
            due_us, _, target = heappop(self._heap)
            if target.due_us == due_us:
                target.due_us = 0
                self._in_use -= 1
                target.wake(now)
