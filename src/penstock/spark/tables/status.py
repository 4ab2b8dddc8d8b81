"""Where a declared table stands: what it holds, and how far it is behind the log."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from penstock.spark.checkpoints import offsets_per_second, read_checkpoint, read_watermark
from penstock.spark.failure_file import Failure, read_failure
from penstock.spark.tables.api import DEAD_LETTERS, ROWS, Contents, LandedTable, Selection
from penstock.spark.tables.upkeep_record import Upkept, read_upkept
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable


class Declared(Protocol):
    """A table of the configuration, declared or derived."""

    stream: str
    topic_filter: str

    @property
    def has_watermark(self) -> bool:
        """Whether it is complete up to a time that its query knows."""

    def selection(self, epoch: str) -> Selection:
        """What it holds of a log."""

    def open(self) -> dict[str, LandedTable]:
        """Its table, and that of dead letters where it has one."""


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
        per_second: offsets of the log that it passed in a second, of late; None where it rests.
        watermark: windows that ended before are in it; None for a table without.
        failure: why it does not land; None where it does.
        upkeep: what was done last to look after it.
    """

    rows: Contents | None
    dead_letters: Contents | None
    landed_end: int | None
    lag: Lag | None
    per_second: float | None
    watermark: datetime | None
    failure: Failure | None
    upkeep: Upkept


def standing(table: Declared, client: StreamClient, checkpoint: Path) -> Standing:
    """Look at a table, and at the log where its service answers."""
    tables = table.open()
    rows = tables[ROWS].contents()
    dead_letters = tables[DEAD_LETTERS].contents() if DEAD_LETTERS in tables else None
    watermark = read_watermark(checkpoint) if table.has_watermark else None
    failure = read_failure(checkpoint)
    upkeep = read_upkept(tables[ROWS].path)
    pace = offsets_per_second(checkpoint, time.time())
    try:
        log = client.offsets(table.stream)
        landed_end = tables[ROWS].landed_end(table.selection(log.epoch))
        done = read_checkpoint(checkpoint).done
        if done is not None and done.only.epoch == log.epoch:
            landed_end = max(landed_end, done.only.offset)  # others' messages are behind it too
        lag = _lag(client, log, table, landed_end)
        return Standing(rows, dead_letters, landed_end, lag, pace, watermark, failure, upkeep)
    except StreamUnavailable:
        return Standing(rows, dead_letters, None, None, pace, watermark, failure, upkeep)


def _lag(client: StreamClient, log: StreamOffsets, table: Declared, landed_end: int) -> Lag:
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
