"""The stream service's actions for tables: finds messages whose publishers asked for a receipt.

The broker sends the receipts. In the action "landed" a job reports that its table has all messages
before offset E::

    ask the broker up to which offset T the table's receipts are published
    repeat: read rows T to U, U ≤ E, of the table's topics; pass the offsets of those that ask for
      a receipt, at most OFFSETS_MAX, to the broker, which publishes the receipts; T becomes U
    until T = E, or the time of one call is over; the answer is T

Messages that a damaged block of the log hides have landed in no table, and get no receipt.

A search in the property bytes of a whole batch finds candidates; only their properties are parsed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.auth.tokens import Grant
from penstock.config.stream import StreamDefinition
from penstock.control.landed_requests import (
    OFFSETS_MAX,
    RECEIPT,
    ForgetTable,
    ListTables,
    ReceiptPosition,
    ReportProgress,
    TableState,
    asks_for_receipt,
)
from penstock.engine.values.topics import filter_covers
from penstock.protocol.properties import parse_properties
from penstock.store.ranges import subtract_ranges
from penstock.store.secondary import Extent, LogFollower
from penstock.store.selection import TopicSelector
from penstock.stream.reader_actions import Action, ask_broker, check_history, read_request
from penstock.stream.requests import Refusal, RequestError

CALL_S_MAX: Final = 2.0
"""Seconds after which a call is answered, whether or not it has reached the end."""

DESCRIPTIONS: Final = (
    ("landed", "report up to which offset a table has its messages, as JSON"),
    ("tables", "tables and how far they are behind, as JSON"),
    ("forget", "forget a table"),
)


class LandedActions:
    """The actions landed, tables and forget.

    Args:
        data_dir: the broker's data directory.
        log: the log with the messages.
        stream: returns a stream by its name; raises RequestError if there is none.
    """

    def __init__(
        self, data_dir: Path, log: LogFollower, stream: Callable[[str], StreamDefinition]
    ) -> None:
        self._data_dir = data_dir
        self._log = log
        self._stream = stream
        self.actions: Mapping[str, Action] = {
            "landed": self._landed,
            "tables": self._tables,
            "forget": self._forget,
        }

    def _landed(self, fields: dict[str, Any], grant: Grant) -> object:
        deadline_s = time.monotonic() + CALL_S_MAX
        request = read_request(fields, ReportProgress, grant)
        _check_topics(request.topics, grant)
        request = msgspec.structs.replace(
            request, until=None, asking=()
        )  # the service fills them in
        stream = self._stream(request.stream)
        extent = self._log.extent(stream)
        check_history(self._log, request.epoch, request.end, request.mark, refuses_ahead=False)
        selector = TopicSelector([stream.topic_filters, request.topics])
        position = ask_broker(self._data_dir, request, ReceiptPosition)
        while position.offset < min(request.end, extent.end) and time.monotonic() < deadline_s:
            asking, until = self._find_requests(
                position.offset, request, stream, extent, selector, deadline_s
            )
            assert position.offset < until <= request.end, "each look moves the table on"
            assert len(asking) <= OFFSETS_MAX, "a request to the broker is bounded"
            piece = msgspec.structs.replace(
                request, begin=position.offset, until=until, asking=tuple(asking)
            )
            position = ask_broker(self._data_dir, piece, ReceiptPosition)
        return position

    def _find_requests(
        self,
        begin: int,
        request: ReportProgress,
        stream: StreamDefinition,
        extent: Extent,
        selector: TopicSelector,
        deadline_s: float,
    ) -> tuple[list[int], int]:
        """Return the offsets of messages from `begin` on that ask for a receipt, and the offset up
        to which the log was searched."""
        asking: list[int] = []
        end = min(request.end, extent.end)
        for first, last in subtract_ranges(
            max(begin, min(extent.earliest, end)), end, extent.given_up
        ):
            for rows in self._log.rows_around(first, last, stream):
                asking += receipt_requests(rows.batch, rows.offsets, selector, request.table)
                if len(asking) > OFFSETS_MAX:
                    return asking[:OFFSETS_MAX], asking[OFFSETS_MAX]
                if len(asking) == OFFSETS_MAX or time.monotonic() > deadline_s:
                    return asking, rows.end
        return asking, end

    def _tables(self, fields: dict[str, Any], grant: Grant) -> object:
        request = read_request(fields, ListTables, grant)
        return ask_broker(self._data_dir, request, list[TableState])

    def _forget(self, fields: dict[str, Any], grant: Grant) -> object:
        return ask_broker(self._data_dir, read_request(fields, ForgetTable, grant), bool)


def _check_topics(topics: tuple[str, ...], grant: Grant) -> None:
    """Raise RequestError if a topic filter is beyond the topics that the caller's token may
    read."""
    if not grant.topic_filters:
        return
    for topic_filter in topics or ("#",):
        if not any(filter_covers(granted, topic_filter) for granted in grant.topic_filters):
            raise RequestError(
                Refusal.NOT_ALLOWED,
                f"the token does not reach all of {topic_filter!r}: name topics of its filters",
            )


def receipt_requests(
    log_rows: pa.RecordBatch, offsets: pa.Array, selector: TopicSelector, table: str
) -> list[int]:
    """Return the offsets of rows of the log whose publishers asked for a receipt of `table`."""
    properties = log_rows.column("properties")
    if properties.null_count == len(properties):
        return []
    candidates = pc.fill_null(pc.match_substring(properties, RECEIPT), False)
    if not pc.any(candidates).as_py():
        return []
    rows = pa.Table.from_batches([log_rows.append_column("offset", offsets)]).filter(candidates)
    mask = selector.mask(rows)
    if mask is not None:
        rows = rows.filter(mask)
    pairs = zip(*(rows.column(name).to_pylist() for name in ("offset", "properties")), strict=True)
    return [
        offset for offset, encoded in pairs if asks_for_receipt(parse_properties(encoded), table)
    ]
