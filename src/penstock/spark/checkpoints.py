"""Reads the checkpoint of a query without Spark, and stores the query's selection in it.

    <checkpoint>/metadata     {"id": query id}
    <checkpoint>/offsets/N    batch N was planned: version, Spark's metadata, then the end position
    <checkpoint>/commits/N    batch N is committed

A batch that is planned and not committed is replayed when the query starts again.

Only tables whose query has state have one. Penstock adds two files to those of Spark:

    <checkpoint>/penstock-selection.json   stream, topics and derivation of the query
    <checkpoint>/penstock-landed.json      number of the last batch with rows in the table

Spark's files have offsets, and not which messages before them the query read. A query that
continued with another selection would silently leave out messages of that selection before its
offset. The second file tells a table that is older than the state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.spark.offsets import Position
from penstock.spark.storage.local import sync
from penstock.spark.topics import selection_text

_METADATA_LINE: Final = 1
_LINES_BEFORE_SOURCES: Final = 2
_NO_POSITION: Final = "-"

_LANDED_NAME: Final = "penstock-landed.json"

SELECTION_NAME: Final = "penstock-selection.json"
"""The name of the file with the query's selection, in the checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress of a query.

    Attributes:
        planned: the end of the last planned batch; None if there is none.
        done: the end of the last committed batch; None if there is none.
    """

    planned: Position | None
    done: Position | None


def read_checkpoint(directory: Path) -> Checkpoint:
    """Return the progress in the checkpoint of a query with one source.

    Raises:
        ConfigError: a file of the checkpoint cannot be read.
    """
    planned = _last_batch(directory / "offsets")
    done = _last_batch(directory / "commits")
    return Checkpoint(
        planned=None if planned is None else read_planned_end(directory, planned),
        done=None if done is None else read_planned_end(directory, done),
    )


def read_query_id(directory: Path) -> str | None:
    """Return the id of the query that the checkpoint belongs to; None without one.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = directory / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the checkpoint file {path} cannot be read: {error}") from error


def note_batch(directory: Path, batch_id: int) -> None:
    """Store the number of the last batch that the table has rows of."""
    unfinished = directory / f"{_LANDED_NAME}.new"
    unfinished.write_text(json.dumps({"batch": batch_id}), encoding="utf-8")
    sync(unfinished)
    unfinished.replace(directory / _LANDED_NAME)
    sync(directory)


def read_noted_batch(directory: Path) -> int:
    """Return the number of the last batch that the table had rows of; -1 if unknown.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = directory / _LANDED_NAME
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["batch"])
    except FileNotFoundError:
        return -1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the checkpoint file {path} cannot be read: {error}") from error


def offsets_per_second(directory: Path, now_s: float, within_s: float = 60.0) -> float | None:
    """Return the mean number of offsets per second that the query passed in its latest batches.

    The mean is that of the batches committed in the last ``within_s`` seconds; if only one was, of
    that batch and the one before.

    Args:
        directory: the checkpoint.
        now_s: the present time, in seconds since the Unix epoch.
        within_s: the age of the oldest batch that counts, in seconds.

    Returns:
        None if there are fewer than two such batches: the query has just begun, is idle, or
        stopped.
    """
    times_s: dict[int, float] = {}
    for batch in reversed(_batches(directory / "commits")):
        try:
            done_s = (directory / "commits" / str(batch)).stat().st_mtime
        except FileNotFoundError:  # Spark has just removed this batch and all older ones
            break
        if done_s < now_s - within_s and len(times_s) != 1:
            break
        times_s[batch] = done_s
    if len(times_s) < 2:
        return None
    first, last = min(times_s), max(times_s)
    begin, end = read_planned_end(directory, first), read_planned_end(directory, last)
    duration_s = times_s[last] - times_s[first]
    if (
        begin is None
        or end is None
        or begin.single_log.epoch != end.single_log.epoch
        or duration_s <= 0
    ):
        return None
    return (end.single_log.offset - begin.single_log.offset) / duration_s


def last_planned(directory: Path) -> int:
    """Return the number of the last planned batch; -1 if there is none."""
    found = _last_batch(directory / "offsets")
    return -1 if found is None else found


def read_watermark(directory: Path) -> datetime | None:
    """Return the watermark of the query, before which rows are late; None if it has none yet.

    Raises:
        ConfigError: a file of the checkpoint cannot be read.
    """
    planned = _last_batch(directory / "offsets")
    if planned is None:
        return None
    path = directory / "offsets" / str(planned)
    try:
        written = json.loads(path.read_text(encoding="utf-8").splitlines()[_METADATA_LINE])
        watermark_ms = int(written["batchWatermarkMs"])
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise ConfigError(f"the checkpoint file {path} cannot be read: {error}") from error
    return datetime.fromtimestamp(watermark_ms / 1000, UTC) if watermark_ms > 0 else None


def store_selection(
    directory: Path, stream: str, topics: Sequence[str], derivation: str = ""
) -> None:
    """Store the selection of a new query in its checkpoint; compare that of a query that has begun.

    Args:
        directory: the checkpoint, which exists.
        stream: name of the stream.
        topics: MQTT topic filters, in any order; empty for every message of the stream.
        derivation: the computation on the messages, in words; empty if they land unchanged.

    Raises:
        ConfigError: the checkpoint was made for another selection, or cannot be used.
    """
    path = directory / SELECTION_NAME
    selection: dict[str, Any] = {"stream": stream, "topics": sorted(set(topics))}
    if derivation:
        selection["derivation"] = derivation
    try:
        if path.exists() and _last_batch(directory / "offsets") is not None:
            stored = json.loads(path.read_text(encoding="utf-8"))
        else:
            stored = selection
            unfinished = path.with_name(f"{SELECTION_NAME}.new")
            unfinished.write_text(json.dumps(selection, ensure_ascii=False), encoding="utf-8")
            sync(unfinished)
            unfinished.replace(path)
            sync(directory)
        described = _describe(stored)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the checkpoint file {path} cannot be used: {error}") from error
    if stored != selection:
        raise ConfigError(
            f"the checkpoint in {directory} was made for {described}, and with"
            f" {_describe(selection)} messages before its offsets would be missing; give another"
            f" --checkpoint, or remove {directory} to begin anew"
        )


def _describe(selection: dict[str, Any]) -> str:
    which = selection_text(selection["stream"], selection["topics"])
    return which + str(selection.get("derivation", ""))


def _last_batch(log: Path) -> int | None:
    return max(_batches(log), default=None)


def _batches(log: Path) -> list[int]:
    """Return the numbers of the batches that a directory of the checkpoint has, ascending."""
    if not log.is_dir():
        return []
    return sorted(int(path.name) for path in log.iterdir() if path.name.isdigit())


def read_planned_end(directory: Path, batch_id: int) -> Position | None:
    """Return the end of a planned batch; None if it has none, or its file was removed.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = directory / "offsets" / str(batch_id)
    try:
        line = path.read_text(encoding="utf-8").splitlines()[_LINES_BEFORE_SOURCES]
        return None if line == _NO_POSITION else Position.from_spark(json.loads(line))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(f"the checkpoint file {path} cannot be read: {error}") from error
