"""An index of the times at which parts of the log were received, to skip parts in a search by time.

    offsets     0 ──────── 16,000 ─────── 32,000 ─────── 48,000 ── end
    received    9:00-9:20    9:20-9:45      8:45-9:10      not indexed yet
                                              └ the clock was set back

Times of receipt mostly grow with offsets, but not always: the broker's clock may be set back, and a
QoS 2 message is added to the log when it is released, which may be long after it was received. So a
binary search (`penstock.store.time_search`) finds one offset of a time, and not all messages of it.
This index has the oldest and the newest time of each part, and a search skips only parts that
cannot have a message of the given times.

Of a part that a damaged block hides the times are taken to be between those of its neighbours.

The first query reads the whole log, and each later query the messages added since. The index is in
memory, and is built again after a restart.
"""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.stream import StreamDefinition
from penstock.store.ranges import Ranges, join_ranges, subtract_ranges
from penstock.store.secondary import ROWS_MAX, Extent, LogFollower

PARTS_MAX: Final = 100_000
"""Greatest number of parts in an index; beyond it adjacent parts are joined in pairs."""

_NEVER: Final = 2**63 - 1


class _Part(NamedTuple):
    """A part: offsets from `begin` up to `end`, excluded, received from `oldest` to `newest`, µs
    since the Unix epoch."""

    begin: int
    end: int
    oldest: int = _NEVER
    newest: int = -1

    def join(self, later: _Part) -> _Part:
        """Return this part and the adjacent ``later`` one as one part."""
        oldest, newest = min(self.oldest, later.oldest), max(self.newest, later.newest)
        return _Part(self.begin, later.end, oldest, newest)


class TimeIndex:
    """The times of receipt of a stream's messages, part by part. Safe from any thread.

    Args:
        log: the log with the messages.
        stream: the stream; its archive is indexed, too.
    """

    def __init__(self, log: LogFollower, stream: StreamDefinition) -> None:
        self._log = log
        self._stream = stream
        self._lock = threading.Lock()
        self._epoch = ""
        self._parts: list[_Part] = []

    def possible_ranges(
        self, extent: Extent, span: tuple[int, int], since_us: int, until_us: int, deadline_s: float
    ) -> Ranges | None:
        """Return the ranges of `span` that may have messages received from one time up to another.

        Args:
            extent: extent of the stream.
            span: range of offsets: first and end, excluded.
            since_us: earliest time of receipt, µs since the Unix epoch.
            until_us: end of the times of receipt, excluded, µs since the Unix epoch.
            deadline_s: time at which to stop indexing, of the monotonic clock.

        Returns:
            The ranges; None if new messages were not all indexed by the deadline. A further call
            continues where this one stopped.

        Raises:
            OffsetOutOfRange: retention has removed rows meanwhile.
            StoreUnavailable: rows cannot be read.
        """
        with self._lock:
            if not self._index_new_messages(extent, deadline_s):
                return None
            excluded = join_ranges(
                (part.begin, part.end)
                for part in self._parts
                if part.newest < since_us or until_us <= part.oldest
            )
        return subtract_ranges(*span, excluded)

    def _index_new_messages(self, extent: Extent, deadline_s: float) -> bool:
        """Index the new messages of the log; return False if the deadline passed before the end."""
        if self._epoch != extent.epoch:
            self._epoch, self._parts = extent.epoch, []
        self._parts = [part for part in self._parts if part.end > extent.earliest]
        position = self._parts[-1].end if self._parts else extent.earliest
        for begin, end in subtract_ranges(position, extent.end, extent.given_up):
            for rows in self._log.rows_around(begin, end, self._stream):
                self._add(_part(rows.begin, rows.end, rows.batch))
                if time.monotonic() > deadline_s:
                    return rows.end == extent.end
        return True

    def _add(self, part: _Part) -> None:
        last = self._parts[-1] if self._parts else None
        assert last is None or last.end <= part.begin, "the parts of a log ascend"
        if last is not None and last.end == part.begin and part.end - last.begin <= ROWS_MAX:
            self._parts[-1] = last.join(part)
            return
        if last is not None and last.end < part.begin:
            self._parts.append(_between(last, part))  # apart from both: readers can leave it out
        self._parts.append(part)
        if len(self._parts) > PARTS_MAX:
            self._parts = _join_pairs(self._parts)


def _between(earlier: _Part, later: _Part) -> _Part:
    """Return the part between two, which cannot be read: its times are taken to be between
    theirs."""
    times = earlier.newest, later.oldest
    return _Part(earlier.end, later.begin, min(times), max(times))


def _part(begin: int, end: int, batch: pa.RecordBatch) -> _Part:
    """Return the part with the offsets from `begin` up to `end`; internal rows do not count."""
    received = batch.column("received_at").filter(pc.invert(batch.column("internal")))
    found = pc.min_max(received).as_py()
    if found["min"] is None:
        return _Part(begin, end)
    return _Part(begin, end, found["min"], found["max"])


def _join_pairs(parts: list[_Part]) -> list[_Part]:
    """Return the parts with adjacent parts joined in pairs; a part next to a gap may stay alone."""
    halved: list[_Part] = []
    is_whole = True
    for part in parts:
        if not is_whole and halved[-1].end == part.begin:
            halved[-1], is_whole = halved[-1].join(part), True
        else:
            halved.append(part)
            is_whole = False
    return halved
