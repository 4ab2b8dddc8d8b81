"""The messages that the options of `penstock tail` and `penstock replay` choose, and reading them.

::

      -t, --from, --until ─▶ filters ─▶ spans that may have such messages ── --last ─▶ the last ones
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
from penstock.cli.message_format import Logged, Received
from penstock.cli.output import in_thread
from penstock.client import Message
from penstock.engine.dialling.unacknowledged import ReceivedMessage
from penstock.errors import ConfigError, OffsetOutOfRange
from penstock.protocol.packets import Publish
from penstock.protocol.properties import Properties
from penstock.store.ranges import Ranges, range_in_words
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.log_positions import spans_of_last, time_of
from penstock.stream.pushed_filters import IntRange, PushedFilters, spans_to_read

ANSWER_S: Final = 5.0
"""How long the first answer of the stream service may take: an address may be a wrong one."""


@dataclass(frozen=True, slots=True)
class ChosenMessages:
    """The messages that the options choose.

    Attributes:
        log: the stream, and its offsets when it was asked.
        pushed: the filters.
        spans: the parts of the log that may have such messages, ascending.
        notes: sentences for the user about what is missing.
    """

    log: StreamOffsets
    pushed: PushedFilters
    spans: Ranges
    notes: tuple[str, ...] = ()

    def rest(self, offset: int) -> str:
        """Return the options that choose the messages from ``offset`` on, and no later ones."""
        until_us = self.pushed.until_us
        end = self.pushed.offsets.high if until_us is None else from_us(until_us).isoformat()
        return f"--from {offset} --until {end}"

    def print_notes(self) -> None:
        """Print the notes on standard error."""
        for note in self.notes:
            print(f"penstock: {note}", file=sys.stderr)


def machine_clock() -> Clock:
    """Return the present time, and the zone of this machine."""
    return Clock(datetime.now(UTC))


def choose(client: StreamClient, options: LogOptions, clock: Clock) -> ChosenMessages:
    """Return the messages that the options choose, as the log is now.

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
    furthest = max((one.offset for one in (begin, end) if isinstance(one, AtOffset)), default=0)
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
    wrong = f"--until {options.until} is not after --from {options.begin}"
    if low > high or (isinstance(begin, AtOffset) and begin == end):
        raise ConfigError(f"{wrong}: they are offsets {low} and {high}")
    if since_us is not None and until_us is not None and since_us >= until_us:
        times = f"{local_text(since_us, clock)} and {local_text(until_us, clock)}"
        raise ConfigError(f"{wrong}: they are {times}")
    every = PushedFilters().times_us
    times_us = IntRange(
        every.low if since_us is None else since_us, every.high if until_us is None else until_us
    )
    pushed = PushedFilters(IntRange(low, high), times_us, tuple(options.topics or ()))
    spans = spans_to_read(client, log, pushed, log.given_up)
    notes = tuple(_notes(client, log, pushed, clock))
    if options.last is not None:
        spans = spans_of_last(client, log, pushed, spans, options.last)
    return ChosenMessages(log, pushed, spans, notes)


def since(chosen: ChosenMessages, latest: int) -> ChosenMessages:
    """Return the messages that came after the ``chosen`` ones, up to the offset ``latest``."""
    offsets = IntRange(chosen.log.latest, latest)
    log = replace(chosen.log, latest=latest)
    spans = [(offsets.low, offsets.high)] if offsets.low < offsets.high else []
    return ChosenMessages(log, replace(chosen.pushed, offsets=offsets), spans)


async def read_chosen(
    client: StreamClient, chosen: ChosenMessages, columns: tuple[str, ...] | None = None
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the chosen messages, in order of offset, without blocking the event loop.

    Raises:
        PenstockError: the stream service cannot be read.
    """
    for start, end in chosen.spans:
        batches = client.read(
            chosen.log.stream,
            chosen.log.epoch,
            start,
            end,
            topic_filters=chosen.pushed.topics,
            columns=columns,
            since_us=chosen.pushed.since_us,
            until_us=chosen.pushed.until_us,
        )
        while (batch := await in_thread(partial(next, batches, None))) is not None:
            yield batch


def times_us_of(batch: pa.RecordBatch) -> list[int]:
    """Return when each message of a batch was received, µs since the Unix epoch."""
    column = batch.column(batch.schema.get_field_index("received_at"))
    found: list[int] = column.cast(pa.int64()).to_pylist()
    return found


def received_in(batch: pa.RecordBatch) -> list[Received]:
    """Return the messages of a batch that has all columns."""
    found = []
    for row, at_us in zip(batch.to_pylist(), times_us_of(batch), strict=True):
        properties = None
        if row["properties"] is not None:
            pairs = row["properties"].pop("user_properties")
            named = [(pair["key"], pair["value"]) for pair in pairs or ()]
            properties = Properties(**row["properties"], user_properties=named or None)
        publish = Publish(
            row["topic"], row["payload"], row["qos"], row["retain"], properties=properties
        )
        message = Message(ReceivedMessage(publish, row["topic"]))
        position = Logged(row["epoch"], row["offset"], row["client_id"])
        found.append(Received(message, 0, at_us * 1000, position))
    return found


def _time_of_begin(
    begin: LogPosition, since_us: int | None, client: StreamClient, log: StreamOffsets, clock: Clock
) -> int | None:
    """Return the time at which the messages begin, after which a time of day is looked for."""
    if isinstance(begin, AtOffset):
        return time_of(client, log, begin.offset)
    return to_us(clock.now) if begin == "latest" else since_us


def _offset(
    option: str, position: LogPosition, client: StreamClient, log: StreamOffsets, clock: Clock
) -> int:
    """Return the offset of a position that is not a time, if the log has it."""
    if not isinstance(position, AtOffset):
        return log.earliest if position == "earliest" else log.latest
    if position.offset < log.earliest:
        begins_us = time_of(client, log, log.earliest)
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
    client: StreamClient, log: StreamOffsets, pushed: PushedFilters, clock: Clock
) -> Iterator[str]:
    """Yield a sentence for each part of the chosen messages that is missing."""
    span = pushed.offsets
    for begin, end in log.given_up:
        if begin < span.high and span.low < end:
            offsets = range_in_words(begin, end)
            yield f"{offsets} are lost: a repair has given them up (docs/store.md)"
    if pushed.since_us is None or log.earliest == 0:
        return
    begins_us = time_of(client, log, log.earliest)
    if begins_us is not None and begins_us > pushed.since_us:
        yield (
            f"the log begins at offset {log.earliest}, received {local_text(begins_us, clock)}:"
            " retention has removed what came before"
        )
