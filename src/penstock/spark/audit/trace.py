"""Lists the events of one message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One event of a message, with its other fields in words."""

    epoch: str
    at: datetime
    kind: str
    client: str | None
    details: str


def trace(events: DataFrame, offset: int) -> list[TraceStep]:
    """Return the events of the messages at `offset`, in order of epoch and time.

    If the events are of several epochs, each epoch may have a message at this offset.
    """
    rows = (
        events.where((F.col("offset") == offset) | F.array_contains("offsets", offset))
        .orderBy("epoch", "at", "n")
        .collect()
    )
    return [
        TraceStep(row.epoch, row["at"].astimezone(UTC), row.kind, row.client, _details(row))
        for row in rows
    ]


def _details(row: object) -> str:
    named = (
        ("topic", "topic {}"),
        ("qos", "QoS {}"),
        ("bytes", "{} bytes"),
        ("sessions", "for {} sessions"),
        ("queue", "as the last of {} waiting"),
        ("reason", "{}"),
    )
    found = [(text, getattr(row, name)) for name, text in named]
    return ", ".join(text.format(value) for text, value in found if value is not None)
