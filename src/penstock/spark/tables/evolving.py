"""A table that follows the schema of its subject: new fields become columns while it lands.

    batch ──▶ a newer version of the subject? ──yes──▶ columns added, a line in the log ──▶ landed
                     no, or no answer ───────────────────────────────────────────────▶

A producer registers a schema before it publishes the first message with it. So a check before each
batch precedes any message that needs it, and no value of a new field is lost. Columns
become wider if the table's format allows it (Iceberg), and keep their types otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.config.decoder import Column
from penstock.decoding.registry import RegistryUnavailable
from penstock.decoding.scalars import arrow_type
from penstock.spark.tables.api import ROWS, Batch, LandedTable, Selection
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landing_target import LandingResult, LandingTarget
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

_TYPE_NAMES: Final = (
    "bool", "int8", "int16", "int32", "int64", "float32", "float64", "timestamp", "date", "binary",
    "string",
)  # fmt: skip


class EvolvingTarget:
    """The target for messages of such a table. For one thread at a time.

    Args:
        table: the declaration, by the newest schema.
        target_of: returns the tables of a declaration as a target.
    """

    def __init__(
        self, table: DeclaredTable, target_of: Callable[[DeclaredTable], LandingTarget]
    ) -> None:
        self._table = with_present_types(table)
        self._target_of = target_of
        self._target = target_of(self._table)

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the ranges of the messages, which the tasks read themselves."""
        return self._target.query(spark, options)

    def prepare(self, selection: Selection) -> None:
        """Refuse tables of other messages; add missing columns."""
        self._target.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last that landed; 0 if none did."""
        return self._target.landed_end(selection)

    def land(self, rows: DataFrame, batch: Batch) -> LandingResult:
        """Land one batch in the tables, with the columns that it needs."""
        self._evolve(batch.selection)
        return self._target.land(rows, batch)

    def _evolve(self, selection: Selection) -> None:
        try:
            newest = self._table.newest()
        except RegistryUnavailable:
            return  # a message that needs an unknown schema has the batch tried again
        if newest is self._table:
            return
        table = _with_types_of(newest, newest.open()[ROWS], self._table.schema)
        target = self._target_of(table)
        target.prepare(selection)
        target.take_over(self._target)
        for change in changes(self._table.schema, table.schema, newest.schema):
            logger.warning(
                "table %s: %s, by version %d of its schema",
                table.name,
                Sentence(change),
                table.version,
            )
        self._table, self._target = table, target


def with_present_types(table: DeclaredTable) -> DeclaredTable:
    """Return the table with the column types in which rows are written.

    One that evolves keeps the types of present columns, except those that can be widened.
    """
    if table.definition.evolve != "add":
        return table
    rows = table.open()[ROWS]
    present = rows.columns()
    return table if present is None else _with_types_of(table, rows, present)


def _with_types_of(table: DeclaredTable, rows: LandedTable, present: pa.Schema) -> DeclaredTable:
    """Return the table with the types of present columns, except those that ``rows`` can widen."""
    wanted = rows.layout.schema
    stay = [
        field
        for field in present
        if field.name not in wanted.names or not rows.widens(field, wanted.field(field.name))
    ]
    return table.with_types(types_of(stay))


def changes(before: pa.Schema, after: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    """Yield the differences in a table's columns, each in a few words.

    Args:
        before: the columns before.
        after: the columns after.
        wanted: the columns of the schema.
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


def types_of(present: Iterable[pa.Field]) -> dict[str, Column]:
    """Return the columns of a table with the types of declarations, without unknown types."""
    known = {arrow_type(name): name for name in _TYPE_NAMES}
    found = {}
    for field in present:
        if pa.types.is_decimal128(field.type):
            found[field.name] = Column(type=f"decimal({field.type.precision},{field.type.scale})")
        elif field.type in known:
            found[field.name] = Column(type=known[field.type])
    return found
