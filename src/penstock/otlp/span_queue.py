"""The bounded queue of spans that wait for the collector.

::

      put ─▶ waiting ── batch ─▶ being sent ── accepted by the collector: sent
                ╰── no room: dropped    ▲───── not accepted for ``GIVE_UP_S``: dropped
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, final

from penstock.otlp.message_traces import Span

BATCH_MAX: Final = 512
"""Largest number of spans in one request."""

GIVE_UP_S: Final = 120.0
"""Time in seconds after which a batch that the collector does not accept is dropped: its spans may
be the cause."""


@final
class SpanQueue:
    """A queue between the thread that reads events and the thread that sends spans.

    Args:
        spans_max: the largest number of spans, with those that are being sent.

    Attributes:
        sent: the number of spans that the collector accepted.
        dropped: the number of spans that were dropped.
    """

    def __init__(self, spans_max: int) -> None:
        self.sent = 0
        self.dropped = 0
        self._spans_max = spans_max
        self._spans: deque[Span] = deque()
        self._under_way: list[Span] = []
        self._since_s = 0.0
        self._lock = threading.Lock()
        self._filled = threading.Event()

    def __len__(self) -> int:
        return len(self._spans) + len(self._under_way)

    def put(self, span: Span) -> None:
        """Add a span, or drop it if there is no room."""
        with self._lock:
            if len(self) >= self._spans_max:
                self.dropped += 1
                return
            self._spans.append(span)
        self._filled.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a span or ``wake`` is called, at most ``timeout_s`` seconds."""
        self._filled.wait(timeout_s)

    def wake(self) -> None:
        """Let ``wait`` return."""
        self._filled.set()

    def batch(self, now_s: float) -> list[Span]:
        """Return the spans to send now: the last batch if it was not accepted, or the next spans.

        Args:
            now_s: the time of the monotonic clock, in seconds.
        """
        with self._lock:
            if not self._under_way:
                self._since_s = now_s
                while self._spans and len(self._under_way) < BATCH_MAX:
                    self._under_way.append(self._spans.popleft())
            if not self._under_way:
                self._filled.clear()
            return self._under_way

    def mark_sent(self) -> None:
        """Remove the spans of ``batch``: the collector accepted them."""
        with self._lock:
            self.sent += len(self._under_way)
            self._under_way = []

    def retry_or_drop(self, now_s: float) -> None:
        """Keep the spans of ``batch`` for another attempt, or drop them after ``GIVE_UP_S``."""
        with self._lock:
            if now_s - self._since_s >= GIVE_UP_S:
                self.dropped += len(self._under_way)
                self._under_way = []
