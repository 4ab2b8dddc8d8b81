"""Rewrites files of a table: without some of their rows, merged, or as copies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.parquet_files import Layout, NewFile, write_files
from penstock.spark.plain_types import plain_rows
from penstock.spark.storage.location import Location
from penstock.spark.tables.columns import rows_outside, with_missing_columns, with_partition_values
from penstock.spark.tables.landed_table import ROWS, PartitionValues, Span, TableCommitFailed

_PREFIX: Final = "rest"
_NOTHING: Final = Span("", 0, 0)


def with_columns_of(present: pa.Schema, layout: Layout) -> Layout:
    """Return the layout with all columns of the table, also undeclared ones, in their types there.

    So rows that are rewritten keep their values in these columns.
    """
    added = [field for field in layout.schema if field.name not in present.names]
    return replace(layout, schema=pa.schema([*present, *added]))


def replacement_failed(span: Span, location: Location) -> TableCommitFailed:
    """Return the error of a replacement for which other jobs committed first every time."""
    return TableCommitFailed(
        f"the offsets {span.start} to {span.end - 1} were not replaced, because other jobs"
        f" changed the table in {location} at the same time; run it again"
    )


def copy_files(files: Iterable[NewFile], layout: Layout) -> list[NewFile]:
    """Write the rows of files to new files, because a table can add a file only once."""
    pairs = ((layout.location / file.path, json.loads(file.partition)) for file in files)
    return rewrite_files(pairs, layout)


def rewrite_files(
    files: Iterable[tuple[Location, PartitionValues]], layout: Layout
) -> list[NewFile]:
    """Write the rows of files to new files, and return those.

    There is one file for each partition, or more if rows of many partitions alternate.
    """
    return rewrite_without(_NOTHING, files, layout)


def rewrite_without(
    span: Span, files: Iterable[tuple[Location, PartitionValues]], layout: Layout
) -> list[NewFile]:
    """Write the rows of files that are not of `span` to new files, and return those.

    Args:
        span: the rows to leave out.
        files: each file, and its partition values for columns that it lacks.
        layout: the layout of the new files.
    """
    parts = ({ROWS: part} for part in _parts(span, files, layout))
    return list(write_files({ROWS: layout}, _PREFIX, parts))


def _parts(
    span: Span, files: Iterable[tuple[Location, PartitionValues]], layout: Layout
) -> Iterator[pa.Table]:
    for location, values in files:
        with location.open_input() as content, pq.ParquetFile(content) as file:
            for number in range(file.num_row_groups):
                rows = plain_rows(file.read_row_group(number))
                rows = with_partition_values(rows, values, layout.schema)
                if span.start < span.end:
                    rows = rows_outside(rows, span.epoch, span.start, span.end)
                yield with_missing_columns(rows, layout.schema)
