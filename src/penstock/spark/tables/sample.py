"""Reads the latest messages of the log, to try declarations on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from penstock.stream.client import StreamClient
from penstock.stream.rows import STREAM_SCHEMA

STEP_MIN: Final = 1000
"""Offsets of the first step back from the end of the log; each further one is ten times longer."""

BYTES_MAX: Final = 256 * 2**20
"""Approximate limit of the bytes of messages; with larger ones there are fewer than asked for."""


def newest(
    client: StreamClient,
    stream: str,
    topic_filter: str,
    count: int,
    note: Callable[[int], None] = lambda _count: None,
) -> pa.Table:
    """Return the last `count` messages of a stream that match a filter, in order of offset.

    Args:
        client: reaches the stream service.
        stream: name of the stream.
        topic_filter: an MQTT topic filter.
        count: the number of messages.
        note: called with the number found so far.

    Raises:
        PenstockError: the stream service cannot be read.
    """
    log = client.offsets(stream)
    found = STREAM_SCHEMA.empty_table()
    end, step = log.latest, max(STEP_MIN, count)
    while found.num_rows < count and found.nbytes < BYTES_MAX // 2 and end > log.earliest:
        start = max(log.earliest, end - step)
        batches = client.read(stream, log.epoch, start, end, topic_filters=[topic_filter])
        last = _last(batches, count - found.num_rows)
        found = pa.concat_tables([last, found])
        note(found.num_rows)
        end, step = start, step * 10
    return found


def _last(batches: Iterable[pa.RecordBatch], count: int) -> pa.Table:
    """Return the last rows of batches, keeping no more than needed on the way."""
    kept: deque[pa.RecordBatch] = deque()
    rows = size_bytes = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        while len(kept) > 1 and (rows - kept[0].num_rows >= count or size_bytes > BYTES_MAX):
            first = kept.popleft()
            rows -= first.num_rows
            size_bytes -= first.nbytes
    found = pa.Table.from_batches(kept, STREAM_SCHEMA)
    return found.slice(max(0, found.num_rows - count))
