"""Search by time: find the first offset in the log that was received at or after a time.

Messages stand in the order in which they came, so the time of receipt grows with the offset, and a
binary search over chunks finds the place; each step reads one of them. The answer is the first
offset that was received at or after the time.

Except where the broker's clock was set back. Then the log passes such a time more than once, and
the answer is one of the places where it does: a message received at or after the time, behind one
received before it. The log is not searched for the first of them, which would mean to read it all.
"""

from __future__ import annotations

from typing import cast

import pyarrow.compute as pc

from penstock.config.stream import StreamDefinition
from penstock.store.ranges import without
from penstock.store.secondary import Extent, LogFollower


def first_received_at(
    log: LogFollower, extent: Extent, received_at_us: int, stream: StreamDefinition
) -> int | None:
    """Return the first offset of `extent` received at or after a time; None where there is none.

    Args:
        log: the log that is searched.
        extent: extent of the stream.
        received_at_us: the time, µs since the Unix epoch.
        stream: the stream whose archive is searched, too.

    Raises:
        OffsetOutOfRange: retention has removed rows of the extent meanwhile.
        StoreFailed: they cannot be read.
    """
    for begin, end in without(extent.earliest, extent.end, extent.given_up):
        found = _search(log, begin, end, received_at_us, stream)
        if found is not None:
            return found
    return None


def _search(
    log: LogFollower, begin: int, end: int, received_at_us: int, stream: StreamDefinition
) -> int | None:
    found: int | None = None  # the answer, unless one is between `begin` and `end`
    while begin < end:
        middle = (begin + end) // 2
        rows = next((rows for rows in log.rows(middle, end, stream) if rows.batch.num_rows), None)
        if rows is None:  # an archive has no messages there
            end = middle
            continue
        is_later = pc.greater_equal(rows.batch.column("received_at"), received_at_us)
        first = cast(int, pc.index(is_later, True).as_py())
        if first > 0:
            return cast(int, rows.offsets[first].as_py())
        if first == 0:
            found, end = cast(int, rows.offsets[0].as_py()), middle
        else:
            begin = rows.end
    return found
