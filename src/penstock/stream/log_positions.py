"""Finds positions in a stream: the time of receipt of an offset, and the spans with its last
messages."""

from __future__ import annotations

from collections import deque
from typing import Final

import pyarrow as pa

from penstock.errors import StoreUnavailable
from penstock.store.ranges import Ranges, subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.pushed_filters import PushedFilters

LAST_MAX: Final = 1_000_000
"""Greatest number of messages from the end; their offsets are held in memory."""

FIRST_PORTION: Final = 20_000
GROWTH: Final = 16
"""Each portion of a backward search is this many times as long as the one before."""


def receipt_time_of(client: StreamClient, log: StreamOffsets, offset: int) -> int | None:
    """Return the time of receipt of the first message at or after ``offset``, µs since the Unix
    epoch; None if there is none.

    Raises:
        PenstockError: the stream service cannot be read.
    """
    columns = ("offset", "received_at")
    for start, end in subtract_ranges(max(offset, log.earliest), log.latest, log.given_up):
        for batch in client.read(
            log.stream, log.epoch, start, end, columns=columns, on_damage=_ignore
        ):
            found: int = batch.column(1).cast(pa.int64())[0].as_py()
            return found
    return None


def _ignore(_begin: int, _end: int, _failure: StoreUnavailable) -> None:
    pass


def find_last_spans(
    client: StreamClient, log: StreamOffsets, pushed: PushedFilters, spans: Ranges, count: int
) -> Ranges:
    """Return the end of ``spans`` that has the last ``count`` messages which pass the filters.

    Args:
        client: a client of the stream service.
        log: the stream and its offsets.
        pushed: the filters.
        spans: ascending ranges of offsets that may have such messages.
        count: number of messages, at most ``LAST_MAX``.

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
    """Return the offsets of the last ``count`` messages of a span, or of all if it has fewer."""
    found: deque[int] = deque(maxlen=count)
    for batch in client.read(
        log.stream,
        log.epoch,
        *span,
        topic_filters=pushed.topics,
        columns=("offset",),
        since_us=pushed.since_us,
        until_us=pushed.until_us,
        on_damage=_ignore,  # who reads the spans learns of it, if it is between the messages
    ):
        found.extend(batch.column(0).to_pylist())
    return found
