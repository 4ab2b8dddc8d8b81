"""Finds the rows that have landed from a history which the log no longer has.

    epoch A │ landed ────────┤ parts_at ── rows of the lost future ──┤ end
                             └▶ epoch B │ the log goes on

When a job finds that an older copy of the log was put back, it stores in the table where the two
part, for each epoch that the table has received (`penstock.spark.jobs.resuming`). The rows behind
that offset stay in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.plain_types import read_rows
from penstock.spark.tables.columns import (
    rows_inside,
    with_missing_columns,
    with_partition_values,
)
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS, LandedTable, Selection, Span


@dataclass(frozen=True, slots=True)
class LostRows:
    """A range of an epoch that the log no longer has, and how many rows the tables have of it."""

    span: Span
    rows: int
    dead_letters: int


def find_lost_rows(
    tables: Mapping[str, LandedTable], selection_of: Callable[[str], Selection]
) -> tuple[LostRows, ...]:
    """Return the ranges that the log no longer has, without those of which there is no row.

    Args:
        tables: the table of rows, and that of dead letters if there is one.
        selection_of: returns the selection of the tables in an epoch of the log.
    """
    spans = lost_spans(tables[ROWS], selection_of)
    counts = {name: count_rows(table, spans) for name, table in tables.items()}
    found = [
        LostRows(span, rows, counts.get(DEAD_LETTERS, {}).get(span, 0))
        for span, rows in counts[ROWS].items()
    ]
    return tuple(one for one in found if one.rows or one.dead_letters)


def lost_spans(rows: LandedTable, selection_of: Callable[[str], Selection]) -> tuple[Span, ...]:
    """Return the ranges of offsets that have landed and that the log no longer has."""
    found = []
    for epoch in dict.fromkeys(rows.epochs()):
        landed = rows.landed(selection_of(epoch))
        if landed is not None and landed.parts_at is not None and landed.parts_at < landed.end:
            found.append(Span(epoch, landed.parts_at, landed.end))
    return tuple(found)


def count_rows(table: LandedTable, spans: Sequence[Span]) -> dict[Span, int]:
    """Return how many rows of each range a table has."""
    counts = dict.fromkeys(spans, 0)
    for file, _ in table.files() if spans else ():
        positions = read_rows(file, ["epoch", "offset"])
        for span in spans:
            inside = rows_inside(positions, span.epoch, span.start, span.end)
            counts[span] += pc.sum(inside).as_py() or 0
    return counts


def rows_of(table: LandedTable, spans: Sequence[Span]) -> Iterator[pa.Table]:
    """Yield the rows of the ranges that a table has, file by file, with all its columns."""
    schema = table.columns()
    for file, values in table.files() if spans and schema is not None else ():
        rows = read_rows(file)
        for span in spans:
            found = rows.filter(rows_inside(rows, span.epoch, span.start, span.end))
            if found.num_rows:
                found = with_partition_values(found, values, schema)
                yield with_missing_columns(found, schema)
