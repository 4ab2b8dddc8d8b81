"""Positions in a stream: the time of an offset, and the spans that have its last messages."""

from __future__ import annotations

from collections import deque
from typing import Final

import pyarrow as pa

from penstock.store.ranges import Ranges, subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.pushed_filters import PushedFilters

LAST_MAX: Final = 1_000_000
"""Most messages that may be asked for from the end; their offsets are in memory."""

FIRST_PORTION: Final = 20_000
GROWTH: Final = 16
"""Each look back from the end of the log is so many times as wide as the one before."""


def time_of(client: StreamClient, log: StreamOffsets, offset: int) -> int | None:
    """Return when the first message at or after ``offset`` was received, µs since the Unix epoch.

    Returns None where there is none.

    Raises:
        PenstockError: the stream service cannot be read.
    """
    columns = ("offset", "received_at")
    for start, end in subtract_ranges(max(offset, log.earliest), log.latest, log.given_up):
        for batch in client.read(log.stream, log.epoch, start, end, columns=columns):
            found: int = batch.column(1).cast(pa.int64())[0].as_py()
            return found
    return None


def spans_of_last(
    client: StreamClient, log: StreamOffsets, pushed: PushedFilters, spans: Ranges, count: int
) -> Ranges:
    """Return the spans that begin with the last ``count`` messages of ``spans``.

    Args:
        client: reaches the stream service.
        log: the stream.
        pushed: the filters of the messages.
        spans: the parts of the log that may have them, ascending.
        count: how many messages, at most ``LAST_MAX``.

    Raises:
        PenstockError: the stream service cannot be read.
    """
    assert count <= LAST_MAX, "the offsets of the last messages are in memory"
    left, portion = count, FIRST_PORTION
    kept: Ranges = []
    for start, end in reversed(spans):
        at = end
        while at > start:
            begin = max(start, at - portion)
            offsets = _last_offsets(client, log, pushed, (begin, at), left)
            if len(offsets) == left:
                return [(offsets[0], end), *kept]
            left -= len(offsets)
            at, portion = begin, portion * GROWTH
        kept.insert(0, (start, end))
    return kept


def _last_offsets(
    client: StreamClient,
    log: StreamOffsets,
    pushed: PushedFilters,
    span: tuple[int, int],
    count: int,
) -> deque[int]:
    """Return the last ``count`` offsets of a span, or all if it has fewer."""
    found: deque[int] = deque(maxlen=count)
    for batch in client.read(
        log.stream,
        log.epoch,
        *span,
        topic_filters=pushed.topics,
        columns=("offset",),
        since_us=pushed.since_us,
        until_us=pushed.until_us,
    ):
        found.extend(batch.column(0).to_pylist())
    return found
