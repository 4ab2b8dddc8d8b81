"""What a table of messages holds, for people who ask, and cleaning up what belongs to no table.

All of it reads the table's own log; Spark takes part only in `read_table`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.errors import ConfigError
from penstock.spark.delta_commit import TABLE_SCHEMA, TableError, table_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORPHAN_AGE_H_MIN: Final = 24
"""Files younger than this, in hours, may belong to a batch that is being written, and stay."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table holds.

    Attributes:
        version: of the table; every commit makes one.
        changed_at: when the last one was made (UTC).
        rows: how many messages.
        files: how many Parquet files.
        size_bytes: their length.
        description: which messages they are.
        epoch: of the newest message, or None where there is none.
        landed_end: offset after the newest message, or None.
    """

    version: int
    changed_at: datetime
    rows: int
    files: int
    size_bytes: int
    description: str
    epoch: str | None
    landed_end: int | None


def read_contents(path: Path) -> Contents:
    """Look at the table in `path`.

    Raises:
        ConfigError: there is no table.
        TableError: it cannot be read.
    """
    delta = _open(path)
    files = _files(delta)
    newest = files[0] if files else None
    changed_ms = delta.history(1)[0]["timestamp"]
    return Contents(
        version=delta.version(),
        changed_at=datetime.fromtimestamp(changed_ms / 1000, UTC),
        rows=sum(file["num_records"] for file in files),
        files=len(files),
        size_bytes=sum(file["size_bytes"] for file in files),
        description=delta.metadata().description or "",
        epoch=newest["max.epoch"] if newest else None,
        landed_end=newest["max.offset"] + 1 if newest else None,
    )


def newest_rows(path: Path, count: int) -> pa.Table:
    """The last `count` messages of the table in `path`, the newest first.

    Raises:
        ConfigError: there is no table.
        TableError: it cannot be read.
    """
    delta = _open(path)
    found = TABLE_SCHEMA.empty_table()
    for file in _files(delta):
        if found.num_rows >= count:
            oldest = found.slice(count - 1, 1).select(["epoch", "offset"]).to_pylist()[0]
            if (file["max.epoch"], file["max.offset"]) < (oldest["epoch"], oldest["offset"]):
                break  # this file and those after it hold older messages only
        rows = pq.ParquetFile(path / file["path"]).read()
        date = pa.scalar(file["partition.date"], pa.date32())
        rows = rows.append_column("date", pa.repeat(date, rows.num_rows))
        found = pa.concat_tables([found, rows.select(TABLE_SCHEMA.names).cast(TABLE_SCHEMA)])
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
    return frame.select(*TABLE_SCHEMA.names)


def remove_orphans(path: Path, older_than_h: int = ORPHAN_AGE_H_MIN, *, remove: bool) -> list[str]:
    """Remove files below `path` that are not part of the table; returns their names.

    Args:
        path: the table's directory.
        older_than_h: spare files younger than this, in hours. A batch that is being written has
            files that no commit names yet: 0 is safe only while no job runs.
        remove: False only lists them.
    """
    delta = _open(path)
    try:
        return delta.vacuum(
            retention_hours=older_than_h,
            dry_run=not remove,
            enforce_retention_duration=False,
            full=True,
        )
    except (DeltaError, OSError) as error:
        raise TableError(f"the table in {path} cannot be cleaned: {error}") from error


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
