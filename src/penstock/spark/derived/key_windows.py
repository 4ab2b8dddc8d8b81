"""Windows and sessions of one key, with a watermark of its own.

    rows, in order of offset ──▶ open windows ──the watermark passes the end──▶ written, once

The watermark of a key is the newest time among its own rows, minus the time by which rows may be
late. A window that ended by then is closed. So a log of last year, or a device that was away for a
month and then sends its stored messages, loses nothing, and no key makes another one late.

    watermark_us = newest_us - lateness_us, and it never goes back

A row is late when all windows that it belongs to are closed. The caller treats late rows, and rows
without a time or with an impossible one: one row of the year 2099 would make all others late.

A session is a window that grows: two sessions become one when a row falls between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.config.derived import Function
from penstock.spark.derived.aggregates import Part, merged


@dataclass(slots=True)
class OpenWindow:
    """A window or a session that is not closed: times in µs since the Unix epoch.

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

    def merge(self, functions: Sequence[Function], other: OpenWindow) -> None:
        """Add the rows of another window."""
        self.start_us = min(self.start_us, other.start_us)
        self.end_us = max(self.end_us, other.end_us)
        if other.offset > self.offset:
            self.epoch, self.offset = other.epoch, other.offset
        self.parts = [
            merged(function, one, more)
            for function, one, more in zip(functions, self.parts, other.parts, strict=True)
        ]


class WindowAssigner(Protocol):
    """Assigns rows to windows or sessions by their times."""

    def end_of(self, window: OpenWindow) -> int:
        """Return the time at which a window is closed, once the watermark has passed it."""

    def assign(self, at_us: int, watermark_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield start and end of the windows to which a row belongs and that are not closed."""

    def merges(self, window: OpenWindow, other: OpenWindow) -> bool:
        """Return whether two windows are one."""


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows of `length_us` that begin every `slide_us`, aligned to 1970-01-01 UTC."""

    length_us: int
    slide_us: int

    def end_of(self, window: OpenWindow) -> int:
        """Return the end of a window."""
        return window.end_us

    def assign(self, at_us: int, watermark_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield start and end of the windows to which a row belongs and that are not closed."""
        start_us = at_us - at_us % self.slide_us
        while start_us > at_us - self.length_us:
            end_us = start_us + self.length_us
            if watermark_us is not None and end_us <= watermark_us:
                return
            yield start_us, end_us
            start_us -= self.slide_us

    def merges(self, window: OpenWindow, other: OpenWindow) -> bool:
        """Return whether two windows are the same."""
        return window.start_us == other.start_us


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Sessions: a session ends when its key has no row for `gap_us`."""

    gap_us: int

    def end_of(self, window: OpenWindow) -> int:
        """Return the time of a session's last row, and the gap after it."""
        return window.end_us + self.gap_us

    def assign(self, at_us: int, watermark_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield a session of one row, unless the row may belong to one that is closed."""
        if watermark_us is None or at_us >= watermark_us:
            yield at_us, at_us

    def merges(self, window: OpenWindow, other: OpenWindow) -> bool:
        """Return whether less than the gap lies between two sessions."""
        return (
            window.start_us - self.gap_us < other.end_us
            and other.start_us < window.end_us + self.gap_us
        )


@dataclass(slots=True)
class KeyWindows:
    """The open windows of one key, and its watermark.

    Attributes:
        received_us: when its newest message was received, by the broker's clock.
        newest_us: the newest time of a row, or None.
        watermark_us: windows that end by then are closed; None before the first row in time.
        open: the windows that are not closed.
    """

    received_us: int
    newest_us: int | None = None
    watermark_us: int | None = None
    open: list[OpenWindow] = field(default_factory=list)

    def add(
        self,
        assigner: WindowAssigner,
        functions: Sequence[Function],
        lateness_us: int,
        row: OpenWindow,
    ) -> list[OpenWindow] | None:
        """Add a row, given as a window from its time to its time, and move the watermark.

        Returns:
            The windows that this closes, in order; None if the row is late, and was not added.
        """
        at_us = row.start_us
        assigned = list(assigner.assign(at_us, self.watermark_us))
        if not assigned:
            return None
        for start_us, end_us in assigned:
            window = OpenWindow(start_us, end_us, row.epoch, row.offset, row.parts)
            self._merge(assigner, functions, window)
        self.newest_us = at_us if self.newest_us is None else max(self.newest_us, at_us)
        reached_us = self.newest_us - lateness_us
        self.watermark_us = (
            reached_us if self.watermark_us is None else max(self.watermark_us, reached_us)
        )
        closed = [one for one in self.open if assigner.end_of(one) <= self.watermark_us]
        if closed:
            self.open = [one for one in self.open if assigner.end_of(one) > self.watermark_us]
        return in_order(closed)

    def _merge(
        self, assigner: WindowAssigner, functions: Sequence[Function], new: OpenWindow
    ) -> None:
        apart = []
        for window in self.open:
            if assigner.merges(window, new):
                new.merge(functions, window)
            else:
                apart.append(window)
        self.open = [*apart, new]


def in_order(windows: Sequence[OpenWindow]) -> list[OpenWindow]:
    """Return windows by their end, then by their start."""
    return sorted(windows, key=lambda window: (window.end_us, window.start_us))
