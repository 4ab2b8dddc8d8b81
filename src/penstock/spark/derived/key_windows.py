"""Windows and sessions of one key, with a watermark of its own.

    rows, in order of offset ──▶ open spans ──the key is past their end──▶ over: written, once

A key's *pace* is the newest time among its own rows. A span that ended more than `wait_us`
before that is over. So a log of last year, or a device that was away for a month and
then sends its stored messages, loses nothing, and no key makes another one late.

    the newest time          ──▶ newest_us
    spans that ended by then     closed_us = newest_us - wait_us, but never back

A row is late when all spans that it belongs to are over. The caller treats late rows, and rows
without a time or with an impossible one: one row of the year 2099 would make all others late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.config.derived import Function
from penstock.spark.derived.aggregates import Part, merged


@dataclass(slots=True)
class Span:
    """A window or a session that is not over: times in µs since the Unix epoch.

    Attributes:
        start_us: the start of a window, or the time of a session's first row.
        end_us: the end of a window, or the time of a session's last row.
        epoch: epoch of the last message in it.
        offset: offset of that message.
        parts: the aggregates so far.
    """

    start_us: int
    end_us: int
    epoch: str
    offset: int
    parts: list[Part]

    def take(self, functions: Sequence[Function], other: Span) -> None:
        """Add the rows of another span."""
        self.start_us = min(self.start_us, other.start_us)
        self.end_us = max(self.end_us, other.end_us)
        if other.offset > self.offset:
            self.epoch, self.offset = other.epoch, other.offset
        self.parts = [
            merged(function, one, more)
            for function, one, more in zip(functions, self.parts, other.parts, strict=True)
        ]


class Spans(Protocol):
    """A division of time into windows or sessions."""

    def end_of(self, span: Span) -> int:
        """Return the time at which a span is over."""

    def taking(self, at_us: int, closed_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield start and end of the spans that a row belongs to and that are not over."""

    def joins(self, span: Span, other: Span) -> bool:
        """Return whether two spans are one."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `length_us` that begin every `slide_us`, aligned to 1970-01-01 UTC."""

    length_us: int
    slide_us: int

    def end_of(self, span: Span) -> int:
        """Return the time at which a window is over."""
        return span.end_us

    def taking(self, at_us: int, closed_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield start and end of the windows that a row belongs to and that are not over."""
        start_us = at_us - at_us % self.slide_us
        while start_us > at_us - self.length_us:
            end_us = start_us + self.length_us
            if closed_us is not None and end_us <= closed_us:
                return
            yield start_us, end_us
            start_us -= self.slide_us

    def joins(self, span: Span, other: Span) -> bool:
        """Return whether two windows are the same."""
        return span.start_us == other.start_us


@dataclass(frozen=True, slots=True)
class Sessions:
    """Times of activity: `gap_us` without a row ends one."""

    gap_us: int

    def end_of(self, span: Span) -> int:
        """Return the time at which a session is over."""
        return span.end_us + self.gap_us

    def taking(self, at_us: int, closed_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield a session of one row, unless it may belong to one that is over."""
        if closed_us is None or at_us >= closed_us:
            yield at_us, at_us

    def joins(self, span: Span, other: Span) -> bool:
        """Return whether two sessions are one."""
        return (
            span.start_us - self.gap_us < other.end_us
            and other.start_us < span.end_us + self.gap_us
        )


@dataclass(slots=True)
class Pace:
    """The time of one key, and its open spans.

    Attributes:
        received_us: when its newest message was received, by the broker's clock.
        newest_us: the newest time of a row, or None.
        closed_us: spans that end by then are over; None if none is.
        open: the spans that are not over.
    """

    received_us: int
    newest_us: int | None = None
    closed_us: int | None = None
    open: list[Span] = field(default_factory=list)

    def take(
        self, spans: Spans, functions: Sequence[Function], wait_us: int, row: Span
    ) -> list[Span] | None:
        """Take a row, given as a span of its own, from its time to its time.

        Returns:
            The spans that are over with it, in order; None if it is late.
        """
        at_us = row.start_us
        taken = list(spans.taking(at_us, self.closed_us))
        if not taken:
            return None
        for start_us, end_us in taken:
            self._join(spans, functions, Span(start_us, end_us, row.epoch, row.offset, row.parts))
        self.newest_us = at_us if self.newest_us is None else max(self.newest_us, at_us)
        past_us = self.newest_us - wait_us
        self.closed_us = past_us if self.closed_us is None else max(self.closed_us, past_us)
        over = [span for span in self.open if spans.end_of(span) <= self.closed_us]
        if over:
            self.open = [span for span in self.open if spans.end_of(span) > self.closed_us]
        return sorted(over, key=lambda span: (span.end_us, span.start_us))

    def _join(self, spans: Spans, functions: Sequence[Function], new: Span) -> None:
        apart = []
        for span in self.open:
            if spans.joins(span, new):
                new.take(functions, span)
            else:
                apart.append(span)
        self.open = [*apart, new]
