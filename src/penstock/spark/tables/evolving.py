"""Lands a table that follows the schema of its subject: new fields become columns.

    batch ──▶ a newer version of the subject? ──yes──▶ columns added, a line in the log ──▶ landed
                     no, or no answer ───────────────────────────────────────────────▶

A producer registers a schema before it publishes the first message with it. So a check before each
batch finds the schema before a message that needs it lands, and no value of a new field is lost.
Columns get wider types if the table's format allows it (Iceberg), and otherwise keep their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from penstock.config.decoder import Column
from penstock.decoding.registry import RegistryUnavailable
from penstock.decoding.scalars import arrow_type
from penstock.spark.ranges import MessageRanges
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import (
    ROWS,
    Contents,
    Landed,
    LandedTable,
    PlannedBatch,
    Selection,
)
from penstock.spark.tables.landing_target import LandingResult, LandingTarget
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

_TYPE_NAMES: Final = (
    "bool", "int8", "int16", "int32", "int64", "float32", "float64", "timestamp", "date", "binary",
    "string",
)  # fmt: skip


class EvolvingTarget:
    """The target of such a table. For one thread at a time.

    Args:
        table: the declaration, with the newest schema.
        make_target: returns the target of a declaration.
    """

    def __init__(
        self, table: DeclaredTable, make_target: Callable[[DeclaredTable], LandingTarget]
    ) -> None:
        self._table = with_present_types(table)
        self._make_target = make_target
        self._target = make_target(self._table)

    @property
    def columns(self) -> Sequence[str]:
        """The columns of messages that the pass reads."""
        return self._target.columns

    def prepare(self, selection: Selection) -> None:
        """Check the tables and add missing columns; see `LandedTable`."""
        self._target.prepare(selection)

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed; None if landing has not begun."""
        return self._target.landed(selection)

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs that the table has received, in that order; see `LandedTable`."""
        return self._target.epochs()

    def contents(self) -> Contents | None:
        """Return the contents of the table of rows; None if it does not exist."""
        return self._target.contents()

    def move_end(self, batch: PlannedBatch) -> None:
        """Move the landed end over a range without messages, or to where landing begins."""
        self._target.move_end(batch)

    def reached(self, selection: Selection) -> Landed | None:
        """Return the furthest that either table has of a selection."""
        return self._target.reached(selection)

    def drop_unlanded(self, former: Selection) -> None:
        """Remove dead letters of a former epoch whose batch never landed."""
        self._target.drop_unlanded(former)

    def land(self, messages: MessageRanges, batch: PlannedBatch) -> LandingResult:
        """Add the columns of a newer schema, if there is one, then land one batch."""
        self._evolve(batch.selection)
        return self._target.land(messages.with_columns(self.columns), batch)

    def _evolve(self, selection: Selection) -> None:
        try:
            newest = self._table.newest()
        except RegistryUnavailable:
            return  # if a message needs the new schema, the batch fails and is repeated
        if newest is self._table:
            return
        table = _with_types_of(newest, newest.open()[ROWS], self._table.schema)
        target = self._make_target(table)
        target.prepare(selection)
        for change in describe_changes(self._table.schema, table.schema, newest.schema):
            logger.warning(
                "table %s: %s, by version %d of its schema",
                table.name,
                Sentence(change),
                table.version,
            )
        self._table, self._target = table, target


def with_present_types(table: DeclaredTable) -> DeclaredTable:
    """Return the table with the column types in which rows are written.

    A table with `evolve` keeps the types of present columns, except those that can be widened.
    """
    if table.definition.evolve != "add":
        return table
    rows = table.open()[ROWS]
    present = rows.columns()
    return table if present is None else _with_types_of(table, rows, present)


def _with_types_of(table: DeclaredTable, rows: LandedTable, present: pa.Schema) -> DeclaredTable:
    """Return the table with the types of present columns, except those that can be widened."""
    wanted = rows.layout.schema
    unchanged = [
        field
        for field in present
        if field.name not in wanted.names or not rows.can_widen(field, wanted.field(field.name))
    ]
    return table.with_types(declare_columns(unchanged))


def describe_changes(before: pa.Schema, after: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    """Yield the changes of a table's columns, each in a few words.

    Args:
        before: the columns before the change.
        after: the columns after the change.
        wanted: the columns of the newest schema.
    """
    for field in after:
        if field.name not in before.names:
            yield f"the column {field.name} of type {field.type} is new"
        elif field.type != before.field(field.name).type:
            was = before.field(field.name).type
            yield f"the column {field.name} is {field.type} now, and was {was}"
        elif field.type != wanted.field(field.name).type:
            other = wanted.field(field.name).type
            yield f"the column {field.name} stays {field.type}, though its field is {other}"
    for field in before:
        if field.name not in after.names:
            yield f"the column {field.name} is null from now on"


def declare_columns(present: Iterable[pa.Field]) -> dict[str, Column]:
    """Return declarations of columns, without those whose type a declaration cannot have."""
    known = {arrow_type(name): name for name in _TYPE_NAMES}
    found = {}
    for field in present:
        if pa.types.is_decimal128(field.type):
            found[field.name] = Column(type=f"decimal({field.type.precision},{field.type.scale})")
        elif field.type in known:
            found[field.name] = Column(type=known[field.type])
    return found
