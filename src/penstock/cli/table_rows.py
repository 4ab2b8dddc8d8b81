"""Rows of a table on the terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.screen import print_table

if TYPE_CHECKING:
    import pyarrow as pa


def print_rows(rows: pa.Table) -> None:
    """The rows, without what is the same in all of them or follows from another column."""
    shown = rows.drop_columns([name for name in ("epoch", "date") if name in rows.column_names])
    kinds = (str(field.type).removesuffix("[us, tz=UTC]") for field in shown.schema)
    headings = (f"{name}\n{kind}" for name, kind in zip(shown.column_names, kinds, strict=True))
    print_table(headings, ([text_of(value) for value in row.values()] for row in shown.to_pylist()))


def text_of(value: Any) -> str:
    """A value in a cell."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return "" if value is None else str(value)
