"""The start or end of a query as a user gives it: an end of the log, a position, or a time.

earliest, latest         Edge
{"0": 1234}              SpecificOffset; -2 is earliest and -1 latest, as for Kafka
2026-11-21T08:00:00Z     AtTime; also in ms since the Unix epoch
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange
from penstock.spark.offsets import (
    EXAMPLE,
    PARTITION,
    QUERY_FIELDS,
    SINGLE_SERVER,
    LogPosition,
)
from penstock.store.mark import NO_MARK, Mark, parse_mark
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.requests import TIME_US_MAX

Edge: TypeAlias = Literal["earliest", "latest"]

_EDGES: Final[dict[int, Edge]] = {-2: "earliest", -1: "latest"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX: Final = 10**11  # in ms this is in 1973, in seconds in the year 5138


@dataclass(frozen=True, slots=True)
class SpecificOffset:
    """An offset of the log with this epoch and history; None for the present log."""

    offset: int
    epoch: str | None = None
    mark: Mark = NO_MARK


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset received at or after a time; one of several such offsets if the broker's
    clock was set back (`penstock.store.time_search`).

    Attributes:
        option: the name of the option that has the time.
        received_at_us: the time, in µs since the Unix epoch.
        or_latest: whether the limit is the end of the log if nothing was received since; else that
            is an error.
    """

    option: str
    received_at_us: int
    or_latest: bool


RangeLimit: TypeAlias = Edge | SpecificOffset | AtTime


def is_moving(limit: RangeLimit) -> bool:
    """Return whether the limit may be another position when it is looked up again later."""
    return limit == "latest" or (isinstance(limit, AtTime) and limit.or_latest)


def find_position(limit: RangeLimit, log: StreamOffsets, client: StreamClient) -> LogPosition:
    """Return the position of a limit in `log`, which `client` reads.

    Raises:
        EpochMismatch: the limit is of another log, or of a history that the log does not have.
        OffsetOutOfRange: the log ends before the offset, or nothing was received since the time.
    """
    if limit == "earliest":
        return LogPosition(log.epoch, log.earliest)
    if limit == "latest":
        return LogPosition(log.epoch, log.latest)
    if isinstance(limit, AtTime):
        offset = client.offset_at(log.stream, log.epoch, limit.received_at_us, log.latest)
        if offset is None and not limit.or_latest:
            time = _EPOCH + timedelta(microseconds=limit.received_at_us)
            raise OffsetOutOfRange(
                f"option {limit.option}: nothing was received at or after {time.isoformat()};"
                " startingOffsetsByTimestampStrategy latest begins at the end of the log then"
            )
        return LogPosition(log.epoch, log.latest if offset is None else offset)
    position = LogPosition(limit.epoch or log.epoch, limit.offset)
    if position.epoch != log.epoch or not limit.mark.is_empty:
        found = client.check_position(log.stream, position.epoch, position.offset, limit.mark)
        if found.parts_at is not None:
            raise EpochMismatch(found.why)
        position = LogPosition(found.epoch, found.offset)
    if position.offset > log.latest:
        raise OffsetOutOfRange(
            f"offset {position.offset} is not in the log yet, which ends at {log.latest}"
        )
    return position


def parse_offsets(option: str, text: str, servers: Collection[str]) -> dict[str, RangeLimit]:
    """Return the limit in the log of each server: earliest, latest, or a position.

    Args:
        option: the name of the option, for errors.
        text: the value of the option.
        servers: the servers of the query; with `SINGLE_SERVER` the text is one position, else an
            object of positions by server.

    Raises:
        ConfigError: the text is none of these, or lacks a server.
    """
    word = text.strip().lower()
    if word == "earliest":
        return dict.fromkeys(servers, "earliest")
    if word == "latest":
        return dict.fromkeys(servers, "latest")
    if not word.startswith("{"):
        raise ConfigError(f"option {option} must be earliest, latest or a position, not {text!r}")
    example = EXAMPLE if SINGLE_SERVER in servers else f'{{"{min(servers)}": {EXAMPLE}, …}}'
    mistake = ConfigError(f"option {option} must be a position such as {example}, not {text!r}")
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise mistake from error
    for name in QUERY_FIELDS:  # in a position copied from a query's progress
        fields.pop(name, None)
    by_server = {SINGLE_SERVER: fields} if SINGLE_SERVER in servers else fields
    try:
        found = {name.rpartition("://")[2]: _offset(by_server[name]) for name in by_server}
    except (TypeError, ValueError) as error:
        raise mistake from error
    differing = found.keys() ^ set(servers)
    if differing:
        raise ConfigError(
            f"option {option} must give a position for each server of servers and no other:"
            f" {min(differing)}"
        )
    return found


def parse_time(option: str, text: str) -> int:
    """Return a time in µs since the Unix epoch; raise ConfigError if the text is no time.

    The text is a number of ms since the Unix epoch, or ISO 8601 with a zone.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        time_us = int(text) * 1000
        if 0 < int(text) < _SECONDS_MAX:
            raise ConfigError(
                f"option {option}: {text} ms would be before 1974; give ms and not s since 1970"
            )
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            time = None
        if time is None or time.tzinfo is None:
            raise ConfigError(
                f"option {option} must be in ms since 1970, or a time with its zone such as"
                f" 2026-11-21T08:00:00Z, not {text!r}"
            )
        time_us = (time - _EPOCH) // timedelta(microseconds=1)
    if not 0 <= time_us <= TIME_US_MAX:
        raise ConfigError(f"option {option} must be from 1970 up to the year 9999, not {text!r}")
    return time_us


def _offset(fields: Any) -> RangeLimit:
    """Return an offset or an edge; raise TypeError or ValueError if `fields` are no position."""
    if not {PARTITION} <= set(fields) <= {PARTITION, "epoch", "mark"}:
        raise ValueError
    offset, epoch = fields[PARTITION], fields.get("epoch")
    mark = parse_mark(str(fields.get("mark", "")))
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < min(_EDGES):
        raise ValueError
    if epoch is not None and not isinstance(epoch, str):
        raise ValueError
    return _EDGES[offset] if offset in _EDGES else SpecificOffset(offset, epoch, mark)
