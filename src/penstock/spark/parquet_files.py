"""Writes Parquet files in executors; the files belong to no table until the driver commits them.

    rows of one task ──▶ a file for each partition ──durable──▶ a `NewFile` for each ──▶ driver

One pass may fill several tables: a *split* assigns the rows of a batch of messages to them.

Every attempt writes under new names, so that an attempt that is repeated, or that runs at the same
time as its successor, never writes to a file of a table. The files of a lost attempt are orphans:
they are never read, and `penstock table vacuum` removes them by age.

The files are durable before the driver gets their names (`penstock.spark.storage`): a table must
not name a file that a power cut can remove.
"""

from __future__ import annotations

import itertools
import json
import re
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.decoding.decoder import in_parts
from penstock.spark.parquet_encodings import column_encodings
from penstock.spark.partition_fields import (
    PARTITIONS_MAX,
    PartitionField,
    parse_partition,
    too_many_partitions,
)
from penstock.spark.storage.location import Location

ROW_GROUP_ROWS_MAX: Final = 131_072
"""Rows that are buffered before they are written as one row group."""

ROW_GROUP_BYTES_MAX: Final = 32 * 1_048_576
"""Bytes that are buffered before they are written as one row group."""

OPEN_PARTITIONS_MAX: Final = 8
"""Most partitions that one task writes at a time; one more closes the file that was opened
first."""

STATS_TEXT_LENGTH_MAX: Final = 64
"""Most characters of a minimum or maximum; a text column with a longer one gets neither."""

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows whose partition column is null, as Hive named it."""

PARTITION_NAME_LENGTH_MAX: Final = 200
"""Most characters of a partition's value, encoded as in a URL: value and column name together are
the name of a directory, of at most 255 bytes."""

Split = Callable[[pa.Table], Mapping[str, pa.Table]]
"""A function from a batch of messages to the rows of each table, by the name of the table."""


def partition_name(value: str) -> str:
    """Return a partition's value as the name of a directory has it (Hive: encoded as in a URL)."""
    return urllib.parse.quote(value, safe="")


def hidden_name(name: str) -> str:
    """Return a file name that readers of a directory of Parquet files ignore.

    Spark ignores names that begin with a dot, DuckDB and Polars names without the ending .parquet.
    """
    return f".{name}.new"


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table's rows in files.

    Attributes:
        location: the directory of the table, the same on every executor.
        schema: the columns of the table.
        partition_by: names of columns, and of transforms of columns, that have one value in each
            file.
        keeps_partition_columns: whether the files contain the partition columns, too.
        is_read_by_name: whether readers read any file in the directory: then names are hidden until
            the commit, and directories are named after the partition's values.
        transforms: the fields of `partition_by` that are transforms.
        partitions_max: the most partitions in which one commit may have files.
    """

    location: Location
    schema: pa.Schema
    partition_by: tuple[str, ...]
    keeps_partition_columns: bool = False
    is_read_by_name: bool = False
    transforms: tuple[PartitionField, ...] = ()
    partitions_max: int = PARTITIONS_MAX

    def with_partitions(self, rows: pa.Table) -> pa.Table:
        """Return the rows with a column for each partition transform."""
        for one in self.transforms:
            rows = rows.append_column(one.name, one.values(rows.column(one.column)))
        return rows

    def check_partitions(self, count: int) -> None:
        """Raise ConfigError if one commit has files in more partitions than `partitions_max`."""
        if count > self.partitions_max:
            raise too_many_partitions(self.location, self.partition_by, self.partitions_max)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file."""
        if self.keeps_partition_columns:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def partition(self, values: Sequence[Any]) -> tuple[str | None, ...]:
        """Return the values of the partition columns as text, None for null.

        An empty text becomes None, because Delta reads it as null [protocol, Partition Value
        Serialization] and no directory can be named after it, unless the files keep the column.
        """
        texts = (None if value is None else str(value) for value in values)
        return tuple(text if text or self.keeps_partition_columns else None for text in texts)

    def new_path(self, values: Mapping[str, str | None], prefix: str) -> str:
        """Return a new unique path of a file, relative to the directory.

        Args:
            values: the value of each partition column, by name.
            prefix: the beginning of the file's name.
        """
        name = f"{prefix}-{uuid.uuid4().hex}.parquet"
        if self.is_read_by_name:
            name = hidden_name(name)
        return "/".join([*(self._directory_of(*pair) for pair in values.items()), name])

    def _directory_of(self, column: str, value: str | None) -> str:
        if value is None:
            return f"{column}={NULL_PARTITION}"
        if self.is_read_by_name:
            return f"{column}={partition_name(value)}"
        return f"{column}={re.sub('[^A-Za-z0-9.-]', '_', value)}"  # the log has the value


@dataclass(frozen=True, slots=True)
class NewFile:
    """A finished Parquet file.

    Attributes:
        table: the name of the table, such as `ROWS`.
        path: the path of the file, relative to the table's directory.
        size_bytes: the length of the file.
        partition: the value of each partition column as text, or null; a JSON object.
        modified_at_ms: the time when it was finished, in ms since the Unix epoch.
        rows: the number of rows.
        first_offset: the smallest offset in the file.
        last_offset: the largest offset in the file.
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
"""The columns of the rows that a task returns to the driver: the fields of `NewFile`, as DDL."""

_FILES_SCHEMA: Final = pa.schema(
    [pa.field(field.name, _TYPES[str(field.type)][1]) for field in fields(NewFile)]
)


def file_writer(
    layouts: Mapping[str, Layout], split: Split, number: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `DataFrame.mapInArrow`: messages in, one row for each file out.

    Args:
        layouts: the layouts of the tables, by name.
        split: assigns rows to tables; pickled, and called with the batches in order.
        number: the number of the batch, which is in the files' names for people.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        parts = itertools.chain.from_iterable(in_parts(split, table) for table in tables)
        files = list(write_files(layouts, f"part-{number:010d}", parts))
        if files:
            yield pa.RecordBatch.from_pylist([asdict(file) for file in files], _FILES_SCHEMA)

    return write


def write_files(
    layouts: Mapping[str, Layout], prefix: str, parts: Iterable[Mapping[str, pa.Table]]
) -> Iterator[NewFile]:
    """Write rows to files of their tables, one for each partition, and yield each finished file.

    Args:
        layouts: the layouts of the tables, by name.
        prefix: the beginning of the files' names.
        parts: for each part of the batch, the rows of the tables, by name.

    Raises:
        ConfigError: a table would get files in too many partitions.
    """
    writers = {name: _TableWriter(name, layout, prefix) for name, layout in layouts.items()}
    try:
        for part in parts:
            for name, rows in part.items():
                yield from writers[name].add(rows.cast(layouts[name].schema))
        for writer in writers.values():
            yield from writer.finish()
    finally:
        for writer in writers.values():
            writer.discard()


def check_writable(rows: pa.Table, partition_by: Sequence[str]) -> None:
    """Raise the error of writing for values that Arrow can hold and Python cannot, such as
    dates."""
    _min_max_by_column(rows, [field.name for field in rows.schema if _is_time(field.type)])
    for one in map(parse_partition, partition_by):
        pc.unique(one.values(rows.column(one.column))).to_pylist()


class _TableWriter:
    """Writes the files of one table in one task."""

    def __init__(self, name: str, layout: Layout, prefix: str) -> None:
        self._name = name
        self._layout = layout
        self._prefix = prefix
        self._open_files: dict[tuple[str | None, ...], _PartitionFile] = {}
        self._partitions: set[tuple[str | None, ...]] = set()

    def add(self, rows: pa.Table) -> Iterator[NewFile]:
        """Add rows; yield files that are closed because too many partitions are open."""
        rows = self._layout.with_partitions(rows)
        for found, chosen in _partition_rows(rows, self._layout.partition_by):
            values = self._layout.partition(found)
            self._partitions.add(values)
            self._layout.check_partitions(len(self._partitions))
            if values not in self._open_files:
                if len(self._open_files) >= OPEN_PARTITIONS_MAX:
                    yield self._open_files.pop(next(iter(self._open_files))).finish()
                self._open_files[values] = _PartitionFile(
                    self._name, self._layout, values, self._prefix
                )
            self._open_files[values].add(chosen)

    def finish(self) -> Iterator[NewFile]:
        """Finish and yield the open files."""
        while self._open_files:
            yield self._open_files.pop(next(iter(self._open_files))).finish()

    def discard(self) -> None:
        """Forget the files that are open: their task failed."""
        for file in self._open_files.values():
            file.discard()


def _partition_rows(
    rows: pa.Table, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield, for each combination of values in these columns, the values and their rows."""
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
    """Writes one file: buffers rows, and writes them as row groups."""

    def __init__(
        self, name: str, layout: Layout, values: tuple[str | None, ...], prefix: str
    ) -> None:
        self._name = name
        self._schema = layout.file_schema
        self._values = dict(zip(layout.partition_by, values, strict=True))
        self._path = layout.new_path(self._values, prefix)
        self._file = (layout.location / self._path).open_output()
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            compression="zstd",
            **column_encodings(self._schema),
        )
        self._buffer: list[pa.Table] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._stats = _Stats(self._schema)

    def add(self, rows: pa.Table) -> None:
        """Add rows of this file's partition."""
        self._buffer.append(rows.select(self._schema.names))
        self._buffered_rows += rows.num_rows
        self._buffered_bytes += rows.nbytes
        if self._buffered_rows >= ROW_GROUP_ROWS_MAX or self._buffered_bytes >= ROW_GROUP_BYTES_MAX:
            self._write_group()

    def finish(self) -> NewFile:
        """Close the file, so that it is durable, and return it."""
        self._write_group()
        self._writer.close()
        size_bytes = self._file.tell()
        self._file.close()
        first, last = self._stats.span("offset")
        return NewFile(
            table=self._name,
            path=self._path,
            size_bytes=size_bytes,
            partition=json.dumps(self._values),
            modified_at_ms=time.time_ns() // 1_000_000,
            rows=self._stats.rows,
            first_offset=first,
            last_offset=last,
            stats=self._stats.to_json(),
        )

    def discard(self) -> None:
        """Forget the file."""
        with suppress(OSError):  # the end of the file, which the disk may refuse as the rest
            self._writer.close()
        self._file.discard()

    def _write_group(self) -> None:
        if not self._buffer:
            return
        group = pa.concat_tables(self._buffer)
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        self._stats.add(group)
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0


class _Stats:
    """Counts rows and nulls of a file, and finds minimum and maximum of columns, for a Delta
    log."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._columns = [field.name for field in schema if _has_order(field.type)]
        self._nulls = dict.fromkeys(self._columns, 0)
        self._min_max_by_column: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        """Include more rows of the file."""
        self.rows += rows.num_rows
        for name in self._columns:
            self._nulls[name] += rows.column(name).null_count
        for name, (least, most) in _min_max_by_column(rows, self._columns).items():
            low, high = self._min_max_by_column.get(name, (least, most))
            self._min_max_by_column[name] = (min(low, least), max(high, most))

    def span(self, name: str) -> tuple[int, int]:
        """Return minimum and maximum of a column of integers."""
        low, high = self._min_max_by_column[name]
        return int(low), int(high)

    def to_json(self) -> str:
        """Return the `stats` of an `add` action [Delta protocol, Per-file Statistics]."""
        spans = {
            name: (_stats_value(low), _stats_value(high))
            for name, (low, high) in self._min_max_by_column.items()
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


def _min_max_by_column(rows: pa.Table, columns: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Return minimum and maximum of these columns, by name, without columns of nulls only."""
    found = {name: pc.min_max(rows.column(name)).as_py() for name in columns}
    return {name: (span["min"], span["max"]) for name, span in found.items()
            if span["min"] is not None}  # fmt: skip


def _has_order(kind: pa.DataType) -> bool:
    """Return whether a column of this type gets a minimum and a maximum.

    Floats do not: NaN has no order, and a file whose maximum leaves it out would be skipped.
    """
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or _is_time(kind))


def _is_time(kind: pa.DataType) -> bool:
    """Return whether a type is a date or time, whose values may be outside of Python's range."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _stats_value(value: Any) -> int | str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    assert isinstance(value, (int, str))
    return value
