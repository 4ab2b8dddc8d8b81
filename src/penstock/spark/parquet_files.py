"""Executors write Parquet files, which belong to no table until the driver commits them.

    rows of one task ──▶ a file for each date ──fsync──▶ one line about each file ──▶ driver

Every attempt writes under names never used before, so that an attempt that is repeated, or that
runs beside its successor, can never touch a file that is part of a table already. What a lost
attempt leaves behind is an orphan: nobody reads it, and `penstock table vacuum` removes it by age.

The files and their directories are synced before the driver hears of them: a table must not name a
file that a power cut can take away.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.stream.rows import STREAM_SCHEMA

ROW_GROUP_ROWS_MAX: Final = 131_072
"""Rows gathered before they are written as one row group."""

ROW_GROUP_BYTES_MAX: Final = 32 * 1_048_576
"""Bytes gathered before they are written as one row group."""

OPEN_DATES_MAX: Final = 8
"""Dates one task writes at a time; a further one closes the file of the earliest."""

STATS_TEXT_LENGTH_MAX: Final = 64
"""A column of text gets no minimum and maximum when they are longer."""

PARTITION_COLUMN: Final = "date"

_STATS_COLUMNS: Final = ("epoch", "offset", "received_at", "topic", "qos", "client_id")

FILES_DDL: Final = (
    "path string, size_bytes long, date string, modified_at_ms long, rows long,"
    " first_offset long, last_offset long, stats string"
)
"""The columns of what a task tells the driver: the fields of `NewFile`, for Spark."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A finished Parquet file.

    Attributes:
        path: below the table, as the table's log names it.
        size_bytes: its length.
        date: the partition, YYYY-MM-DD.
        modified_at_ms: when it was finished, ms since the Unix epoch.
        rows: how many it holds.
        first_offset: the smallest offset in it.
        last_offset: the largest offset in it.
        stats: column statistics as JSON, in the form of the Delta protocol.
    """

    path: str
    size_bytes: int
    date: str
    modified_at_ms: int
    rows: int
    first_offset: int
    last_offset: int
    stats: str


_FILES_SCHEMA: Final = pa.schema(
    [
        pa.field(field.name, pa.string() if field.type == "str" else pa.int64())
        for field in fields(NewFile)
    ]
)


def file_writer(
    table: str, batch_id: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `DataFrame.mapInArrow` runs in each task: rows in, one row for each file out.

    Args:
        table: absolute path of the table, the same on every executor.
        batch_id: goes into the names, for people who look.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = list(write_files(Path(table), f"part-{batch_id:010d}", batches))
        if files:
            yield pa.RecordBatch.from_pylist([asdict(file) for file in files], _FILES_SCHEMA)

    return write


def write_files(table: Path, prefix: str, batches: Iterator[pa.RecordBatch]) -> Iterator[NewFile]:
    """Write rows of `STREAM_SCHEMA` below `table`, a file for each date, and tell about each.

    Args:
        table: the table's directory.
        prefix: how the files' names begin.
        batches: the rows.
    """
    open_files: dict[str, _DateFile] = {}
    for batch in batches:
        for date, rows in _by_date(pa.Table.from_batches([batch]).cast(STREAM_SCHEMA)):
            if date not in open_files:
                if len(open_files) >= OPEN_DATES_MAX:
                    yield open_files.pop(min(open_files)).finish()
                open_files[date] = _DateFile(table, date, prefix)
            open_files[date].add(rows)
    for date_file in open_files.values():
        yield date_file.finish()


def _by_date(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    dates = rows.column("received_at").cast(pa.date32())
    distinct = pc.unique(dates)
    for date in distinct:
        chosen = rows if len(distinct) == 1 else rows.filter(pc.equal(dates, date))
        if chosen.num_rows:
            yield date.as_py().isoformat(), chosen


class _DateFile:
    """One file being written: rows gather, and go out as row groups."""

    def __init__(self, table: Path, date: str, prefix: str) -> None:
        self._table = table
        self._date = date
        self._path = f"{PARTITION_COLUMN}={date}/{prefix}-{uuid.uuid4().hex}.parquet"
        (table / self._path).parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(table / self._path, STREAM_SCHEMA, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._stats = _Stats()

    def add(self, rows: pa.Table) -> None:
        """Take rows of this file's date."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS_MAX or self._waiting_bytes >= ROW_GROUP_BYTES_MAX:
            self._write_group()

    def finish(self) -> NewFile:
        """Close and sync the file."""
        self._write_group()
        self._writer.close()
        path = self._table / self._path
        for synced in (path, path.parent, self._table):
            sync(synced)
        first, last = self._stats.span("offset")
        return NewFile(
            path=self._path,
            size_bytes=path.stat().st_size,
            date=self._date,
            modified_at_ms=time.time_ns() // 1_000_000,
            rows=self._stats.rows,
            first_offset=first,
            last_offset=last,
            stats=self._stats.to_json(),
        )

    def _write_group(self) -> None:
        if not self._waiting:
            return
        group = pa.concat_tables(self._waiting)
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        self._stats.add(group)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class _Stats:
    """Row count, minimum, maximum and nulls of a file's columns, as a Delta log wants them."""

    def __init__(self) -> None:
        self.rows = 0
        self._spans: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        """Take more rows of the file into account."""
        self.rows += rows.num_rows
        for name in _STATS_COLUMNS:
            found = pc.min_max(rows.column(name)).as_py()
            low, high = self._spans.get(name, (found["min"], found["max"]))
            self._spans[name] = (min(low, found["min"]), max(high, found["max"]))

    def span(self, name: str) -> tuple[int, int]:
        """Minimum and maximum of a column of integers."""
        low, high = self._spans[name]
        return int(low), int(high)

    def to_json(self) -> str:
        """The `stats` of an `add` action [Delta protocol, Per-file Statistics]."""
        spans = {
            name: (_stats_value(low), _stats_value(high))
            for name, (low, high) in self._spans.items()
            if not isinstance(low, str) or max(len(low), len(high)) <= STATS_TEXT_LENGTH_MAX
        }
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: low for name, (low, _) in spans.items()},
                "maxValues": {name: high for name, (_, high) in spans.items()},
                "nullCount": dict.fromkeys(spans, 0),
            }
        )


def _stats_value(value: Any) -> int | str:
    if isinstance(value, (int, str)):
        return value
    return str(value.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def sync(path: Path) -> None:
    """Have the system write a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
