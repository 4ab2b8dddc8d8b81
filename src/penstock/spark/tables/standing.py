"""Where a declared table stands: what it holds, and how far it is behind the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.spark.checkpoints import read_checkpoint
from penstock.spark.tables.api import DEAD_LETTERS, ROWS, Contents, Selection
from penstock.spark.tables.declared import DeclaredTable
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a table is behind: in offsets of the log, and since the first of its messages that
    is not in it was received, in seconds."""

    offsets: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A table, as `penstock tables status` shows it.

    Attributes:
        rows: what it holds; None while there is none.
        dead_letters: what the table beside it holds; None while there is none.
        landed_end: offset after what has landed, of the log's epoch; None where no log answers.
        lag: how far it is behind; None where no log answers.
    """

    rows: Contents | None
    dead_letters: Contents | None
    landed_end: int | None
    lag: Lag | None


def standing(table: DeclaredTable, client: StreamClient, checkpoint: Path) -> Standing:
    """Look at a table, and at the log where its service answers."""
    tables = table.open()
    rows, dead_letters = tables[ROWS].contents(), tables[DEAD_LETTERS].contents()
    try:
        log = client.offsets(table.definition.stream)
        selection = Selection(log.epoch, log.stream, (table.topic_filter,))
        landed_end = tables[ROWS].landed_end(selection)
        done = read_checkpoint(checkpoint).done
        if done is not None and done.only.epoch == log.epoch:
            landed_end = max(landed_end, done.only.offset)  # others' messages are behind it too
        return Standing(rows, dead_letters, landed_end, _lag(client, log, table, landed_end))
    except StreamUnavailable:
        return Standing(rows, dead_letters, None, None)


def _lag(client: StreamClient, log: StreamOffsets, table: DeclaredTable, landed_end: int) -> Lag:
    offsets = max(0, log.latest - landed_end)
    start = max(landed_end, log.earliest)
    if start < log.latest:
        first = client.read(
            log.stream,
            log.epoch,
            start,
            log.latest,
            topic_filters=[table.topic_filter],
            columns=["received_at"],
        )
        for batch in first:
            age = datetime.now(UTC) - batch.column("received_at")[0].as_py()
            return Lag(offsets, max(0.0, age.total_seconds()))
    return Lag(offsets, 0.0)
