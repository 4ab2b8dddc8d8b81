"""Positions of a query as Spark stores them: the next offset to read in each of its logs.

A query of one broker (option `server`) has `{"0": 1234, "epoch": "20261121T075206-9f3a1c04",
"mark": …}`: the log has one partition, 0, and an offset means nothing without the epoch, the log's
incarnation, and the mark, which names its history (`penstock.store.mark`). Positions of older
versions have no mark, and are taken over once. A query of several (option `servers`) has an object
of these by server: `{"one:8815": {"0": 1234, "epoch": …}, "two:8815": {"0": 77, "epoch": …}}`.

Beside them is the query's selection, `"selection": "stream messages, topics a/#"`: a query that
continued with other topics would silently leave out their messages before its position. Positions
of older versions have no selection.

Spark compares positions as JSON text and keeps the order of keys, so the keys always have the same
order: the logs by server, then the fields of the query.

The position of a query that runs a batch at every start (option `batchAtStart`) has the number of
these starts, `"starts": 3`: Spark plans a batch only if its position differs from the last one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.store.mark import NO_MARK, Mark, parse_mark

PARTITION: Final = "0"
"""The key of the offset: the name that the log's only partition would have in Kafka."""

SINGLE_SERVER: Final = ""
"""The key of the broker of option `server`; those of `servers` have their address as key."""

_SELECTION: Final = "selection"
_STARTS: Final = "starts"

BEHIND: Final = "behind"
"""The field of a query's progress with the number of offsets that no batch has been planned for."""

QUERY_FIELDS: Final = (_SELECTION, _STARTS, BEHIND)
"""The fields of a position that belong to the query and are no logs."""

EXAMPLE: Final = '{"0": 1234, "epoch": "20261121T075206-9f3a1c04"}'


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in a log: rows before `offset` are read, and the one at `offset` comes next; the
    mark names their history."""

    epoch: str
    offset: int
    mark: Mark = NO_MARK

    def to_spark(self) -> dict[str, Any]:
        """Return the JSON object that Spark stores, with keys always in the same order."""
        fields: dict[str, Any] = {PARTITION: self.offset, "epoch": self.epoch}
        return fields if self.mark.is_empty else {**fields, "mark": str(self.mark)}

    @classmethod
    def from_spark(cls, fields: Mapping[str, Any]) -> LogPosition:
        """Return the position in a result of `to_spark`.

        Raises:
            KeyError, TypeError, ValueError: the fields are no position.
        """
        epoch, offset = str(fields["epoch"]), int(fields[PARTITION])
        return cls(epoch, offset, parse_mark(str(fields.get("mark", ""))))


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a query: a position in each of its logs, by server.

    Attributes:
        logs: the position in each log, by server.
        starts: the number of starts of the query; 0 if they are not counted.
        selection: the stream and topics that the query reads, in words; empty if unknown.
    """

    logs: Mapping[str, LogPosition]
    starts: int = 0
    selection: str = ""

    @classmethod
    def of_single_log(cls, epoch: str, offset: int) -> Position:
        """Return the position of a query of one broker."""
        return cls({SINGLE_SERVER: LogPosition(epoch, offset)})

    @property
    def single_log(self) -> LogPosition:
        """The position in the one log of a query of one broker.

        Raises:
            ConfigError: the query reads several brokers.
        """
        if SINGLE_SERVER not in self.logs:
            raise ConfigError(f"the checkpoint was made for several brokers: {self.to_json()}")
        return self.logs[SINGLE_SERVER]

    def to_spark(self) -> dict[str, Any]:
        """Return the JSON object that Spark stores, with keys always in the same order."""
        query_fields: dict[str, Any] = {_SELECTION: self.selection, _STARTS: self.starts}
        query_fields = {name: value for name, value in query_fields.items() if value}
        if SINGLE_SERVER in self.logs:
            return {**self.single_log.to_spark(), **query_fields}
        return {**{name: self.logs[name].to_spark() for name in sorted(self.logs)}, **query_fields}

    def to_json(self) -> str:
        """Return the text that Spark stores in a checkpoint."""
        return json.dumps(self.to_spark())

    @classmethod
    def from_spark(cls, fields: Mapping[str, Any]) -> Position:
        """Return the position in a result of `to_spark`, of this version or an older one.

        Raises:
            ConfigError: the fields are no position.
        """
        logs = {name: log for name, log in fields.items() if name not in QUERY_FIELDS}
        by_server = {SINGLE_SERVER: logs} if PARTITION in fields else logs
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

    def with_server_key(self, epochs: Mapping[str, Collection[str]]) -> Position:
        """Return the position with its log under the key of a server.

        It is for a query that now names several brokers, and had one: the log with the same epoch
        is that of the position. Other positions are returned unchanged.

        Args:
            epochs: the present and former epochs of the query's logs, by server.
        """
        if SINGLE_SERVER in self.logs and SINGLE_SERVER not in epochs:
            for server, names in epochs.items():
                if self.single_log.epoch in names:
                    return replace(self, logs={server: self.single_log})
        return self


def check_selection(position: Position, selection: str) -> None:
    """Raise ConfigError if `position` was stored for another selection than that of the query."""
    if position.selection not in ("", selection):
        place = replace(position, starts=0, selection="").to_json()
        raise ConfigError(
            f"the checkpoint was made for {position.selection}, and the query now asks for"
            f" {selection}: messages of that before its offset would be missing. Name the same"
            " stream and topics as before, or start with a new checkpoint; with startingOffsets"
            f" {place} it continues from its present offset"
        )
