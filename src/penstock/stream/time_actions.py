"""The stream service's actions that find offsets by time of receipt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.auth.tokens import Grant
from penstock.config.stream import StreamDefinition
from penstock.store.ranges import Ranges
from penstock.store.secondary import Extent, LogFollower
from penstock.store.time_index import TimeIndex
from penstock.store.time_search import first_received_at
from penstock.stream.reader_actions import Action, behind_error, check_epoch
from penstock.stream.requests import (
    TIME_US_MAX,
    RangeRequest,
    read_offset,
    read_range,
    read_text,
    read_time,
)

CALL_S_MAX: Final = 2.0
"""Seconds after which a call is answered, with or without a result."""

DESCRIPTIONS: Final = (
    ("offset_at", "the first offset received at or after a time, as JSON"),
    ("received_between", "ranges that may have rows of a time span, as JSON; null: ask again"),
)


class TimeActions:
    """The actions offset_at and received_between.

    Args:
        log: the log with the messages.
        streams: the streams of the service, by name.
        stream: returns a stream by its name; raises RequestError if there is none.
    """

    def __init__(
        self,
        log: LogFollower,
        streams: Mapping[str, StreamDefinition],
        stream: Callable[[str], StreamDefinition],
    ) -> None:
        self._log = log
        self._stream = stream
        self._indexes = {name: TimeIndex(log, one) for name, one in streams.items()}
        self.actions: Mapping[str, Action] = {
            "offset_at": self._offset_at,
            "received_between": self._received_between,
        }

    def _offset_at(self, fields: dict[str, Any], _grant: Grant) -> object:
        stream = self._stream(read_text(fields, "stream"))
        received_at_us = read_time(fields, "received_at")
        extent = self._log.extent(stream)
        check_epoch(read_text(fields, "epoch"), extent.epoch)
        end = read_offset(fields, "end") if "end" in fields else 0
        if end > extent.end:  # the first such offset may be behind the end of this replica's log
            raise behind_error(end, extent)
        return {"offset": first_received_at(self._log, extent, received_at_us, stream)}

    def _received_between(self, fields: dict[str, Any], _grant: Grant) -> object:
        stream = self._stream(read_text(fields, "stream"))
        since_us, until_us = read_time(fields, "since"), read_time(fields, "until")
        span = read_range(fields)
        extent = self._log.extent(stream)
        check_epoch(read_text(fields, "epoch"), extent.epoch)
        if span[1] > extent.end:
            raise behind_error(span[1], extent)
        deadline_s = time.monotonic() + CALL_S_MAX
        index = self._indexes[stream.name]
        return {"ranges": index.possible_ranges(extent, span, since_us, until_us, deadline_s)}

    def find_spans(self, extent: Extent, request: RangeRequest, count_max: int) -> Ranges:
        """Return the ranges of offsets that may have rows of a requested time span, ascending.

        If finding them takes longer than a call may, the whole range is returned, which has the
        same rows.

        Args:
            extent: extent of the stream.
            request: the range and its time span.
            count_max: greatest number of ranges; if there are more, one range covers all of them.
        """
        whole = (request.start, request.end)
        since_us = 0 if request.since_us is None else request.since_us
        until_us = TIME_US_MAX if request.until_us is None else request.until_us
        if since_us >= until_us:
            return []
        deadline_s = time.monotonic() + CALL_S_MAX
        index = self._indexes[request.stream]
        found = index.possible_ranges(extent, whole, since_us, until_us, deadline_s)
        if found is None:
            return [whole]
        return found if len(found) <= count_max else [(found[0][0], found[-1][1])]


def received_in_time(rows: pa.Table, request: RangeRequest) -> pa.Array | None:
    """Return a boolean for each row of the log, true if it was received in the requested time span;
    None if the request has no time span."""
    received = rows.column("received_at")
    mask = None
    if request.since_us is not None:
        mask = pc.greater_equal(received, request.since_us)
    if request.until_us is not None:
        is_before = pc.less(received, request.until_us)
        mask = is_before if mask is None else pc.and_(mask, is_before)
    return mask
