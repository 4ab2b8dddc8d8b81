"""Computes the windows or sessions of one key, which has its own watermark.

    rows, in order of offset ──▶ open windows ──the watermark passes the end──▶ closed windows

The watermark of a key is the newest time among its own rows, minus the allowed lateness. A window
that ends before it is closed. So no row is lost in a log of last year, or of a device that was
offline for a month and then sends its stored messages, and no key makes rows of another one late.

    watermark_us = newest_us - lateness_us, and it never goes back

A row is late if all its windows are closed. The caller counts late rows. It also leaves out rows
without a time, or with a time in the future: one row of the year 2099 would make all others late.

A session is a window that grows: two sessions become one when a row falls between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.config.derived import Function
from penstock.spark.derived.aggregates import PartialAggregate, merge_partials


@dataclass(slots=True)
class OpenWindow:
    """A window or session that is not closed. Times are in µs since the Unix epoch.

    Attributes:
        start_us: the start of a window, or the time of a session's first row.
        end_us: the end of a window, or the time of a session's last row.
        epoch: the epoch of the last message in the window.
        offset: the offset of that message.
        parts: the partial aggregate of each aggregate.
    """

    start_us: int
    end_us: int
    epoch: str
    offset: int
    parts: list[PartialAggregate]

    def merge(self, functions: Sequence[Function], other: OpenWindow) -> None:
        """Add the rows of another window to this one."""
        self.start_us = min(self.start_us, other.start_us)
        self.end_us = max(self.end_us, other.end_us)
        if other.offset > self.offset:
            self.epoch, self.offset = other.epoch, other.offset
        self.parts = [
            merge_partials(function, one, more)
            for function, one, more in zip(functions, self.parts, other.parts, strict=True)
        ]


class WindowAssigner(Protocol):
    """Assigns rows to windows or sessions by their times."""

    def end_of(self, window: OpenWindow) -> int:
        """Return the time of a window's end, in µs: a watermark that reaches it closes the
        window."""

    def assign(self, at_us: int, watermark_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield start and end, in µs, of the open windows to which a row belongs.

        Args:
            at_us: the time of the row.
            watermark_us: the watermark of the key; None before its first row.
        """

    def must_merge(self, window: OpenWindow, other: OpenWindow) -> bool:
        """Return whether two windows must be merged."""


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows of `length_us` that begin every `slide_us`, aligned to 1970-01-01 UTC."""

    length_us: int
    slide_us: int

    def end_of(self, window: OpenWindow) -> int:
        """Return the end of a window."""
        return window.end_us

    def assign(self, at_us: int, watermark_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield start and end of the open windows to which a row belongs."""
        start_us = at_us - at_us % self.slide_us
        while start_us > at_us - self.length_us:
            end_us = start_us + self.length_us
            if watermark_us is not None and end_us <= watermark_us:
                return
            yield start_us, end_us
            start_us -= self.slide_us

    def must_merge(self, window: OpenWindow, other: OpenWindow) -> bool:
        """Return whether two windows have the same start."""
        return window.start_us == other.start_us


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Sessions: a session ends when its key has no row for `gap_us`."""

    gap_us: int

    def end_of(self, window: OpenWindow) -> int:
        """Return the time of a session's last row plus the gap."""
        return window.end_us + self.gap_us

    def assign(self, at_us: int, watermark_us: int | None) -> Iterator[tuple[int, int]]:
        """Yield a session of one row; nothing if the row may belong to a closed session."""
        if watermark_us is None or at_us >= watermark_us:
            yield at_us, at_us

    def must_merge(self, window: OpenWindow, other: OpenWindow) -> bool:
        """Return whether there is less than the gap between two sessions."""
        return (
            window.start_us - self.gap_us < other.end_us
            and other.start_us < window.end_us + self.gap_us
        )


@dataclass(slots=True)
class KeyWindows:
    """The open windows of one key, and its watermark. Times are in µs since the Unix epoch.

    Attributes:
        received_us: the time of receipt of the key's newest message, by the broker's clock.
        newest_us: the newest time of a row; None before the first row that is not late.
        watermark_us: windows that end by then are closed; None before the first such row.
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
        """Add a row, and move the watermark.

        Args:
            assigner: assigns rows to windows.
            functions: the function of each aggregate.
            lateness_us: the allowed lateness of rows.
            row: the row as a window that starts and ends at the row's time.

        Returns:
            The windows that the watermark closes, in order; None if the row is late and was not
            added.
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
        return sort_windows(closed)

    def _merge(
        self, assigner: WindowAssigner, functions: Sequence[Function], new: OpenWindow
    ) -> None:
        separate = []
        for window in self.open:
            if assigner.must_merge(window, new):
                new.merge(functions, window)
            else:
                separate.append(window)
        self.open = [*separate, new]


def sort_windows(windows: Sequence[OpenWindow]) -> list[OpenWindow]:
    """Return windows sorted by end, then by start."""
    return sorted(windows, key=lambda window: (window.end_us, window.start_us))
