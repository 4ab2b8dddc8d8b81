"""Reads the file entries of a Delta table's log, and makes the actions that add and remove
files."""

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
from penstock.spark.tables.landed_table import Span
from penstock.spark.tables.tiers import LiveFile


def files_of(delta: DeltaTable) -> list[dict[str, Any]]:
    """Return the table's files with their statistics; `path` is the path of the file on disk.

    deltalake returns paths in URL form, as the log has them: the path of a file that its compaction
    wrote has the partition's value, with %20 for a space.
    """
    files: list[dict[str, Any]] = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return [{**file, "path": unquote(file["path"])} for file in files]


def live_files_of(delta: DeltaTable, partition_by: tuple[str, ...]) -> list[LiveFile]:
    """Return the files that may be merged: none if the table may have deletion vectors."""
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
    """Return whether a file may have rows of the span."""
    if any(file.get(name) is None for name in ("min.epoch", "max.epoch", "min.offset")):
        return True  # the writer of the file stored no statistics
    return bool(
        file["min.epoch"] <= span.epoch <= file["max.epoch"]
        and (file["min.epoch"] != file["max.epoch"] or file["min.offset"] < span.end)
        and (file["min.epoch"] != file["max.epoch"] or file["max.offset"] >= span.start)
    )


def partition_values(file: dict[str, Any], partition_by: Sequence[str]) -> dict[str, str | None]:
    """Return the value of each partition column in a file, as text; None for null."""
    values = {name: file[f"partition.{name}"] for name in partition_by}
    return {name: None if value is None else str(value) for name, value in values.items()}


def remove_action(
    file: dict[str, Any], values: dict[str, str | None], *, moves: bool = False
) -> RemoveAction:
    """Return the action that removes a file.

    Args:
        file: the file, from `files_of`.
        values: the values of the partition columns.
        moves: whether the same commit adds the rows of the file in other files.
    """
    return RemoveAction(
        path=file["path"],
        deletion_timestamp=time.time_ns() // 1_000_000,
        data_change=not moves,
        partition_values=values,
        size=file["size_bytes"],
    )


def add_action(file: NewFile, *, moves: bool = False) -> AddAction:
    """Return the action that adds a file.

    Args:
        file: the file.
        moves: whether the rows of the file were in the table before.
    """
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=json.loads(file.partition),
        modification_time=file.modified_at_ms,
        data_change=not moves,
        stats=file.stats,
    )


def declaration(created: bytes, delta: DeltaTable) -> bytes:
    """Return the commit that gives a table the columns and partitions of another, which is empty.

    Args:
        created: the commit that created the other table.
        delta: the table; its id stays, and its protocol unless the columns need more.
    """
    lines = []
    for line in created.splitlines():
        action = json.loads(line)
        if "commitInfo" in action:
            action["commitInfo"] |= {"operation": "REPLACE TABLE", "operationParameters": {}}
        if "metaData" in action:
            action["metaData"]["id"] = delta.metadata().id
        if "protocol" in action:
            wanted, present = action["protocol"], delta.protocol()
            for name, found in (
                ("readerFeatures", present.reader_features),
                ("writerFeatures", present.writer_features),
            ):
                if features := {*wanted.get(name, ()), *(found or ())}:
                    wanted[name] = sorted(features)
            for name, at_least in (
                ("minReaderVersion", present.min_reader_version),
                ("minWriterVersion", present.min_writer_version),
            ):
                wanted[name] = max(wanted[name], at_least)
        lines.append(json.dumps(action, ensure_ascii=False) + "\n")
    return "".join(lines).encode()
