"""Rewrites files of a table: without some of their rows, or as copies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.parquet_files import Layout, NewFile, write_files
from penstock.spark.plain_types import plain_rows
from penstock.spark.tables.api import ROWS, Span, TableCommitFailed
from penstock.spark.tables.columns import filled, outside

PartitionValues = Mapping[str, str | None]

_PREFIX: Final = "rest"
_NOTHING: Final = Span("", 0, 0)


def with_columns_of(present: pa.Schema, layout: Layout) -> Layout:
    """Return the layout with all columns of the table, also undeclared ones, with their types in
    the table.

    Rows that are only rewritten keep their values in them.
    """
    added = [field for field in layout.schema if field.name not in present.names]
    return replace(layout, schema=pa.schema([*present, *added]))


def not_replaced(span: Span, path: Path) -> TableCommitFailed:
    """Return the error for a replacement when other jobs came first every time."""
    return TableCommitFailed(
        f"the offsets {span.start} to {span.end - 1} were not replaced, for other jobs keep"
        f" changing the table in {path}; run it again"
    )


def copied(files: Iterable[NewFile], layout: Layout) -> list[NewFile]:
    """Return the same rows in new files, because a file can become part of a table only once."""
    pairs = ((Path(layout.directory, file.path), json.loads(file.partition)) for file in files)
    return rewritten(pairs, layout)


def rewritten(files: Iterable[tuple[Path, PartitionValues]], layout: Layout) -> list[NewFile]:
    """Return new files with the rows of `files`: one for each partition, unless there are many."""
    return rewritten_without(_NOTHING, files, layout)


def rewritten_without(
    span: Span, files: Iterable[tuple[Path, PartitionValues]], layout: Layout
) -> list[NewFile]:
    """Return new files with the rows of `files` that are not of `span`."""
    parts = ({ROWS: part} for part in _parts(span, files, layout))
    return list(write_files({ROWS: layout}, _PREFIX, parts))


def _parts(
    span: Span, files: Iterable[tuple[Path, PartitionValues]], layout: Layout
) -> Iterator[pa.Table]:
    for path, values in files:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                rows = plain_rows(file.read_row_group(number))
                for name in (values.keys() & set(layout.schema.names)) - set(rows.column_names):
                    kind = layout.schema.field(name).type
                    scalar = pa.scalar(values[name], pa.string()).cast(kind)
                    rows = rows.append_column(name, pa.repeat(scalar, rows.num_rows))
                if span.start < span.end:
                    rows = outside(rows, span.epoch, span.start, span.end)
                yield filled(rows, layout.schema)
