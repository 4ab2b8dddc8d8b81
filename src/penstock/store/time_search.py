"""Search by time: finds the first offset in the log that was received at or after a time.

The log is ordered by offset, and the time of receipt normally grows with the offset. So a binary
search over chunks finds the first message received at or after the time; each step reads one chunk.

Where the broker's clock was set back, the log may pass the time more than once. The search then
returns one of these offsets: a message received at or after the time, behind one received before
it. Finding the first of them would require reading the whole log.
"""

from __future__ import annotations

from typing import cast

import pyarrow.compute as pc

from penstock.config.stream import StreamDefinition
from penstock.store.ranges import subtract_ranges
from penstock.store.secondary import Extent, LogFollower


def first_received_at(
    log: LogFollower, extent: Extent, received_at_us: int, stream: StreamDefinition
) -> int | None:
    """Return the first offset of `extent` received at or after a time; None if there is none.

    If the broker's clock was set back, it is one of several such offsets; see the module's text.

    Args:
        log: the log to search.
        extent: extent of the stream.
        received_at_us: the time, µs since the Unix epoch.
        stream: the stream, whose archive is searched, too.

    Raises:
        OffsetOutOfRange: retention has removed rows of the extent meanwhile.
        StoreUnavailable: rows cannot be read.
    """
    for begin, end in subtract_ranges(extent.earliest, extent.end, extent.given_up):
        found = _search(log, begin, end, received_at_us, stream)
        if found is not None:
            return found
    return None


def _search(
    log: LogFollower, begin: int, end: int, received_at_us: int, stream: StreamDefinition
) -> int | None:
    found: int | None = None  # the result, unless a lower offset is between `begin` and `end`
    while begin < end:
        middle = (begin + end) // 2
        rows = next(
            (rows for rows in log.rows_around(middle, end, stream) if rows.batch.num_rows), None
        )
        if rows is None:  # the archive has no messages from `middle` on
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
