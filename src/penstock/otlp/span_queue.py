"""Spans that wait for the collector, no more than a number of them.

::

      put ─▶ waiting ── first ─▶ under way ── taken by the collector: done
                ╰── no room: dropped ▲──────────── not for ``GIVE_UP_S``: dropped
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, final

from penstock.otlp.message_traces import Span

BATCH_MAX: Final = 512
"""Spans in one request."""

GIVE_UP_S: Final = 120.0
"""How long the same spans are offered again and again, seconds: the collector may not like them."""


@final
class SpanQueue:
    """A queue between the thread that reads events and the one that sends spans.

    Args:
        spans_max: spans in it, those under way included.

    Attributes:
        sent: spans that the collector has taken.
        dropped: spans that it never got.
    """

    def __init__(self, spans_max: int) -> None:
        self.sent = 0
        self.dropped = 0
        self._spans_max = spans_max
        self._waiting: deque[Span] = deque()
        self._under_way: list[Span] = []
        self._since_s = 0.0
        self._lock = threading.Lock()
        self._filled = threading.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    def put(self, span: Span) -> None:
        """Add a span, or drop it where there is no room."""
        with self._lock:
            if len(self) >= self._spans_max:
                self.dropped += 1
                return
            self._waiting.append(span)
        self._filled.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a span or ``wake`` is called, at most ``timeout_s`` seconds."""
        self._filled.wait(timeout_s)

    def wake(self) -> None:
        """Let ``wait`` return."""
        self._filled.set()

    def first(self, now_s: float) -> list[Span]:
        """Return the batch to send now: the one that was not accepted yet, or the next spans."""
        with self._lock:
            if not self._under_way:
                self._since_s = now_s
                while self._waiting and len(self._under_way) < BATCH_MAX:
                    self._under_way.append(self._waiting.popleft())
            if not self._under_way:
                self._filled.clear()
            return self._under_way

    def taken(self) -> None:
        """Forget the spans of ``first``: the collector has them."""
        with self._lock:
            self.sent += len(self._under_way)
            self._under_way = []

    def refused(self, now_s: float) -> None:
        """Keep the spans of ``first`` for another attempt, unless there were enough."""
        with self._lock:
            if now_s - self._since_s >= GIVE_UP_S:
                self.dropped += len(self._under_way)
                self._under_way = []
