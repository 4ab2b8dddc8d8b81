"""Reports the status of a declared or derived table: its contents, and its lag behind the log."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from penstock.spark.checkpoints import offsets_per_second, read_checkpoint, read_watermark
from penstock.spark.failure_file import TableFailure, read_failure
from penstock.spark.pace_file import read_pace
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS, Contents, LandedTable, Selection
from penstock.spark.tables.lost_rows import LostRows, find_lost_rows
from penstock.spark.tables.upkeep_record import UpkeepRecord, read_upkeep_record
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable


class ConfiguredTable(Protocol):
    """A table of the configuration, declared or derived."""

    stream: str
    topic_filter: str

    @property
    def has_state(self) -> bool:
        """True if the table is filled by a query with state, whose checkpoint has its position."""

    @property
    def has_watermark(self) -> bool:
        """True if the table is complete up to the watermark of its query."""

    def selection(self, epoch: str) -> Selection:
        """Return the selection of the table in the log with this epoch."""

    def open(self) -> dict[str, LandedTable]:
        """Return the table `ROWS`, and `DEAD_LETTERS` if the table has them."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a table: in offsets of the log, and in seconds since its first missing message was
    received."""

    offsets: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of a table, as `penstock tables status` shows it.

    Attributes:
        rows: the contents of the table; None if it does not exist.
        dead_letters: the contents of its table of dead letters; None if that does not exist.
        landed_end: the offset after the last landed message, in the log's epoch; None if the stream
            service does not answer.
        lag: the lag behind the log; None if the stream service does not answer.
        per_second: the recent number of offsets that the query passes per second; None while idle.
        watermark: the time up to which all closed windows are in the table; None for a table
            without a watermark.
        lost: the rows that have landed from a history which the log no longer has.
        failure: the current failure of the table; None if it lands.
        upkeep: the last maintenance of the table's files.
    """

    rows: Contents | None
    dead_letters: Contents | None
    landed_end: int | None
    lag: Lag | None
    per_second: float | None
    watermark: datetime | None
    failure: TableFailure | None
    upkeep: UpkeepRecord
    lost: tuple[LostRows, ...] = ()


def table_status(table: ConfiguredTable, client: StreamClient, checkpoint: Path) -> TableStatus:
    """Return the status of a table, with its lag if the stream service answers.

    Args:
        table: the table.
        client: a client of the stream service.
        checkpoint: the directory of the table's job.
    """
    tables = table.open()
    rows = tables[ROWS].contents()
    dead_letters = tables[DEAD_LETTERS].contents() if DEAD_LETTERS in tables else None
    watermark = read_watermark(checkpoint) if table.has_watermark else None
    failure = read_failure(checkpoint)
    upkeep = read_upkeep_record(tables[ROWS].location)
    done = read_checkpoint(checkpoint).done if table.has_state else None
    measure_pace = offsets_per_second if table.has_state else read_pace
    per_second = measure_pace(checkpoint, time.time())
    epoch = None if rows is None else rows.epoch
    lost = find_lost_rows(tables, table.selection)
    try:
        log = client.offsets(table.stream, at_least=None if epoch is None else (epoch, 0))
        landed = tables[ROWS].landed(table.selection(log.epoch))
        landed_end = 0 if landed is None else landed.end
        if done is not None and done.single_log.epoch == log.epoch:
            landed_end = max(landed_end, done.single_log.offset)  # batches without rows
        lag = _lag(client, log, table, landed_end)
        return TableStatus(
            rows,
            dead_letters,
            landed_end,
            lag,
            per_second,
            watermark,
            failure,
            upkeep,
            lost,
        )
    except StreamUnavailable:
        return TableStatus(
            rows, dead_letters, None, None, per_second, watermark, failure, upkeep, lost
        )


def _lag(client: StreamClient, log: StreamOffsets, table: ConfiguredTable, landed_end: int) -> Lag:
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
    return Lag(0, 0.0)  # no message between is one of the table's
