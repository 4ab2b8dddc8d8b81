"""Files of a table, written anew without some of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.parquet_files import Layout, NewFile, write_files
from penstock.spark.tables.api import ROWS, Span
from penstock.spark.tables.columns import filled, outside

PartitionValues = Mapping[str, str | None]

_PREFIX: Final = "rest"


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
        rows = pq.ParquetFile(path).read()
        for name, value in values.items():
            kind = layout.schema.field(name).type
            scalar = pa.scalar(value, pa.string()).cast(kind)
            rows = rows.append_column(name, pa.repeat(scalar, rows.num_rows))
        yield filled(outside(rows, span.epoch, span.start, span.end), layout.schema)
