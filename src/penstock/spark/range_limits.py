"""The begin or end of a query as a user gives it: an edge of the log, a position, or a time.

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

from penstock.errors import ConfigError, OffsetOutOfRange
from penstock.spark.offsets import (
    EXAMPLE,
    NOT_LOGS,
    ONLY,
    PARTITION,
    LogPosition,
    check_epoch,
)
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.requests import TIME_US_MAX

Edge: TypeAlias = Literal["earliest", "latest"]

_EDGES: Final[dict[int, Edge]] = {-2: "earliest", -1: "latest"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX: Final = 10**11  # in ms this is in 1973, in seconds in the year 5138


@dataclass(frozen=True, slots=True)
class SpecificOffset:
    """An offset; without an epoch it is of the present log."""

    offset: int
    epoch: str | None = None


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset received at or after a time.

    Attributes:
        option: the option with it.
        received_at_us: µs since the Unix epoch.
        or_latest: whether it means the end of the log if nothing was received since.
    """

    option: str
    received_at_us: int
    or_latest: bool


RangeLimit: TypeAlias = Edge | SpecificOffset | AtTime


def moves(wanted: RangeLimit) -> bool:
    """Return whether the limit means another position later."""
    return wanted == "latest" or (isinstance(wanted, AtTime) and wanted.or_latest)


def resolve(wanted: RangeLimit, log: StreamOffsets, client: StreamClient) -> LogPosition:
    """Return the position of a limit in `log`, which `client` reads.

    Raises:
        EpochMismatch: the log is of another epoch than the one named.
        OffsetOutOfRange: the log does not reach so far.
    """
    if wanted == "earliest":
        return LogPosition(log.epoch, log.earliest)
    if wanted == "latest":
        return LogPosition(log.epoch, log.latest)
    if isinstance(wanted, AtTime):
        offset = client.offset_at(log.stream, log.epoch, wanted.received_at_us, log.latest)
        if offset is None and not wanted.or_latest:
            time = _EPOCH + timedelta(microseconds=wanted.received_at_us)
            raise OffsetOutOfRange(
                f"option {wanted.option}: nothing was received at or after {time.isoformat()};"
                " startingOffsetsByTimestampStrategy latest begins at the end of the log then"
            )
        return LogPosition(log.epoch, log.latest if offset is None else offset)
    position = LogPosition(wanted.epoch or log.epoch, wanted.offset)
    check_epoch(position, log.epoch)
    if position.offset > log.latest:
        raise OffsetOutOfRange(
            f"offset {position.offset} is not in the log yet, which ends at {log.latest}"
        )
    return position


def parse_offsets(option: str, text: str, servers: Collection[str]) -> dict[str, RangeLimit]:
    """Read earliest, latest, or a position in the log of each server; `ONLY` has no name."""
    word = text.strip().lower()
    if word == "earliest":
        return dict.fromkeys(servers, "earliest")
    if word == "latest":
        return dict.fromkeys(servers, "latest")
    if not word.startswith("{"):
        raise ConfigError(f"option {option} must be earliest, latest or a position, not {text!r}")
    example = EXAMPLE if ONLY in servers else f'{{"{min(servers)}": {EXAMPLE}, …}}'
    mistake = ConfigError(f"option {option} must be a position such as {example}, not {text!r}")
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise mistake from error
    for name in NOT_LOGS:  # in a position copied from a query's progress
        fields.pop(name, None)
    by_server = {ONLY: fields} if ONLY in servers else fields
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
    """Read a time, in µs since the Unix epoch."""
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
    if not {PARTITION} <= set(fields) <= {PARTITION, "epoch"}:
        raise ValueError
    offset, epoch = fields[PARTITION], fields.get("epoch")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < min(_EDGES):
        raise ValueError
    if epoch is not None and not isinstance(epoch, str):
        raise ValueError
    return _EDGES[offset] if offset in _EDGES else SpecificOffset(offset, epoch)
