"""Files of a table, written anew: without some of their rows, or to have them twice."""

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
    """The layout with all columns of the table, also those that are declared no longer, and with
    the types that they have there: rows that are only written anew keep what they have in them."""
    added = [field for field in layout.schema if field.name not in present.names]
    return replace(layout, schema=pa.schema([*present, *added]))


def not_replaced(span: Span, path: Path) -> TableCommitFailed:
    """What to say when other jobs came first every time."""
    return TableCommitFailed(
        f"the offsets {span.start} to {span.end - 1} were not replaced, for other jobs keep"
        f" changing the table in {path}; run it again"
    )


def copied(files: Iterable[NewFile], layout: Layout) -> list[NewFile]:
    """The same rows in files of their own, for a file can become part of a table once only."""
    pairs = ((Path(layout.directory, file.path), json.loads(file.partition)) for file in files)
    return rewritten(pairs, layout)


def rewritten(files: Iterable[tuple[Path, PartitionValues]], layout: Layout) -> list[NewFile]:
    """New files with the rows of `files`: one for each partition, unless there are many."""
    return rewritten_without(_NOTHING, files, layout)


def rewritten_without(
    span: Span, files: Iterable[tuple[Path, PartitionValues]], layout: Layout
) -> list[NewFile]:
    """New files with the rows of `files` that are not of `span`."""
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
