"""Reads a Delta table in which messages land, and removes files that belong to none of its
versions.

All functions read the table's own log; only `read_table` uses Spark. Every table in which messages
land, decoded or not, has the columns `epoch` and `offset`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from penstock.errors import ConfigError
from penstock.spark.file_rows import rows_of_files
from penstock.spark.plain_types import read_rows
from penstock.spark.storage.local import LocalLocation
from penstock.spark.storage.location import Location
from penstock.spark.storage.opening import PathOrUrl, cleaned, location_of
from penstock.spark.tables.columns import with_missing_columns
from penstock.spark.tables.delta import (
    DeltaMessageTable,
    checked_location,
    contents_of,
    epochs_of,
    open_delta,
    vacuum,
)
from penstock.spark.tables.delta_log import LOG_DIRECTORY
from penstock.spark.tables.landed_table import Contents, Selection, TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SelectionOf = Callable[[str], Selection]
"""Returns the selection of a table in the log with an epoch."""

_PLACE: Final = "_place"
"""The column with the place of a row's epoch among those that the table has received."""

ORPHAN_AGE_H_MIN: Final = 24
"""Hours: younger files may belong to a batch that is being written, and are not removed."""


def read_contents(table: PathOrUrl) -> Contents:
    """Return the contents of the table in `table`.

    Raises:
        ConfigError: there is no table.
        TableError: the table cannot be read.
    """
    location = location_of(table)
    return contents_of(_open(location), location)


def read_landed_end(table: PathOrUrl, epoch: str, stream: str) -> int | None:
    """Return the offset after the last message that has landed in the table in `table`.

    Args:
        table: the path or URL of the table.
        epoch: the epoch of the log.
        stream: the stream that lands in the table.

    Returns:
        None if landing of this log has not begun.

    Raises:
        ConfigError: there is no table.
        TableError: the table cannot be read.
    """
    delta = _open(location_of(table))
    selection = Selection(epoch, stream, tuple(_selected(delta)[1].split(",")))
    return delta.transaction_version(selection.transaction_id)


def open_landed(table: PathOrUrl) -> tuple[DeltaMessageTable, SelectionOf]:
    """Return the table in `table`, and a function for the selection of its messages in an epoch.

    Raises:
        ConfigError: there is no table.
        TableError: the table cannot be read.
    """
    location = location_of(table)
    delta = _open(location)
    schema = pa.schema(delta.schema().to_arrow())
    opened = DeltaMessageTable(location, schema, tuple(delta.metadata().partition_columns))
    stream, topics = _selected(delta)
    return opened, lambda epoch: Selection(epoch, stream, tuple(topics.split(",")))


def newest_rows(table: PathOrUrl, count: int) -> pa.Table:
    """Return the last `count` rows of the table in `table`, the newest first.

    Those of the epoch that the table received last are newer than others, whatever its name.

    Raises:
        ConfigError: there is no table, or no messages land in it.
        TableError: the table cannot be read.
    """
    location = location_of(table)
    delta = _open(location)
    schema = pa.schema(delta.schema().to_arrow())
    places = {epoch: place for place, epoch in enumerate(epochs_of(delta))}

    def newest(file: dict[str, Any]) -> tuple[int, int]:
        """Return the place of the epoch of a file's newest message, at the least, and its
        offset."""
        epochs = {file["min.epoch"], file["max.epoch"]}
        return max(places.get(epoch, -1) for epoch in epochs), file["max.offset"]

    found = schema.empty_table().append_column(_PLACE, pa.array([], pa.int64()))
    for file in sorted(_files(delta), key=newest, reverse=True):
        if found.num_rows >= count:
            oldest = found.slice(count - 1, 1).select([_PLACE, "offset"]).to_pylist()[0]
            if newest(file) < (oldest[_PLACE], oldest["offset"]):
                break  # this file and all further ones have older messages only
        rows = read_rows(location / file["path"])
        for name, value in _partition(file).items():
            column = pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows)
            rows = rows.append_column(name, column)
        rows = with_missing_columns(rows, schema)
        received = [places.get(epoch, -1) for epoch in rows.column("epoch").to_pylist()]
        rows = rows.append_column(_PLACE, pa.array(received, pa.int64()))
        found = pa.concat_tables([found, rows])
        found = found.sort_by([(_PLACE, "descending"), ("offset", "descending")])
    return found.slice(0, count).drop_columns(_PLACE)


def read_table(spark: SparkSession, table: PathOrUrl) -> DataFrame:
    """Return the present rows of the table in `table` as a DataFrame, without a Delta extension.

    The DataFrame reads the present files of the table: rows that land later are not in it.

    Raises:
        ConfigError: there is no table, or it has no rows.
        TableError: the table cannot be read.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.functions import lit
    from pyspark.sql.types import DateType, StructType

    location = location_of(table)
    delta = _open(location)
    schema = StructType.fromJson(json.loads(delta.schema().to_json()))
    parts: dict[tuple[Any, ...], list[Location]] = {}  # by partition values, which the log has
    names: list[str] = []
    for file in _files(delta):
        partition = _partition(file)
        names = list(partition)
        parts.setdefault(tuple(partition.values()), []).append(location / file["path"])
    if not parts:
        raise ConfigError(f"the table in {location} has no rows yet")
    has_dates = all(isinstance(schema[name].dataType, DateType) for name in names)
    if has_dates and isinstance(location, LocalLocation):  # Spark reads them from the directories
        whole = spark.read.schema(schema).option("basePath", location.uri)
        files = [str(file) for group in parts.values() for file in group]
        return whole.parquet(*files).select(*schema.names)
    in_files = StructType([field for field in schema if field.name not in names])
    frames = []
    for values, group in parts.items():
        frame = rows_of_files(spark, group, in_files)
        for name, value in zip(names, values, strict=True):
            frame = frame.withColumn(name, lit(value).cast(schema[name].dataType))
        frames.append(frame.select(*schema.names))
    return reduce(DataFrame.unionAll, frames)


def remove_orphans(
    table: PathOrUrl, older_than_h: int = ORPHAN_AGE_H_MIN, *, remove: bool
) -> list[str]:
    """Remove files below `table` that belong to no version of the table; return their names.

    Args:
        table: the path or URL of the table.
        older_than_h: the least age of the files, in hours. A batch that is being written has files
            that no commit names yet: 0 is safe only while no job runs.
        remove: False to return the names without removing the files.

    Raises:
        ConfigError: there is no table.
        TableError: the table cannot be read, or a file cannot be removed.
    """
    location = location_of(table)
    return vacuum(_open(location), location, older_than_h, remove=remove)


def _selected(delta: DeltaTable) -> tuple[str, str]:
    """Return the stream and the topics of the messages that land in a table, from its
    description."""
    stream, _, topics = (delta.metadata().description or "").partition(", topics ")
    return stream.rpartition(" ")[2], topics.partition(", as ")[0]


def _open(location: Location) -> DeltaTable:
    """Open the table; raise ConfigError if there is none, TableError if it cannot be read."""
    checked_location(location)
    if not (location / LOG_DIRECTORY).has_files():
        raise ConfigError(f"there is no table in {location}")
    try:
        return open_delta(location)
    except Exception as error:  # deltalake raises OSError, DeltaError and others
        cleaned(error, location)
        raise TableError(f"the table in {location} cannot be read: {error}") from error


def _partition(file: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each partition column in a file, from an entry of `_files`."""
    prefix = "partition."
    return {
        name.removeprefix(prefix): value for name, value in file.items() if name.startswith(prefix)
    }


def _files(delta: DeltaTable) -> list[dict[str, Any]]:
    """Return the table's files with their statistics."""
    files: list[dict[str, Any]] = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    if files and "max.offset" not in files[0]:
        raise ConfigError("messages do not land in that table: it has no column offset")
    return files
