"""What Spark's checkpoint says about a query, read without Spark.

    <checkpoint>/metadata     {"id": query id}
    <checkpoint>/offsets/N    batch N was planned: version, Spark's own line, then a position
    <checkpoint>/commits/N    batch N is done

A batch that is planned and not done is replayed when the query starts again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.spark.offsets import Position

_LINES_BEFORE_SOURCES: Final = 2
_NO_POSITION: Final = "-"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a query has come; None where it has not.

    Attributes:
        planned: the end of the last batch that was planned.
        done: the end of the last batch that is done.
    """

    planned: Position | None
    done: Position | None


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read the checkpoint of a query with one source; empty where there is none yet."""
    planned = _last_batch(directory / "offsets")
    done = _last_batch(directory / "commits")
    return Checkpoint(
        planned=None if planned is None else _read_end(directory, planned),
        done=None if done is None else _read_end(directory, done),
    )


def _last_batch(log: Path) -> int | None:
    if not log.is_dir():
        return None
    return max((int(path.name) for path in log.iterdir() if path.name.isdigit()), default=None)


def _read_end(directory: Path, batch_id: int) -> Position | None:
    path = directory / "offsets" / str(batch_id)
    try:
        line = path.read_text(encoding="utf-8").splitlines()[_LINES_BEFORE_SOURCES]
        return None if line == _NO_POSITION else Position.from_spark(json.loads(line))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(f"the checkpoint file {path} cannot be read: {error}") from error
