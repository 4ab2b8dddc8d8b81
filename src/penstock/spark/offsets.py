"""Positions of a query as Spark keeps them: how far each of its logs is read.

A query of one broker (option `server`) has `{"0": 1234, "epoch": "20261121T075206-9f3a1c04"}`: the
log has one partition, 0, and an offset means nothing without the epoch, the log's incarnation. A
query of several (option `servers`) has an object of these by server:
`{"one:8815": {"0": 1234, "epoch": …}, "two:8815": {"0": 77, "epoch": …}}`.

Beside them stands what the query takes of the logs, `"selection": "stream messages, topics a/#"`:
a query that went on with other topics would leave out, without a word, what it has passed of them.
Positions of older versions have no selection.

Spark compares positions as JSON text and keeps whatever order of keys it is given, so it is always
the same: the logs by server, then what is the query's.

A query that runs a batch whenever it starts (option `batchAtStart`) has its number of starts in it,
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
"""Stands for the broker of option `server` where others are keyed by their address."""

_SELECTION: Final = "selection"
_STARTS: Final = "starts"

BEHIND: Final = "behind"
"""Beside the ends of the logs, in the progress of a query: how many offsets it has not planned."""

NOT_LOGS: Final = (_SELECTION, _STARTS, BEHIND)
"""What stands in a position beside the logs: of the query, and not of a place in a log."""

EXAMPLE: Final = '{"0": 1234, "epoch": "20261121T075206-9f3a1c04"}'


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The rows of a log before `offset` are read; the one at `offset` comes next."""

    epoch: str
    offset: int

    def to_spark(self) -> dict[str, Any]:
        """The form Spark keeps, keys in an order that is always the same."""
        return {PARTITION: self.offset, "epoch": self.epoch}

    @classmethod
    def from_spark(cls, fields: Mapping[str, Any]) -> LogPosition:
        """Read what `to_spark` made; KeyError, TypeError or ValueError where it did not."""
        return cls(str(fields["epoch"]), int(fields[PARTITION]))


@dataclass(frozen=True, slots=True)
class Position:
    """Where a query stands: a position in each of its logs, by server.

    Attributes:
        logs: the positions.
        starts: how often the query was started, where that is counted.
        selection: what it takes of the logs, in words; empty where that is not known.
    """

    logs: Mapping[str, LogPosition]
    starts: int = 0
    selection: str = ""

    @classmethod
    def of_one(cls, epoch: str, offset: int) -> Position:
        """The position of a query of one broker."""
        return cls({ONLY: LogPosition(epoch, offset)})

    @property
    def only(self) -> LogPosition:
        """The position in the log of a query of one broker; ConfigError for one of several."""
        if ONLY not in self.logs:
            raise ConfigError(f"the checkpoint was made for several brokers: {self.to_json()}")
        return self.logs[ONLY]

    def to_spark(self) -> dict[str, Any]:
        """The form Spark keeps, keys in an order that is always the same."""
        of_query: dict[str, Any] = {_SELECTION: self.selection, _STARTS: self.starts}
        of_query = {name: value for name, value in of_query.items() if value}
        if ONLY in self.logs:
            return {**self.only.to_spark(), **of_query}
        return {**{name: self.logs[name].to_spark() for name in sorted(self.logs)}, **of_query}

    def to_json(self) -> str:
        """The text Spark keeps in a checkpoint."""
        return json.dumps(self.to_spark())

    @classmethod
    def from_spark(cls, fields: Mapping[str, Any]) -> Position:
        """Read what `to_spark` made, perhaps long ago."""
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
        """The same position, where a query of one broker has become one of several.

        Args:
            epochs: those of the logs of the query now, by server. The one that the position belongs
                to is known by it.
        """
        if ONLY in self.logs and ONLY not in epochs:
            for server, epoch in epochs.items():
                if epoch == self.only.epoch:
                    return replace(self, logs={server: self.only})
        return self


def check_selection(position: Position, selection: str) -> None:
    """Raise ConfigError when the query of `position` took something else than it would now."""
    if position.selection not in ("", selection):
        place = replace(position, starts=0, selection="").to_json()
        raise ConfigError(
            f"the checkpoint was made for {position.selection}, and the query now asks for"
            f" {selection}: what it has passed of that would be missing. Ask for the same as"
            " before, or start it with a new checkpoint; with startingOffsets"
            f" {place} it goes on from here all the same"
        )


def check_epoch(position: LogPosition, epoch: str) -> None:
    """Raise EpochMismatch when `position` does not belong to the log of the given epoch."""
    if position.epoch != epoch:
        raise EpochMismatch(
            f"the query stands at offset {position.offset} of epoch {position.epoch}, and the log"
            f" is now of epoch {epoch}: it was restored or created anew, so its offsets mean other"
            " messages"
        )
