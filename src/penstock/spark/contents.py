"""What a table of messages holds, for people who ask, and cleaning up what belongs to no table.

All of it reads the table's own log; Spark takes part only in `read_table`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from penstock.errors import ConfigError
from penstock.spark.delta_commit import contents_of, table_directory, vacuum
from penstock.spark.tables.api import Contents, TableError
from penstock.spark.tables.columns import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORPHAN_AGE_H_MIN: Final = 24
"""Files younger than this, in hours, may belong to a batch that is being written, and stay."""


def read_contents(path: Path) -> Contents:
    """Look at the table in `path`.

    Raises:
        ConfigError: there is no table.
        TableError: it cannot be read.
    """
    return contents_of(_open(path))


def newest_rows(path: Path, count: int) -> pa.Table:
    """The last `count` messages of the table in `path`, the newest first.

    Raises:
        ConfigError: there is no table.
        TableError: it cannot be read.
    """
    delta = _open(path)
    found = MESSAGE_SCHEMA.empty_table()
    for file in _files(delta):
        if found.num_rows >= count:
            oldest = found.slice(count - 1, 1).select(["epoch", "offset"]).to_pylist()[0]
            if (file["max.epoch"], file["max.offset"]) < (oldest["epoch"], oldest["offset"]):
                break  # this file and those after it hold older messages only
        rows = pq.ParquetFile(path / file["path"]).read()
        date = pa.scalar(file["partition.date"], pa.date32())
        rows = rows.append_column("date", pa.repeat(date, rows.num_rows))
        found = pa.concat_tables([found, rows.select(MESSAGE_SCHEMA.names).cast(MESSAGE_SCHEMA)])
        found = found.sort_by([("epoch", "descending"), ("offset", "descending")])
    return found.slice(0, count)


def read_table(spark: SparkSession, path: Path) -> DataFrame:
    """The table in `path` as a DataFrame, without a Delta extension: exactly its present files.

    The answer does not change when the table does; read it again to see more.
    """
    delta = _open(path)
    files = [str(path.absolute() / file["path"]) for file in _files(delta)]
    if not files:
        raise ConfigError(f"the table in {path} has no rows yet")
    frame = spark.read.option("basePath", str(path.absolute())).parquet(*files)
    return frame.select(*MESSAGE_SCHEMA.names)


def remove_orphans(path: Path, older_than_h: int = ORPHAN_AGE_H_MIN, *, remove: bool) -> list[str]:
    """Remove files below `path` that are not part of the table; returns their names.

    Args:
        path: the table's directory.
        older_than_h: spare files younger than this, in hours. A batch that is being written has
            files that no commit names yet: 0 is safe only while no job runs.
        remove: False only lists them.
    """
    return vacuum(_open(path), older_than_h, remove=remove)


def _open(path: Path) -> DeltaTable:
    table_directory(path)
    if not (path / "_delta_log").is_dir():
        raise ConfigError(f"there is no table in {path}")
    try:
        return DeltaTable(path)
    except Exception as error:  # deltalake raises OSError, DeltaError and others
        raise TableError(f"the table in {path} cannot be read: {error}") from error


def _files(delta: DeltaTable) -> list[dict[str, Any]]:
    """The table's files with their statistics, the one with the newest message first."""
    files: list[dict[str, Any]] = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return sorted(files, key=lambda file: (file["max.epoch"], file["max.offset"]), reverse=True)
