"""Reads the broker's events from its stream service as they are written.

::

      rows of the stream "events" ── the rows of one tick ─▶ events in the order of their numbers

A tick of the broker writes a row for each kind of event, so that the order of rows is not that of
events. Reading begins with the events after the first ``refresh``: earlier events are in no trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final, final

from penstock.config.events import STREAM_NAME
from penstock.engine.values.topics import EVENTS_PREFIX
from penstock.errors import EpochMismatch, OffsetOutOfRange, PenstockError
from penstock.stream.client import StreamClient, StreamUnavailable

KINDS: Final = (
    "received",
    "committed",
    "queued",
    "sent",
    "resent",
    "acknowledged",
    "completed",
    "bridged",
    "moved",
    "dropped",
    "expired",
)
"""The kinds of events that are read."""

_COLUMNS: Final = ("received_at", "topic", "payload", "offset")
_FILTERS: Final = [EVENTS_PREFIX + kind for kind in KINDS]

NumberedEvent = tuple[str, dict[str, Any]]
"""The kind of an event, and its fields."""


@final
class EventFeed:
    """Reads the events of one broker.

    Args:
        client: the client of the broker's stream service.

    Attributes:
        epoch: the epoch of the log; empty before the first ``refresh``.
        missed: the number of times that events had left the log before they were read.
    """

    def __init__(self, client: StreamClient) -> None:
        self.epoch = ""
        self.missed = 0
        self._client = client
        self._next = 0
        self._earliest = 0
        self._latest = 0

    def refresh(self) -> bool:
        """Read the first and last offset of the log; return whether its epoch is another than
        before.

        Raises:
            PenstockError: the service does not answer, or refuses the request.
        """
        span = self._client.offsets(STREAM_NAME)
        self._earliest, self._latest = span.earliest, span.latest
        if span.epoch == self.epoch:
            return False
        self.epoch = span.epoch
        self._next = span.latest
        return True

    def read(self) -> Iterator[NumberedEvent]:
        """Yield the events that were written until the last ``refresh`` and not read before.

        Raises:
            PenstockError: the service does not answer, or refuses the request.
        """
        if self._latest <= self._next:
            return
        if self._next < self._earliest:
            self.missed += 1
            self._next = self._earliest
        end = self._latest
        try:
            for _, tick in groupby(self._rows(self._next, end), key=_received_at):
                rows = list(tick)
                yield from _in_order(rows)
                self._next = rows[-1]["offset"] + 1
        except StreamUnavailable:  # the next call continues
            raise
        except (EpochMismatch, OffsetOutOfRange):  # retention has removed them
            self.missed += 1
        except PenstockError:
            self.missed += 1
            self._next = end
            raise
        self._next = end

    def _rows(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        for batch in self._client.read(
            STREAM_NAME, self.epoch, start, end, topic_filters=_FILTERS, columns=_COLUMNS
        ):
            yield from batch.to_pylist()


def _received_at(row: dict[str, Any]) -> object:
    return row["received_at"]


def _in_order(rows: list[dict[str, Any]]) -> Iterator[NumberedEvent]:
    found: list[NumberedEvent] = []
    for row in rows:
        kind = row["topic"].removeprefix(EVENTS_PREFIX)
        found += [(kind, fields) for fields in json.loads(row["payload"])["events"]]
    found.sort(key=_number)
    yield from found


def _number(event: NumberedEvent) -> int:
    return int(event[1].get("n", 0))
