"""Positions of a query as Spark stores them: how far each of its logs is read.

A query of one broker (option `server`) has `{"0": 1234, "epoch": "20261121T075206-9f3a1c04"}`: the
log has one partition, 0, and an offset means nothing without the epoch, the log's incarnation. A
query of several (option `servers`) has an object of these by server:
`{"one:8815": {"0": 1234, "epoch": …}, "two:8815": {"0": 77, "epoch": …}}`.

Beside them is the query's selection, `"selection": "stream messages, topics a/#"`: a query that
continued with other topics would silently leave out their messages before its position. Positions
of older versions have no selection.

Spark compares positions as JSON text and keeps the order of keys, so that order is always
the same: the logs by server, then the fields of the query.

A query that runs a batch at every start (option `batchAtStart`) has its number of starts in it,
`"starts": 3`: Spark plans a batch only where a position differs from the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import ConfigError, EpochMismatch

PARTITION: Final = "0"
"""The log's only partition. A second one would get a key beside it."""

ONLY: Final = ""
"""The key of the broker of option `server`; others are keyed by their address."""

_SELECTION: Final = "selection"
_STARTS: Final = "starts"

BEHIND: Final = "behind"
"""Beside the ends of the logs, in the progress of a query: the number of unplanned offsets."""

NOT_LOGS: Final = (_SELECTION, _STARTS, BEHIND)
"""The fields of a position that are not logs, but belong to the query."""

EXAMPLE: Final = '{"0": 1234, "epoch": "20261121T075206-9f3a1c04"}'


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in a log: rows before `offset` are read, and the one at `offset` comes next."""

    epoch: str
    offset: int

    def to_spark(self) -> dict[str, Any]:
        """Return the form that Spark stores, with keys always in the same order."""
        return {PARTITION: self.offset, "epoch": self.epoch}

    @classmethod
    def from_spark(cls, fields: Mapping[str, Any]) -> LogPosition:
        """Read the result of `to_spark`; raise KeyError, TypeError or ValueError for anything
        else."""
        return cls(str(fields["epoch"]), int(fields[PARTITION]))


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a query: a position in each of its logs, by server.

    Attributes:
        logs: the positions.
        starts: the number of starts of the query, if they are counted.
        selection: its selection of the logs, in words; empty if unknown.
    """

    logs: Mapping[str, LogPosition]
    starts: int = 0
    selection: str = ""

    @classmethod
    def of_one(cls, epoch: str, offset: int) -> Position:
        """Return the position of a query of one broker."""
        return cls({ONLY: LogPosition(epoch, offset)})

    @property
    def only(self) -> LogPosition:
        """The position in the log of a query of one broker; raises ConfigError for several."""
        if ONLY not in self.logs:
            raise ConfigError(f"the checkpoint was made for several brokers: {self.to_json()}")
        return self.logs[ONLY]

    def to_spark(self) -> dict[str, Any]:
        """Return the form that Spark stores, with keys always in the same order."""
        of_query: dict[str, Any] = {_SELECTION: self.selection, _STARTS: self.starts}
        of_query = {name: value for name, value in of_query.items() if value}
        if ONLY in self.logs:
            return {**self.only.to_spark(), **of_query}
        return {**{name: self.logs[name].to_spark() for name in sorted(self.logs)}, **of_query}

    def to_json(self) -> str:
        """Return the text that Spark stores in a checkpoint."""
        return json.dumps(self.to_spark())

    @classmethod
    def from_spark(cls, fields: Mapping[str, Any]) -> Position:
        """Read the result of `to_spark`, perhaps of an older version."""
        logs = {name: log for name, log in fields.items() if name not in NOT_LOGS}
        by_server = {ONLY: logs} if PARTITION in fields else logs
        try:
            return cls(
                {name: LogPosition.from_spark(log) for name, log in by_server.items()},
                int(fields.get(_STARTS, 0)),
                str(fields.get(_SELECTION, "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint holds {json.dumps(fields)}, which is no position in a penstock"
                f" stream, such as {EXAMPLE}"
            ) from error

    def named(self, epochs: Mapping[str, str]) -> Position:
        """Return the same position for a query that has several brokers where it had one.

        Args:
            epochs: the present epochs of the query's logs, by server; they tell to which one the
                position belongs.
        """
        if ONLY in self.logs and ONLY not in epochs:
            for server, epoch in epochs.items():
                if epoch == self.only.epoch:
                    return replace(self, logs={server: self.only})
        return self


def check_selection(position: Position, selection: str) -> None:
    """Raise ConfigError if the selection of `position` is not that of the query now."""
    if position.selection not in ("", selection):
        place = replace(position, starts=0, selection="").to_json()
        raise ConfigError(
            f"the checkpoint was made for {position.selection}, and the query now asks for"
            f" {selection}: messages of that before its offset would be missing. Name the same"
            " stream and topics as before, or start with a new checkpoint; with startingOffsets"
            f" {place} it continues from its present offset"
        )


def check_epoch(position: LogPosition, epoch: str) -> None:
    """Raise EpochMismatch if `position` does not belong to the log of the given epoch."""
    if position.epoch != epoch:
        raise EpochMismatch(
            f"the query is at offset {position.offset} of epoch {position.epoch}, and the log"
            f" is now of epoch {epoch}: it was restored or created anew, so its offsets mean other"
            " messages"
        )
