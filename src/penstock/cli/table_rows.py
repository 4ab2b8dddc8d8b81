"""Rows of a table on the terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from penstock.telemetry.logs import printable

if TYPE_CHECKING:
    import pyarrow as pa


def print_rows(console: Console, rows: pa.Table) -> None:
    """The rows, without what is the same in all of them or follows from another column."""
    listing = Table(box=None, pad_edge=False)
    shown = rows.drop_columns([name for name in ("epoch", "date") if name in rows.column_names])
    for field in shown.schema:
        kind = str(field.type).removesuffix("[us, tz=UTC]")
        listing.add_column(f"{field.name}\n{kind}", overflow="fold")
    for row in shown.to_pylist():
        listing.add_row(*(text_of(value) for value in row.values()))
    console.print(listing, highlight=False, markup=False)


def text_of(value: Any) -> str:
    """A value as a terminal may show it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return "" if value is None else printable(str(value))  # for terminals obey some characters
