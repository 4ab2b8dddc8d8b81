"""A table that follows the schema of its subject: new fields become columns while it is landed.

    batch ──▶ a newer version of the subject? ──yes──▶ columns added, a line in the log ──▶ landed
                     no, or nobody answers ──────────────────────────────────────────▶

A producer registers a schema before it publishes the first message with it. So a look before each
batch comes before any message that needs it, and nothing of a field that is new is lost. Columns
become wider where the table's format lets them (Iceberg), and keep their types otherwise.
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
from penstock.spark.tables.landing_target import Landed, LandingPlace
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

_TYPE_NAMES: Final = (
    "bool", "int8", "int16", "int32", "int64", "float32", "float64", "timestamp", "date", "binary",
    "string",
)  # fmt: skip


class EvolvingPlace:
    """Where the messages of such a table land. For one thread at a time.

    Args:
        table: the declaration, by the schema that is the newest now.
        place_of: the tables of a declaration, to land in.
    """

    def __init__(
        self, table: DeclaredTable, place_of: Callable[[DeclaredTable], LandingPlace]
    ) -> None:
        self._table = with_present_types(table)
        self._place_of = place_of
        self._place = place_of(self._table)

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """The ranges of the messages, which the tasks read themselves."""
        return self._place.query(spark, options)

    def prepare(self, selection: Selection) -> None:
        """Refuse tables of other messages; add columns that they do not have yet."""
        self._place.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """The offset after what has landed; 0 when nothing has."""
        return self._place.landed_end(selection)

    def land(self, rows: DataFrame, batch: Batch) -> Landed:
        """Put one batch into the tables, with the columns that it needs."""
        self._evolve(batch.selection)
        return self._place.land(rows, batch)

    def _evolve(self, selection: Selection) -> None:
        try:
            newest = self._table.newest()
        except RegistryUnavailable:
            return  # a message that needs a schema which is not known has the batch tried again
        if newest is self._table:
            return
        table = _kept(newest, newest.open()[ROWS], self._table.schema)
        place = self._place_of(table)
        place.prepare(selection)
        place.take_over(self._place)
        for change in changes(self._table.schema, table.schema, newest.schema):
            logger.warning(
                "table %s: %s, by version %d of its schema",
                table.name,
                Sentence(change),
                table.version,
            )
        self._table, self._place = table, place


def with_present_types(table: DeclaredTable) -> DeclaredTable:
    """The table as it lands: one that evolves keeps the types of the columns that are there, but
    for those that can be widened."""
    if table.definition.evolve != "add":
        return table
    rows = table.open()[ROWS]
    present = rows.columns()
    return table if present is None else _kept(table, rows, present)


def _kept(table: DeclaredTable, rows: LandedTable, present: pa.Schema) -> DeclaredTable:
    wanted = rows.layout.schema
    stay = [
        field
        for field in present
        if field.name not in wanted.names or not rows.widens(field, wanted.field(field.name))
    ]
    return table.with_types(types_of(stay))


def changes(before: pa.Schema, after: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    """What is different in a table's columns, each difference in a few words.

    Args:
        before: they were.
        after: they are.
        wanted: as the schema would have them.
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
    """The columns of a table as a declaration names their types; those it has no name for not."""
    known = {arrow_type(name): name for name in _TYPE_NAMES}
    found = {}
    for field in present:
        if pa.types.is_decimal128(field.type):
            found[field.name] = Column(type=f"decimal({field.type.precision},{field.type.scale})")
        elif field.type in known:
            found[field.name] = Column(type=known[field.type])
    return found
