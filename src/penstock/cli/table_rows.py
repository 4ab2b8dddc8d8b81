"""Prints rows of a table on the terminal, or in a pipe.

    a terminal   values truncated to its width; with too many columns, a line for each value
    a pipe       a line for each row, values truncated to 60 characters
    in full      whole values: a line for each value on a terminal, for each row in a pipe

Values are truncated before anything else is done with them: a payload may have 256 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.screen import Screen
from penstock.cli.table_lines import VALUE_CELLS_MAX, Row, fitting_lines, row_lines, value_lines
from penstock.telemetry.logs import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.tables.erased import ErasedMessages
    from penstock.spark.tables.landed_table import LandedTable, Span
    from penstock.spark.tables.lost_rows import LostRows


def print_rows(rows: pa.Table, *, full: bool = False) -> None:
    """Print rows, without columns that are constant or follow from another one.

    Args:
        rows: rows of a table.
        full: show whole values.
    """
    shown = rows.drop_columns([name for name in ("epoch", "date") if name in rows.column_names])
    kinds = [str(field.type).removesuffix("[us, tz=UTC]") for field in shown.schema]
    values = zip(*(column.to_pylist() for column in shown.columns), strict=True)
    print_values((shown.column_names, kinds), [*values], full=full)


def lost_line(lost: LostRows) -> str:
    """Return a sentence about rows of a history that the log does not have."""
    dead_letters = f" and {lost.dead_letters:,} dead letters" if lost.dead_letters else ""
    span = lost.span
    return (
        f"{lost.rows:,} rows{dead_letters} of epoch {span.epoch}, offsets {span.start:,} to"
        f" {span.end - 1:,}, are of a history that the log does not have"
    )


def erased_line(erased: ErasedMessages, *, is_restored: bool) -> str:
    """Return a sentence about messages that a backfill found to be without rows."""
    topics = ", ".join(f"{topic} ({messages:,})" for topic, messages in erased.topics)
    if erased.topics_count > len(erased.topics):
        topics += f" and {erased.topics_count - len(erased.topics):,} more"
    messages = (
        f"  {erased.messages:,} messages of which the table had no row: offsets {erased.first} to"
        f" {erased.last}, topics {topics}. "
    )
    if is_restored:
        return f"{messages}They are there now"
    return (
        f"{messages}They are left out: their rows were deleted since they landed, or a job of"
        " Penstock 0.1.0 that came back to an older checkpoint never landed them; the same command"
        " with --restore-deleted lands them again"
    )


def print_lost_rows(table: LandedTable, span: Span, count: int, *, full: bool) -> None:
    """Print rows of a range that the log does not have.

    Args:
        table: the table.
        span: the range.
        count: most rows to print.
        full: show whole values.
    """
    from penstock.spark.tables.lost_rows import rows_of

    for found in rows_of(table, [span]):
        print_rows(found.slice(0, count), full=full)
        count -= min(count, found.num_rows)
        if not count:
            return


def print_values(headings: Sequence[Row], rows: Sequence[Sequence[Any]], *, full: bool) -> None:
    """Print the values of rows below the lines of headings, each with a text for each column."""
    screen = Screen()
    limit = None if full else max(VALUE_CELLS_MAX, screen.width)
    texts = [[printable(text_of(value, limit)) for value in row] for row in rows]
    if not screen.is_terminal:
        lines = row_lines(headings, texts, None if full else VALUE_CELLS_MAX)
    elif full:
        lines = value_lines(headings[0], texts)
    else:
        lines = fitting_lines(headings, texts, screen.width)
    for line in lines:
        print(line)


def text_of(value: Any, limit: int | None = None) -> str:
    """Return a value as text, at most `limit` + 1 characters of it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if value is None:
        return ""
    if limit is None:
        return str(value)
    if isinstance(value, (str, bytes)):
        value = value[: limit + 1]
    return str(value)[: limit + 1]
