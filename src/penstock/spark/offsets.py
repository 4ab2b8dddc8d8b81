"""Positions in the log as Spark keeps them, and how a range of them is split for reading.

A position is `{"0": 1234, "epoch": "20261121T075206-9f3a1c04"}`: the log has one partition, 0, and
an offset means nothing without the epoch, the log's incarnation. Spark compares positions as JSON
text and keeps whatever order of keys it is given, so the keys are always sorted.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import ConfigError, EpochMismatch

PARTITION: Final = "0"
"""The log's only partition. A second one would get a key beside it."""

EXAMPLE: Final = '{"0": 1234, "epoch": "20261121T075206-9f3a1c04"}'


@dataclass(frozen=True, slots=True)
class Position:
    """The rows before `offset` are read; the one at `offset` comes next."""

    epoch: str
    offset: int

    def to_spark(self) -> dict[str, Any]:
        """The form Spark keeps, keys in sorted order."""
        return {PARTITION: self.offset, "epoch": self.epoch}

    def to_json(self) -> str:
        """The text Spark keeps in a checkpoint."""
        return json.dumps(self.to_spark(), sort_keys=True)

    @classmethod
    def from_spark(cls, fields: dict[str, Any]) -> Position:
        """Read what `to_spark` made, perhaps long ago."""
        try:
            return cls(str(fields["epoch"]), int(fields[PARTITION]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint holds {json.dumps(fields)}, which is no position in a penstock"
                f" stream, such as {EXAMPLE}"
            ) from error


@dataclass(frozen=True, slots=True)
class WantedPosition:
    """A position as a user writes it in an option; without an epoch the log's current one."""

    offset: int
    epoch: str | None = None

    def resolve(self, epoch: str) -> Position:
        """The position in the log, whose epoch is `epoch`; EpochMismatch when it means another."""
        position = Position(self.epoch or epoch, self.offset)
        check_epoch(position, epoch)
        return position

    @classmethod
    def parse(cls, option: str, text: str) -> WantedPosition:
        """Read the JSON given for `option`; ConfigError when it is not a position."""
        mistake = ConfigError(f"option {option} must be a position such as {EXAMPLE}, not {text!r}")
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise mistake from error
        if not isinstance(fields, dict) or not {PARTITION} <= set(fields) <= {PARTITION, "epoch"}:
            raise mistake
        offset, epoch = fields[PARTITION], fields.get("epoch")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise mistake
        if epoch is not None and not isinstance(epoch, str):
            raise mistake
        return cls(offset, epoch)


def check_epoch(position: Position, epoch: str) -> None:
    """Raise EpochMismatch when `position` does not belong to the log of the given epoch."""
    if position.epoch != epoch:
        raise EpochMismatch(
            f"the query stands at offset {position.offset} of epoch {position.epoch}, and the log"
            f" is now of epoch {epoch}: it was restored or created anew, so its offsets mean other"
            " messages. Start the query with a new checkpoint to read the new log"
        )


def split_range(start: int, end: int, parts_max: int) -> list[tuple[int, int]]:
    """Ranges that together cover `start` to `end` (excluded), as even as can be, none empty."""
    count = end - start
    parts = min(parts_max, count)
    bounds = [start + count * part // parts for part in range(parts + 1)] if parts > 0 else []
    return list(itertools.pairwise(bounds))
