"""An index of the times at which parts of the log were received, to skip parts in a search by time.

    offsets     0 ──────── 16,000 ─────── 32,000 ─────── 48,000 ── end
    received    9:00-9:20    9:20-9:45      8:45-9:10      not looked at yet
                                              └ the clock was set back

Dates mostly grow with offsets, but not always: the broker's clock may be set back, and a QoS 2
message is in the log when it is released, however long after it was received. So a binary search
(`penstock.store.time_search`) finds a place to begin, and not all messages of a time. Here the
oldest and the newest message of each part are known, and only parts that cannot have any are left
out.

To know them the log is read once, at the first question, and its new messages at each later one.
The index is in memory, and made anew after a restart.
"""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.stream import StreamDefinition
from penstock.store.ranges import Ranges, join_ranges, without
from penstock.store.secondary import ROWS_MAX, Extent, LogFollower

PARTS_MAX: Final = 100_000
"""Most parts into which a log is divided; beyond that neighbours are joined."""

_NEVER: Final = 2**63 - 1


class _Part(NamedTuple):
    """Offsets `begin` up to and without `end`, received from `oldest` to `newest`, µs."""

    begin: int
    end: int
    oldest: int = _NEVER
    newest: int = -1

    def with_(self, later: _Part) -> _Part:
        """Return both parts as one."""
        oldest, newest = min(self.oldest, later.oldest), max(self.newest, later.newest)
        return _Part(self.begin, later.end, oldest, newest)


class TimeIndex:
    """The times of receipt of a stream's messages, part by part. Threads wait for each other.

    Args:
        log: the log with the messages.
        stream: the stream; its archive counts, too.
    """

    def __init__(self, log: LogFollower, stream: StreamDefinition) -> None:
        self._log = log
        self._stream = stream
        self._lock = threading.Lock()
        self._epoch = ""
        self._parts: list[_Part] = []

    def ranges(
        self, extent: Extent, span: tuple[int, int], since_us: int, until_us: int, ends_s: float
    ) -> Ranges | None:
        """Return the offsets of `span` that may have messages received from one time up to another.

        Args:
            extent: extent of the stream.
            span: offsets, from the first up to and without the second.
            since_us: µs since the Unix epoch.
            until_us: the same, excluded.
            ends_s: time at which to give up, of the monotonic clock.

        Returns:
            None where the time was over before all was read: ask again.

        Raises:
            OffsetOutOfRange: retention has removed rows meanwhile.
            StoreFailed: they cannot be read.
        """
        with self._lock:
            if not self._read(extent, ends_s):
                return None
            others = join_ranges(
                (part.begin, part.end)
                for part in self._parts
                if part.newest < since_us or until_us <= part.oldest
            )
        return without(*span, others)

    def _read(self, extent: Extent, ends_s: float) -> bool:
        """Index new messages of the log; return False if the time limit ended that early."""
        if self._epoch != extent.epoch:
            self._epoch, self._parts = extent.epoch, []
        self._parts = [part for part in self._parts if part.end > extent.earliest]
        position = self._parts[-1].end if self._parts else extent.earliest
        for begin, end in without(position, extent.end, extent.given_up):
            for rows in self._log.rows(begin, end, self._stream):
                self._add(_part(rows.begin, rows.end, rows.batch))
                if time.monotonic() > ends_s:
                    return rows.end == extent.end
        return True

    def _add(self, part: _Part) -> None:
        last = self._parts[-1] if self._parts else None
        assert last is None or last.end <= part.begin, "the parts of a log ascend"
        if last is not None and last.end == part.begin and part.end - last.begin <= ROWS_MAX:
            self._parts[-1] = last.with_(part)
            return
        self._parts.append(part)
        if len(self._parts) > PARTS_MAX:
            self._parts = _halved(self._parts)


def _part(begin: int, end: int, batch: pa.RecordBatch) -> _Part:
    """Return the span and times of some rows, without the internal ones."""
    received = batch.column("received_at").filter(pc.invert(batch.column("internal")))
    found = pc.min_max(received).as_py()
    if found["min"] is None:
        return _Part(begin, end)
    return _Part(begin, end, found["min"], found["max"])


def _halved(parts: list[_Part]) -> list[_Part]:
    """Return the parts with adjacent ones joined in pairs; a part next to a gap may stay alone."""
    halved: list[_Part] = []
    is_whole = True
    for part in parts:
        if not is_whole and halved[-1].end == part.begin:
            halved[-1], is_whole = halved[-1].with_(part), True
        else:
            halved.append(part)
            is_whole = False
    return halved
