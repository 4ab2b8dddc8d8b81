"""The status of a declared table: its contents, and how far it is behind the log."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from penstock.spark.checkpoints import offsets_per_second, read_checkpoint, read_watermark
from penstock.spark.failure_file import TableFailure, read_failure
from penstock.spark.tables.api import DEAD_LETTERS, ROWS, Contents, LandedTable, Selection
from penstock.spark.tables.upkeep_record import UpkeepRecord, read_upkeep_record
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable


class Declared(Protocol):
    """A table of the configuration, declared or derived."""

    stream: str
    topic_filter: str

    @property
    def has_watermark(self) -> bool:
        """True if it is complete up to a time that its query knows."""

    def selection(self, epoch: str) -> Selection:
        """Return the messages of a log that it holds."""

    def open(self) -> dict[str, LandedTable]:
        """Return the opened table, and the table of dead letters if it has one."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a table: in offsets of the log, and in seconds since its first missing message."""

    offsets: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of a table, as `penstock tables status` shows it.

    Attributes:
        rows: its contents; None if it does not exist.
        dead_letters: the contents of its table of dead letters; None if that does not exist.
        landed_end: offset after the last that landed, of the log's epoch; None if no log answers.
        lag: how far it is behind; None if no log answers.
        per_second: offsets of the log that it passed in a second, of late; None while it is idle.
        watermark: windows that ended before it are in the table; None for a table without.
        failure: why it does not land; None if it does.
        upkeep: the last maintenance of its files.
    """

    rows: Contents | None
    dead_letters: Contents | None
    landed_end: int | None
    lag: Lag | None
    per_second: float | None
    watermark: datetime | None
    failure: TableFailure | None
    upkeep: UpkeepRecord


def table_status(table: Declared, client: StreamClient, checkpoint: Path) -> TableStatus:
    """Return the status of a table, and of the log if its service answers."""
    tables = table.open()
    rows = tables[ROWS].contents()
    dead_letters = tables[DEAD_LETTERS].contents() if DEAD_LETTERS in tables else None
    watermark = read_watermark(checkpoint) if table.has_watermark else None
    failure = read_failure(checkpoint)
    upkeep = read_upkeep_record(tables[ROWS].path)
    pace = offsets_per_second(checkpoint, time.time())
    try:
        done = read_checkpoint(checkpoint).done
        known = None if done is None else (done.only.epoch, 0)
        log = client.offsets(table.stream, at_least=known)
        landed_end = tables[ROWS].landed_end(table.selection(log.epoch))
        if done is not None and done.only.epoch == log.epoch:
            landed_end = max(landed_end, done.only.offset)  # other topics count as landed
        lag = _lag(client, log, table, landed_end)
        return TableStatus(rows, dead_letters, landed_end, lag, pace, watermark, failure, upkeep)
    except StreamUnavailable:
        return TableStatus(rows, dead_letters, None, None, pace, watermark, failure, upkeep)


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
