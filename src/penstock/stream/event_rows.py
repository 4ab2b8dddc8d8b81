"""The events of a broker, read from its stream ``events`` without Spark.

Each row of the stream holds some events of one kind (``engine.routing.event_log``). Rows are chosen
by the service, by kind and time; clients and offsets by the reader.

``read_events`` goes forward over all of them; ``newest_events`` goes back, and stops when it has
enough. It reads pieces of the log from their beginnings, the last piece first, and keeps of each no
more events than are asked for::

      ◀──────────── pieces, larger while they have few rows ───────────┤ cursor
      │ . . e . . . . │ e . . e . . . . . . e │ . e . │ e . │ e │
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.config.events import STREAM_NAME
from penstock.engine.name_patterns import NamePattern
from penstock.engine.reporting.events import KINDS
from penstock.engine.topics import EVENTS_PREFIX
from penstock.errors import ConfigError
from penstock.store.ranges import Ranges, subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets

_COLUMNS: Final = ("topic", "payload", "offset")
PIECE_OFFSETS_MIN: Final = 256
PIECE_OFFSETS_MAX: Final = 262_144
ROWS_ENOUGH: Final = 512
"""A piece of the log that has more rows is followed by a smaller one."""

Position = tuple[int, int]
"""The offset of a row, and the number of an event in it."""

_WRITTEN_WITHIN_US: Final = 60_000_000  # events that happened are written with the next tick


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event.

    Attributes:
        kind: its kind, as in docs/audit.md.
        at_us: when it happened, µs since the Unix epoch.
        client: the client that it concerns; empty: none.
        fields: all its fields, as they are in the stream.
    """

    kind: str
    at_us: int
    client: str
    fields: dict[str, Any]

    @property
    def entry(self) -> dict[str, Any]:
        """The event as one object: its kind, and its fields. The ``kind`` of what is banned is
        ``ban_kind``, so that nothing hides what the event is."""
        fields = dict(self.fields)
        if "kind" in fields:
            fields["ban_kind"] = fields.pop("kind")
        return {"kind": self.kind, **fields}


def read_events(
    client: StreamClient, kinds: Sequence[str], since_us: int, until_us: int
) -> Iterator[EventRow]:
    """Yield the events that happened from ``since_us`` on, and before ``until_us``.

    In the order in which they were written: events of one tick are in the order of their kinds.

    Args:
        client: the stream service.
        kinds: only these; none: all.
        since_us: µs since the Unix epoch.
        until_us: the same.

    Raises:
        ConfigError: the broker writes no events.
    """
    _refuse_without_events(client)
    span = client.offsets(STREAM_NAME)
    filters = [EVENTS_PREFIX + kind for kind in kinds]
    for start, end in _ranges(client, span, span.latest, since_us, until_us):
        for batch in client.read(
            STREAM_NAME, span.epoch, start, end, topic_filters=filters, columns=_COLUMNS
        ):
            yield from _events_in(batch, since_us, until_us)


def _events_in(batch: pa.RecordBatch, since_us: int, until_us: int) -> Iterator[EventRow]:
    for _, event in _placed_events(batch, since_us, until_us):
        yield event


def newest_events(
    client: StreamClient,
    kinds: Sequence[str],
    who: str | None,
    within_us: tuple[int, int],
    before: Position | None,
    limit: int,
    patience_s: float,
) -> tuple[list[EventRow], Position | None]:
    """Return the last events, the newest first, and where to go on; None where there are no more.

    There may be fewer than ``limit``, and still more to come.

    Args:
        client: the stream service.
        kinds: only these; none: all.
        who: pattern of the client identifier; None: any, and events of no client.
        within_us: when they happened, µs since the Unix epoch, the end excluded.
        before: only events in front of this place in the log; None: all.
        limit: how many, at most.
        patience_s: how long it may take, and one more piece of the log, seconds.

    Raises:
        ValueError: there is no such kind, or the pattern cannot be used.
        ConfigError: the broker writes no events.
    """
    pattern = None if who is None else NamePattern(who)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no kind of event: they are {', '.join(KINDS)}")
    _refuse_without_events(client)
    ends_s = time.monotonic() + patience_s
    span = client.offsets(STREAM_NAME)
    last = span.latest if before is None else min(span.latest, before[0] + 1)
    since_us, until_us = within_us
    ranges = _ranges(client, span, last, since_us, until_us)
    filters = [EVENTS_PREFIX + kind for kind in kinds]
    found: list[EventRow] = []
    size = PIECE_OFFSETS_MIN
    while ranges:
        start, end = ranges.pop()
        begin = max(start, end - size)
        if begin > start:
            ranges.append((start, begin))
        rows = 0
        kept: deque[tuple[Position, EventRow]] = deque(maxlen=limit - len(found))
        for batch in client.read(
            STREAM_NAME, span.epoch, begin, end, topic_filters=filters, columns=_COLUMNS
        ):
            rows += batch.num_rows
            for position, event in _placed_events(batch, since_us, until_us):
                if before is not None and position >= before:
                    break
                if pattern is None or pattern.matches(event.client):
                    kept.append((position, event))
        found += [event for _, event in reversed(kept)]
        if len(found) >= limit:
            return found, kept[0][0]
        size = size // 2 if rows > ROWS_ENOUGH else size * 2
        size = min(max(size, PIECE_OFFSETS_MIN), PIECE_OFFSETS_MAX)
        if time.monotonic() > ends_s and ranges:
            return found, (begin, 0)
    return found, None


def _ranges(
    client: StreamClient, span: StreamOffsets, last: int, since_us: int, until_us: int
) -> Ranges:
    """Return the parts of the log before the offset ``last`` that may have events of this time, and
    nothing that is lost."""
    if last <= span.earliest:
        return []
    within = (span.earliest, last)
    written_us = until_us + _WRITTEN_WITHIN_US
    found = client.received_between(STREAM_NAME, span.epoch, within, since_us, written_us)
    return [part for one in found for part in subtract_ranges(*one, span.given_up)]


def _refuse_without_events(client: StreamClient) -> None:
    if STREAM_NAME not in client.streams():
        raise ConfigError(
            "the broker writes no events: set events.enabled, and restart it (docs/audit.md)"
        )


def _placed_events(
    batch: pa.RecordBatch, since_us: int, until_us: int
) -> Iterator[tuple[Position, EventRow]]:
    for row in batch.to_pylist():
        kind = row["topic"].removeprefix(EVENTS_PREFIX)
        for number, fields in enumerate(json.loads(row["payload"])["events"]):
            at_us = fields.get("at", 0)
            if since_us <= at_us < until_us:
                event = EventRow(kind, at_us, str(fields.get("client", "")), fields)
                yield (row["offset"], number), event
