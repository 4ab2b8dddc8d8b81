"""Writes Parquet files in executors; they belong to no table until the driver commits them.

    rows of one task ──▶ a file for each partition ──fsync──▶ a line about each file ──▶ driver

One pass may fill several tables: a *split* assigns the rows of a batch of messages to them.

Every attempt writes under new names, so that an attempt that is repeated, or that
runs beside its successor, can never touch a file of a table. The files of a lost
attempt are orphans: they are never read, and `penstock table vacuum` removes them by age.

The files and their directories are synced before the driver gets their names: a table must not name
a file that a power cut can remove.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.parquet_encodings import encodings
from penstock.spark.partition_fields import (
    PARTITIONS_MAX,
    PartitionField,
    parse_partition,
    too_many_partitions,
)

ROW_GROUP_ROWS_MAX: Final = 131_072
"""Rows gathered before they are written as one row group."""

ROW_GROUP_BYTES_MAX: Final = 32 * 1_048_576
"""Bytes gathered before they are written as one row group."""

OPEN_PARTITIONS_MAX: Final = 8
"""Partitions one task writes at a time; a further one closes the file that was opened first."""

STATS_TEXT_LENGTH_MAX: Final = 64
"""A column of text gets no minimum and maximum when they are longer."""

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows whose partition column is null, as Hive named it."""

PARTITION_NAME_LENGTH_MAX: Final = 200
"""Most characters of a partition's value, encoded as in a URL: with the column's name it is the
name of a directory, of at most 255 bytes."""

Split = Callable[[pa.Table], Mapping[str, pa.Table]]
"""Returns the rows of each table, by its name in the pass, of a batch of messages."""


def partition_name(value: str) -> str:
    """Return a partition's value in the name of a directory, as Hive writes it."""
    return urllib.parse.quote(value, safe="")


def hidden_name(name: str) -> str:
    """Return a file name that no reader takes for a part of a table.

    Spark ignores names that begin with a dot, DuckDB and Polars other endings.
    """
    return f".{name}.new"


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table's rows in files.

    Attributes:
        directory: absolute path of the table, the same on every executor.
        schema: its columns.
        partition_by: columns, and transforms of them, by name, with one value in each file.
        keeps_partition_columns: whether the files contain the partition columns, too.
        is_read_by_name: whether readers take any file that they find: then names are hidden until
            the commit, and directories contain the partition's values.
        transforms: the fields of `partition_by` that are not columns.
        partitions_max: the most partitions in which one commit may have files.
    """

    directory: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    keeps_partition_columns: bool = False
    is_read_by_name: bool = False
    transforms: tuple[PartitionField, ...] = ()
    partitions_max: int = PARTITIONS_MAX

    def with_partitions(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the values of partition transforms as further columns."""
        for one in self.transforms:
            rows = rows.append_column(one.name, one.values(rows.column(one.column)))
        return rows

    def check_partitions(self, count: int) -> None:
        """Raise ConfigError if one commit may not have files in so many partitions."""
        if count > self.partitions_max:
            raise too_many_partitions(self.directory, self.partition_by, self.partitions_max)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file."""
        if self.keeps_partition_columns:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def partition(self, values: Sequence[Any]) -> tuple[str | None, ...]:
        """Return the values of the partition columns, as text.

        An empty text is null to Delta [protocol, Partition Value Serialization], and in the name of
        a directory it cannot be read. If the file keeps the column, it stays unchanged.
        """
        texts = (None if value is None else str(value) for value in values)
        return tuple(text if text or self.keeps_partition_columns else None for text in texts)

    def new_path(self, values: Mapping[str, str | None], prefix: str) -> str:
        """Return a new unique name below the directory."""
        name = f"{prefix}-{uuid.uuid4().hex}.parquet"
        if self.is_read_by_name:
            name = hidden_name(name)
        return "/".join([*(self._directory_of(*pair) for pair in values.items()), name])

    def _directory_of(self, column: str, value: str | None) -> str:
        if value is None:
            return f"{column}={NULL_PARTITION}"
        if self.is_read_by_name:
            return f"{column}={partition_name(value)}"
        return f"{column}={re.sub('[^A-Za-z0-9.-]', '_', value)}"  # the table's log has the value


@dataclass(frozen=True, slots=True)
class NewFile:
    """A finished Parquet file.

    Attributes:
        table: the name of its table in the pass.
        path: its path below the table, as in the table's log.
        size_bytes: its length.
        partition: the value of each partition column as text, or null; a JSON object.
        modified_at_ms: when it was finished, ms since the Unix epoch.
        rows: the number of its rows.
        first_offset: the smallest offset in it.
        last_offset: the largest offset in it.
        stats: column statistics as JSON, in the form of the Delta protocol.
    """

    table: str
    path: str
    size_bytes: int
    partition: str
    modified_at_ms: int
    rows: int
    first_offset: int
    last_offset: int
    stats: str


_TYPES: Final = {"str": ("string", pa.string()), "int": ("long", pa.int64())}

FILES_DDL: Final = ", ".join(
    f"{field.name} {_TYPES[str(field.type)][0]}" for field in fields(NewFile)
)
"""The columns that a task returns to the driver: the fields of `NewFile`, for Spark."""

_FILES_SCHEMA: Final = pa.schema(
    [pa.field(field.name, _TYPES[str(field.type)][1]) for field in fields(NewFile)]
)


def file_writer(
    layouts: Mapping[str, Layout], split: Split, batch_id: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `DataFrame.mapInArrow`: messages in, one row for each file out.

    Args:
        layouts: the layouts of the tables, by name.
        split: assigns rows to tables; pickled, and called with the batches in order.
        batch_id: part of the names, for people.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = (split(pa.Table.from_batches([batch])) for batch in batches)
        files = list(write_files(layouts, f"part-{batch_id:010d}", parts))
        if files:
            yield pa.RecordBatch.from_pylist([asdict(file) for file in files], _FILES_SCHEMA)

    return write


def write_files(
    layouts: Mapping[str, Layout], prefix: str, parts: Iterable[Mapping[str, pa.Table]]
) -> Iterator[NewFile]:
    """Write rows below their tables, a file for each partition, and yield each file.

    Args:
        layouts: the layouts of the tables, by name.
        prefix: the beginning of the files' names.
        parts: rows of the tables, by name.
    """
    writers = {name: _TableWriter(name, layout, prefix) for name, layout in layouts.items()}
    for part in parts:
        for name, rows in part.items():
            yield from writers[name].add(rows.cast(layouts[name].schema))
    for writer in writers.values():
        yield from writer.finish()


def check_writable(rows: pa.Table, partition_by: Sequence[str]) -> None:
    """Raise as writing the rows would, for values that Arrow can hold and Python cannot."""
    _spans(rows, [field.name for field in rows.schema if _is_time(field.type)])
    for one in map(parse_partition, partition_by):
        pc.unique(one.values(rows.column(one.column))).to_pylist()


class _TableWriter:
    """Writes the files of one table in one task."""

    def __init__(self, name: str, layout: Layout, prefix: str) -> None:
        self._name = name
        self._layout = layout
        self._prefix = prefix
        self._open: dict[tuple[str | None, ...], _PartitionFile] = {}
        self._seen: set[tuple[str | None, ...]] = set()

    def add(self, rows: pa.Table) -> Iterator[NewFile]:
        """Add rows; yield the files that are finished by that."""
        rows = self._layout.with_partitions(rows)
        for found, chosen in _by_partition(rows, self._layout.partition_by):
            values = self._layout.partition(found)
            self._seen.add(values)
            self._layout.check_partitions(len(self._seen))
            if values not in self._open:
                if len(self._open) >= OPEN_PARTITIONS_MAX:
                    yield self._open.pop(next(iter(self._open))).finish()
                self._open[values] = _PartitionFile(self._name, self._layout, values, self._prefix)
            self._open[values].add(chosen)

    def finish(self) -> Iterator[NewFile]:
        """Finish and yield the open files."""
        for file in self._open.values():
            yield file.finish()


def _by_partition(
    rows: pa.Table, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield the rows of each combination of values, with the values."""
    if not rows.num_rows:
        return
    if not columns:
        yield (), rows
        return
    found = rows.select(columns).group_by(columns, use_threads=False).aggregate([]).to_pylist()
    for values in found:
        chosen = rows
        for name, value in values.items() if len(found) > 1 else ():
            column = chosen.column(name)
            is_equal = pc.is_null(column) if value is None else pc.equal(column, value)
            chosen = chosen.filter(is_equal)
        yield tuple(values.values()), chosen


class _PartitionFile:
    """Writes one file: rows gather, and are written as row groups."""

    def __init__(
        self, name: str, layout: Layout, values: tuple[str | None, ...], prefix: str
    ) -> None:
        self._name = name
        self._table = Path(layout.directory)
        self._schema = layout.file_schema
        self._values = dict(zip(layout.partition_by, values, strict=True))
        self._path = layout.new_path(self._values, prefix)
        (self._table / self._path).parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._table / self._path, self._schema, compression="zstd", **encodings(self._schema)
        )
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._stats = _Stats(self._schema)

    def add(self, rows: pa.Table) -> None:
        """Add rows of this file's partition."""
        self._waiting.append(rows.select(self._schema.names))
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS_MAX or self._waiting_bytes >= ROW_GROUP_BYTES_MAX:
            self._write_group()

    def finish(self) -> NewFile:
        """Close and sync the file, and return it."""
        self._write_group()
        self._writer.close()
        path = self._table / self._path
        sync(path)
        for directory in path.parents:
            sync(directory)
            if directory == self._table:
                break
        first, last = self._stats.span("offset")
        return NewFile(
            table=self._name,
            path=self._path,
            size_bytes=path.stat().st_size,
            partition=json.dumps(self._values),
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

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._columns = [field.name for field in schema if _has_order(field.type)]
        self._nulls = dict.fromkeys(self._columns, 0)
        self._spans: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        """Count further rows of the file."""
        self.rows += rows.num_rows
        for name in self._columns:
            self._nulls[name] += rows.column(name).null_count
        for name, (least, most) in _spans(rows, self._columns).items():
            low, high = self._spans.get(name, (least, most))
            self._spans[name] = (min(low, least), max(high, most))

    def span(self, name: str) -> tuple[int, int]:
        """Return minimum and maximum of a column of integers."""
        low, high = self._spans[name]
        return int(low), int(high)

    def to_json(self) -> str:
        """Return the `stats` of an `add` action [Delta protocol, Per-file Statistics]."""
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
                "nullCount": self._nulls,
            }
        )


def _spans(rows: pa.Table, columns: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Return minimum and maximum of each of these columns that has a value."""
    found = {name: pc.min_max(rows.column(name)).as_py() for name in columns}
    return {name: (span["min"], span["max"]) for name, span in found.items()
            if span["min"] is not None}  # fmt: skip


def _has_order(kind: pa.DataType) -> bool:
    """Return whether a column of this type gets a minimum and a maximum.

    Floats do not: NaN has no order, and a file whose maximum leaves it out would be skipped.
    """
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or _is_time(kind))


def _is_time(kind: pa.DataType) -> bool:
    """Return whether a value of this type may be a date or time outside of Python's range."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _stats_value(value: Any) -> int | str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    assert isinstance(value, (int, str))
    return value


def sync(path: Path) -> None:
    """Sync a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def renew(path: Path) -> None:
    """Set a file's time of change to now: it is about to be replaced.

    Orphans are removed by their age since then.
    """
    with suppress(FileNotFoundError):
        os.utime(path)


def remove_old(files: Iterable[Path], older_than_h: int, *, remove: bool) -> list[str]:
    """Return the names of `files` at least `older_than_h` hours old; delete them if `remove`."""
    latest = time.time() - older_than_h * 3600
    old = [file for file in files if file.stat().st_mtime <= latest]
    for file in old if remove else []:
        file.unlink()
    return [str(file) for file in old]
