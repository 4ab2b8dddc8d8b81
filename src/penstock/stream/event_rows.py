"""The events of a broker, read from its stream ``events`` without Spark.

Each row of the stream holds some events of one kind (``engine.routing.event_log``). Rows are chosen
by the service, by kind and time; clients and offsets by the reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.config.events import STREAM_NAME
from penstock.engine.topics import EVENTS_PREFIX
from penstock.errors import ConfigError
from penstock.stream.client import StreamClient

_COLUMNS: Final = ("topic", "payload")
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
    if STREAM_NAME not in client.streams():
        raise ConfigError(
            "the broker writes no events: set events.enabled, and restart it (docs/audit.md)"
        )
    span = client.offsets(STREAM_NAME)
    filters = [EVENTS_PREFIX + kind for kind in kinds]
    within = (span.earliest, span.latest)
    written_us = until_us + _WRITTEN_WITHIN_US
    ranges = client.received_between(STREAM_NAME, span.epoch, within, since_us, written_us)
    for start, end in ranges:
        for batch in client.read(
            STREAM_NAME, span.epoch, start, end, topic_filters=filters, columns=_COLUMNS
        ):
            yield from _events_in(batch, since_us, until_us)


def _events_in(batch: pa.RecordBatch, since_us: int, until_us: int) -> Iterator[EventRow]:
    for row in batch.to_pylist():
        kind = row["topic"].removeprefix(EVENTS_PREFIX)
        for fields in json.loads(row["payload"])["events"]:
            at_us = fields.get("at", 0)
            if since_us <= at_us < until_us:
                yield EventRow(kind, at_us, str(fields.get("client", "")), fields)
