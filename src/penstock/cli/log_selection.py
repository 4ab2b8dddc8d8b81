"""The messages of the log that the options of `penstock tail` and `penstock replay` select.

::

      -t, --from, --until ─▶ filters ─▶ spans that may have matches ── --last ─▶ the last matches
                                                  │
                                                  ╰─▶ batches, read in a thread ─▶ messages
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

import pyarrow as pa

from penstock.cli.log_options import LogOptions
from penstock.cli.log_positions import (
    AtOffset,
    AtTime,
    AtTimeOfDay,
    Clock,
    LogPosition,
    begin_us,
    end_us,
    from_us,
    local_text,
    parse_log_position,
    to_us,
)
from penstock.cli.message_format import LogEntry, TimedMessage
from penstock.cli.output import run_in_thread
from penstock.client import Message
from penstock.engine.api import ReceivedMessage
from penstock.errors import ConfigError, OffsetOutOfRange
from penstock.protocol.packets import Publish
from penstock.protocol.properties import Properties
from penstock.store.ranges import Ranges, range_in_words
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.log_positions import find_last_spans, receipt_time_of
from penstock.stream.pushed_filters import IntRange, PushedFilters, spans_to_read

ANSWER_S: Final = 5.0
"""Time limit of the first answer of the stream service, in seconds: the address may be wrong."""


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The messages of a stream that the options select.

    Attributes:
        log: the stream, and its offsets when the selection was made.
        filters: the filters on offset, time and topic.
        spans: the parts of the log that may have selected messages, ascending.
        notes: sentences for the user about selected messages that are missing.
    """

    log: StreamOffsets
    filters: PushedFilters
    spans: Ranges
    notes: tuple[str, ...] = ()

    def options_from(self, offset: int) -> str:
        """Return the options that select the messages of this selection from ``offset`` on."""
        until_us = self.filters.until_us
        end = self.filters.offsets.high if until_us is None else from_us(until_us).isoformat()
        return f"--from {offset} --until {end}"

    def print_notes(self) -> None:
        """Print the notes on standard error."""
        for note in self.notes:
            print(f"penstock: {note}", file=sys.stderr)


def machine_clock() -> Clock:
    """Return the present time, and the zone of this machine."""
    return Clock(datetime.now(UTC))


def select_messages(client: StreamClient, options: LogOptions, clock: Clock) -> LogSelection:
    """Return the selection that the options describe, in the log as it is now.

    Raises:
        ConfigError: the options contradict each other.
        OffsetOutOfRange: an offset is not in the log.
        PenstockError: the stream service cannot be read.
    """
    begin: LogPosition = "earliest"
    if options.begin is not None:
        begin = parse_log_position("--from", options.begin, clock)
    end: LogPosition = "latest"
    if options.until is not None:
        end = parse_log_position("--until", options.until, clock)
    log = client.offsets(options.stream, ANSWER_S)
    offsets = [position.offset for position in (begin, end) if isinstance(position, AtOffset)]
    furthest = max(offsets, default=0)
    if furthest > log.latest:  # a replica may lag
        log = client.offsets(options.stream, ANSWER_S, (log.epoch, furthest))
    low, high = log.earliest, log.latest
    if isinstance(begin, AtOffset) or begin == "latest":
        low = _offset("--from", begin, client, log, clock)
    if isinstance(end, AtOffset) or end == "earliest":
        high = _offset("--until", end, client, log, clock)
    since_us = begin_us(begin, clock) if isinstance(begin, AtTime | AtTimeOfDay) else None
    until_us = None
    if isinstance(end, AtTime | AtTimeOfDay):
        until_us = end_us(end, clock, _time_of_begin(begin, since_us, client, log, clock))
    mistake = f"--until {options.until} is not after --from {options.begin}"
    if low > high or (isinstance(begin, AtOffset) and begin == end):
        raise ConfigError(f"{mistake}: they are offsets {low} and {high}")
    if since_us is not None and until_us is not None and since_us >= until_us:
        times = f"{local_text(since_us, clock)} and {local_text(until_us, clock)}"
        raise ConfigError(f"{mistake}: they are {times}")
    all_times = PushedFilters().times_us
    times_us = IntRange(
        all_times.low if since_us is None else since_us,
        all_times.high if until_us is None else until_us,
    )
    filters = PushedFilters(IntRange(low, high), times_us, tuple(options.topics or ()))
    spans = spans_to_read(client, log, filters, log.given_up)
    notes = tuple(_notes(client, log, filters, clock))
    if options.last is not None:
        spans = find_last_spans(client, log, filters, spans, options.last)
    return LogSelection(log, filters, spans, notes)


def next_selection(selection: LogSelection, now: StreamOffsets) -> LogSelection:
    """Return the selection of the messages after those of ``selection``, up to the log's end
    ``now``."""
    offsets = IntRange(selection.log.latest, now.latest)
    log = replace(selection.log, latest=now.latest, mark=now.mark)
    spans = [(offsets.low, offsets.high)] if offsets.low < offsets.high else []
    return LogSelection(log, replace(selection.filters, offsets=offsets), spans)


async def read_selection(
    client: StreamClient, selection: LogSelection, columns: tuple[str, ...] | None = None
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the selected messages in batches, in order of offset, without blocking the event loop.

    Raises:
        PenstockError: the stream service cannot be read.
    """
    for start, end in selection.spans:
        batches = client.read(
            selection.log.stream,
            selection.log.epoch,
            start,
            end,
            topic_filters=selection.filters.topics,
            columns=columns,
            since_us=selection.filters.since_us,
            until_us=selection.filters.until_us,
        )
        while (batch := await run_in_thread(partial(next, batches, None))) is not None:
            yield batch


def receive_times_us(batch: pa.RecordBatch) -> list[int]:
    """Return when the broker received each message of a batch, µs since the Unix epoch."""
    column = batch.column(batch.schema.get_field_index("received_at"))
    times_us: list[int] = column.cast(pa.int64()).to_pylist()
    return times_us


def messages_in(batch: pa.RecordBatch) -> list[TimedMessage]:
    """Return the messages of a batch, which must have all columns of the stream."""
    messages = []
    for row, at_us in zip(batch.to_pylist(), receive_times_us(batch), strict=True):
        properties = None
        if row["properties"] is not None:
            pairs = row["properties"].pop("user_properties")
            user_properties = [(pair["key"], pair["value"]) for pair in pairs or ()]
            properties = Properties(**row["properties"], user_properties=user_properties or None)
        publish = Publish(
            row["topic"], row["payload"], row["qos"], row["retain"], properties=properties
        )
        message = Message(ReceivedMessage(publish, row["topic"]))
        entry = LogEntry(row["epoch"], row["offset"], row["client_id"])
        messages.append(TimedMessage(message, 0, at_us * 1000, entry))
    return messages


def _time_of_begin(
    begin: LogPosition, since_us: int | None, client: StreamClient, log: StreamOffsets, clock: Clock
) -> int | None:
    """Return the time at which the selection begins, after which a time of day as its end is looked
    for."""
    if isinstance(begin, AtOffset):
        return receipt_time_of(client, log, begin.offset)
    return to_us(clock.now) if begin == "latest" else since_us


def _offset(
    option: str, position: LogPosition, client: StreamClient, log: StreamOffsets, clock: Clock
) -> int:
    """Return the offset of a position that is not a time."""
    if not isinstance(position, AtOffset):
        return log.earliest if position == "earliest" else log.latest
    if position.offset < log.earliest:
        begins_us = receipt_time_of(client, log, log.earliest)
        received = "" if begins_us is None else f", received {local_text(begins_us, clock)}"
        raise OffsetOutOfRange(
            f"{option} {position.offset} is no longer in the log, which begins at offset"
            f" {log.earliest}{received}: give {option} earliest"
        )
    if position.offset > log.latest:
        raise OffsetOutOfRange(
            f"{option} {position.offset} is not in the log yet, which ends before offset"
            f" {log.latest}: give {option} latest"
        )
    return position.offset


def _notes(
    client: StreamClient, log: StreamOffsets, filters: PushedFilters, clock: Clock
) -> Iterator[str]:
    """Yield a sentence for each part of the selection that the log lacks."""
    span = filters.offsets
    for begin, end in log.given_up:
        if begin < span.high and span.low < end:
            offsets = range_in_words(begin, end)
            yield f"{offsets} are lost: a repair has given them up (docs/store.md)"
    if filters.since_us is None or log.earliest == 0:
        return
    begins_us = receipt_time_of(client, log, log.earliest)
    if begins_us is not None and begins_us > filters.since_us:
        yield (
            f"the log begins at offset {log.earliest}, received {local_text(begins_us, clock)}:"
            " retention has removed what came before"
        )
