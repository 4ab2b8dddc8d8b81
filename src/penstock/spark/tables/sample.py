"""Reads the latest messages of the log, on which declarations are tested."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from penstock.stream.client import StreamClient
from penstock.stream.rows import STREAM_SCHEMA

STEP_MIN: Final = 1000
"""Offsets of the first step back from the end of the log; each next step is ten times longer."""

BYTES_MAX: Final = 256 * 2**20
"""About the most bytes of a sample; of large messages it has fewer than requested."""


def newest_messages(
    client: StreamClient,
    stream: str,
    topic_filter: str,
    count: int,
    on_found: Callable[[int], None] = lambda _count: None,
) -> pa.Table:
    """Return the last `count` messages of a stream that match a filter, in order of offset.

    Args:
        client: a client of the stream service.
        stream: name of the stream.
        topic_filter: an MQTT topic filter.
        count: the number of messages.
        on_found: called with the number of messages found so far.

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
        on_found(found.num_rows)
        end, step = start, step * 10
    return found


def _last(batches: Iterable[pa.RecordBatch], count: int) -> pa.Table:
    """Return the last `count` rows of batches, and keep no more batches in memory than needed."""
    recent: deque[pa.RecordBatch] = deque()
    rows = size_bytes = 0
    for batch in batches:
        recent.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        while len(recent) > 1 and (rows - recent[0].num_rows >= count or size_bytes > BYTES_MAX):
            first = recent.popleft()
            rows -= first.num_rows
            size_bytes -= first.nbytes
    found = pa.Table.from_batches(recent, STREAM_SCHEMA)
    return found.slice(max(0, found.num_rows - count))
