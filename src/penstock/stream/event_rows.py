"""Reads the events of a broker from its stream ``events``, without Spark.

Each row of the stream has some events of one kind (``engine.routing.event_log``). The service
filters rows by kind and time; this module filters events by client and position.

``read_events`` reads forward over all events. ``newest_events`` reads backward until it has enough:
it reads pieces of the log, the last piece first, each from its start, and keeps no more events of a
piece than the caller wants::

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
from penstock.engine.values.event_kinds import KINDS
from penstock.engine.values.name_patterns import NamePattern
from penstock.engine.values.topics import EVENTS_PREFIX
from penstock.errors import ConfigError
from penstock.store.ranges import Ranges, subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets

_COLUMNS: Final = ("topic", "payload", "offset")
PIECE_OFFSETS_MIN: Final = 256
PIECE_OFFSETS_MAX: Final = 262_144
ROWS_ENOUGH: Final = 512
"""After a piece of the log with more rows than this the next piece is smaller."""

Position = tuple[int, int]
"""The offset of a row, and the number of an event in it."""

_WRITTEN_WITHIN_US: Final = 60_000_000  # an event is in the log this long after it, at the latest


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event.

    Attributes:
        kind: the kind of event, as in docs/audit.md.
        at_us: time of the event, µs since the Unix epoch.
        client: identifier of the client that the event is about; empty for none.
        fields: all fields of the event, as they are in the stream.
    """

    kind: str
    at_us: int
    client: str
    fields: dict[str, Any]

    @property
    def entry(self) -> dict[str, Any]:
        """The event as one object with its kind and its fields.

        A field ``kind`` (of an event about a ban) is renamed to ``ban_kind``, so that it does not
        replace the kind of the event.
        """
        fields = dict(self.fields)
        if "kind" in fields:
            fields["ban_kind"] = fields.pop("kind")
        return {"kind": self.kind, **fields}


def read_events(
    client: StreamClient, kinds: Sequence[str], since_us: int, until_us: int
) -> Iterator[EventRow]:
    """Yield the events that happened at ``since_us`` or later and before ``until_us``.

    They are in the order of the log; events of one tick are ordered by kind.

    Args:
        client: a client of the stream service.
        kinds: only events of these kinds; empty for all.
        since_us: start of the time span, µs since the Unix epoch.
        until_us: end of the time span, excluded, µs since the Unix epoch.

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
    for _, event in _events_with_positions(batch, since_us, until_us):
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
    """Return the newest events, newest first, and the position before which to continue.

    The position is None if there are no more events. With a position, fewer than ``limit`` events
    may be returned, because the time of one call is limited.

    Args:
        client: a client of the stream service.
        kinds: only events of these kinds; empty for all.
        who: pattern of the client identifier; None for all events, with or without a client.
        within_us: start and end (excluded) of the time span, µs since the Unix epoch.
        before: only events before this position in the log; None for all.
        limit: greatest number of events to return.
        patience_s: seconds after which no further piece of the log is read.

    Raises:
        ValueError: ``kinds`` has an unknown kind, or the pattern is malformed.
        ConfigError: the broker writes no events.
    """
    pattern = None if who is None else NamePattern(who)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no kind of event: they are {', '.join(KINDS)}")
    _refuse_without_events(client)
    deadline_s = time.monotonic() + patience_s
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
        newest: deque[tuple[Position, EventRow]] = deque(maxlen=limit - len(found))
        for batch in client.read(
            STREAM_NAME, span.epoch, begin, end, topic_filters=filters, columns=_COLUMNS
        ):
            rows += batch.num_rows
            for position, event in _events_with_positions(batch, since_us, until_us):
                if before is not None and position >= before:
                    break
                if pattern is None or pattern.matches(event.client):
                    newest.append((position, event))
        found += [event for _, event in reversed(newest)]
        if len(found) >= limit:
            return found, newest[0][0]
        size = size // 2 if rows > ROWS_ENOUGH else size * 2
        size = min(max(size, PIECE_OFFSETS_MIN), PIECE_OFFSETS_MAX)
        if time.monotonic() > deadline_s and ranges:
            return found, (begin, 0)
    return found, None


def _ranges(
    client: StreamClient, span: StreamOffsets, last: int, since_us: int, until_us: int
) -> Ranges:
    """Return the ranges of offsets before ``last`` that may have events of a time span, without
    lost offsets."""
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


def _events_with_positions(
    batch: pa.RecordBatch, since_us: int, until_us: int
) -> Iterator[tuple[Position, EventRow]]:
    for row in batch.to_pylist():
        kind = row["topic"].removeprefix(EVENTS_PREFIX)
        for number, fields in enumerate(json.loads(row["payload"])["events"]):
            at_us = fields.get("at", 0)
            if since_us <= at_us < until_us:
                event = EventRow(kind, at_us, str(fields.get("client", "")), fields)
                yield (row["offset"], number), event
