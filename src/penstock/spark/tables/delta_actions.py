"""Files of a Delta table, as its log names them: those that are there, come and go."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from penstock.spark.parquet_files import NewFile
from penstock.spark.tables.api import Span
from penstock.spark.tables.tiers import LiveFile


def files_of(delta: DeltaTable) -> list[dict[str, Any]]:
    """The table's files with their statistics; `path` is that of the file on disk.

    The log has paths as in a URL, and so deltalake hands them over: those of files that its
    compaction wrote have the partition's value in them, with %20 for a space.
    """
    files: list[dict[str, Any]] = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return [{**file, "path": unquote(file["path"])} for file in files]


def live_files_of(delta: DeltaTable, partition_by: tuple[str, ...]) -> list[LiveFile]:
    """The files whose rows are all there: where there are deletion vectors nobody knows which."""
    if "deletionVectors" in (delta.protocol().reader_features or ()):
        return []
    return [
        LiveFile(
            path=file["path"],
            partition=tuple(partition_values(file, partition_by).values()),
            rows=file["num_records"],
            size_bytes=file["size_bytes"],
            first=(file.get("min.epoch") or "", file.get("min.offset") or 0),
            written_at_s=file["modification_time"] / 1000,
        )
        for file in files_of(delta)
        if file["num_records"] is not None
    ]


def overlaps(file: dict[str, Any], span: Span) -> bool:
    """Whether a file may have rows of the span."""
    if any(file.get(name) is None for name in ("min.epoch", "max.epoch", "min.offset")):
        return True  # whoever wrote it did not say
    return bool(
        file["min.epoch"] <= span.epoch <= file["max.epoch"]
        and (file["min.epoch"] != file["max.epoch"] or file["min.offset"] < span.end)
        and (file["min.epoch"] != file["max.epoch"] or file["max.offset"] >= span.start)
    )


def partition_values(file: dict[str, Any], partition_by: Sequence[str]) -> dict[str, str | None]:
    """What a file's rows have in the columns that its table is partitioned by, as text."""
    values = {name: file[f"partition.{name}"] for name in partition_by}
    return {name: None if value is None else str(value) for name, value in values.items()}


def remove_action(
    file: dict[str, Any], values: dict[str, str | None], *, moves: bool = False
) -> RemoveAction:
    """Takes a file out of the table; `moves` where the same commit has its rows in another one."""
    return RemoveAction(
        path=file["path"],
        deletion_timestamp=time.time_ns() // 1_000_000,
        data_change=not moves,
        partition_values=values,
        size=file["size_bytes"],
    )


def add_action(file: NewFile, *, moves: bool = False) -> AddAction:
    """Makes a file part of the table; `moves` where its rows were there before."""
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=json.loads(file.partition),
        modification_time=file.modified_at_ms,
        data_change=not moves,
        stats=file.stats,
    )
