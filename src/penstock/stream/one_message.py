"""Reads what the log has about one message: its row, its events, and the tables that store it.

The events of a message are written at least a tick after it, so the search for them begins at its
offset. The number of searched offsets and the time are limited.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.events import STREAM_NAME
from penstock.control.story import LogRow, TablePosition
from penstock.engine.values.topics import topic_matches
from penstock.stream.client import StreamClient

OFFSETS_MAX: Final = 5_000_000
"""Number of offsets behind the message that are searched for its events."""

_COLUMNS: Final = ("offset", "received_at", "client_id", "topic", "qos", "payload")
_EVENT_COLUMNS: Final = ("topic", "payload")


def find_row(client: StreamClient, offset: int) -> LogRow | None:
    """Return the message at ``offset``; None if no stream has it."""
    for stream in client.streams():
        if stream == STREAM_NAME:
            continue
        span = client.offsets(stream)
        if not span.earliest <= offset < span.latest:
            continue
        for batch in client.read(stream, span.epoch, offset, offset + 1, columns=_COLUMNS):
            for row in batch.to_pylist():
                received_at_us = round(row["received_at"].timestamp() * 1_000_000)
                return LogRow(
                    row["offset"],
                    received_at_us,
                    row["client_id"],
                    row["topic"],
                    row["qos"],
                    len(row["payload"]),
                )
    return None


def read_log_end(client: StreamClient) -> int:
    """Return the offset after the last message of the log; 0 if there is no stream."""
    return max((client.offsets(stream).latest for stream in client.streams()), default=0)


def read_events_of(
    client: StreamClient, offset: int, within_s: float
) -> list[tuple[str, dict[str, Any]]] | None:
    """Return the kind and fields of each event of the message at ``offset``, in order of time.

    Returns None if the broker writes no events. No further rows are read after ``within_s``
    seconds.
    """
    if STREAM_NAME not in client.streams():
        return None
    deadline_s = time.monotonic() + within_s
    span = client.offsets(STREAM_NAME)
    pattern = rf'"offset":{offset}[,}}]|"offsets":\[[0-9,]*\b{offset}\b'
    found: list[tuple[str, dict[str, Any]]] = []
    start = max(offset, span.earliest)
    end = min(span.latest, start + OFFSETS_MAX)
    for batch in client.read(STREAM_NAME, span.epoch, start, end, columns=_EVENT_COLUMNS):
        text = batch.column(1).cast(pa.string(), safe=False)
        for row in batch.filter(pc.match_substring_regex(text, pattern)).to_pylist():
            kind = row["topic"].rpartition("/")[2]
            found += [
                (kind, event)
                for event in json.loads(row["payload"])["events"]
                if event.get("offset") == offset or offset in event.get("offsets", ())
            ]
        if time.monotonic() > deadline_s:
            break
    found.sort(key=lambda event: event[1].get("n", 0))
    return found


def read_landings_of(client: StreamClient, topic: str) -> list[TablePosition]:
    """Return the tables that store messages of ``topic``, each with the offset it has reached."""
    return [
        TablePosition(state.table, state.offset)
        for state in client.tables()
        if not state.topics or any(topic_matches(one, topic) for one in state.topics)
    ]
