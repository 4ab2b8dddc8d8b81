"""Checks the declaration of a derived table, and opens its source and the table.

    epoch, offset │ columns of the kind

`epoch` and `offset` are those of the last message that contributed to a row.
"""

from __future__ import annotations

from typing import Final, Protocol, get_args

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.config.derived import RECEIVED_AT, DerivedDefinition
from penstock.config.table import Metadata, TableDefinition
from penstock.errors import ConfigError
from penstock.spark.derived.aggregation import Aggregation
from penstock.spark.derived.keyed_aggregation import LATE, KeyedAggregation
from penstock.spark.derived.last_known import LastKnown
from penstock.spark.derived.silence import Silence
from penstock.spark.options import parse_options
from penstock.spark.tables.declared import DeclaredTable, open_table
from penstock.spark.tables.landed_table import ROWS, LandedTable, Selection
from penstock.spark.tables.places import TablePlaces

_METADATA: Final[tuple[Metadata, ...]] = get_args(Metadata)


class Derivation(Protocol):
    """Computes rows of a derived table from messages of its source."""

    schema: pa.Schema
    """The columns of the derived table."""

    @property
    def description(self) -> str:
        """The computation in words; it identifies the table, so it must not change."""

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return a stream of rows for a stream of messages (of candidates for `last_known`)."""


class DerivedTable:
    """One `[[tables.derived]]`, with all checks that need no log.

    Args:
        definition: the declaration.
        source: the declaration of the source.
        places: the directories of tables, and their catalog.

    Raises:
        ConfigError: the declaration contradicts itself or its source.
    """

    def __init__(
        self,
        definition: DerivedDefinition,
        source: TableDefinition,
        places: TablePlaces,
    ) -> None:
        parse_options({"startingOffsets": definition.starting_offsets})
        self.definition = definition
        self.name = definition.name
        self.stream = source.stream
        self.location = places.table(definition.name, definition.path)
        self.job_dir = places.job_dir(self.name, self.location)
        self.births_dir = places.births_dir(self.name, self.location)
        self._places = places
        self.source = DeclaredTable(_with_metadata(source, definition, places), places)
        self.topic_filter = self.source.topic_filter
        self._check(source)
        self.derivation = self._derivation()
        _check_names(definition, self.derivation.schema)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.derivation.schema

    @property
    def group(self) -> str | None:
        """The name of the table's query as a registered reader; None if it is none."""
        group = self.definition.group
        return self.definition.name if group is None else group or None

    @property
    def has_state(self) -> bool:
        """True if the table is filled by a query with state, whose checkpoint has its position."""
        return not isinstance(self.derivation, LastKnown)

    @property
    def has_watermark(self) -> bool:
        """True if the table is complete up to the watermark of its query."""
        return isinstance(self.derivation, Aggregation)

    def selection(self, epoch: str) -> Selection:
        """Return the messages of the log with this epoch from which the table is computed."""
        description = f", as {self.derivation.description}"
        return Selection(epoch, self.stream, (self.topic_filter,), description)

    def open(self) -> dict[str, LandedTable]:
        """Return the table under the name `ROWS`; it need not exist yet."""
        form = self.definition.format
        return {ROWS: open_table(form, self.location, self.schema, (), self._places)}

    def _derivation(self) -> Derivation:
        match self.definition.kind:
            case "windowed" | "sessions":
                if self.definition.event_time == RECEIVED_AT:
                    return Aggregation(self.definition, self.source)
                return KeyedAggregation(self.definition, self.source)
            case "last_known":
                return LastKnown(self.definition, self.source)
            case "silent":
                return Silence(self.definition, self.source)

    def _check(self, source: TableDefinition) -> None:
        definition, types = self.definition, self.source.schema
        if source.repeats is not None:
            raise ConfigError(
                f"table {definition.name} has the source {source.name}, which leaves out repeats:"
                " nothing can be derived from such a table yet; declare the source again, without"
                " repeats and under another name"
            )
        columns = [*definition.keys, definition.event_time]
        if definition.kind in ("windowed", "sessions"):
            columns += [
                text.partition("(")[2].rstrip(")") for text in definition.aggregates.values()
            ]
        for name in filter(None, columns):
            if name not in types.names:
                raise ConfigError(
                    f"table {definition.name} needs the column {name}, and its source {source.name}"
                    f" has none; it has {', '.join(types.names)}"
                )
        if not pa.types.is_timestamp(types.field(definition.event_time).type):
            raise ConfigError(
                f"table {definition.name} has the event_time {definition.event_time}, which is"
                f" {types.field(definition.event_time).type}; it must be a timestamp"
            )
        for key in definition.keys:
            if pa.types.is_nested(types.field(key).type):
                raise ConfigError(
                    f"table {definition.name} has the key {key}, which is {types.field(key).type};"
                    " only single values are possible"
                )


def _with_metadata(
    source: TableDefinition, definition: DerivedDefinition, places: TablePlaces
) -> TableDefinition:
    """Return the source with the metadata columns that the derivation needs, and no partitions."""
    present = DeclaredTable(source, places).schema.names
    needed = [name for name in (RECEIVED_AT, *definition.keys) if name not in present]
    metadata = tuple(name for name in _METADATA if name in (*source.metadata, *needed))
    return source.model_copy(update={"metadata": metadata, "partition_by": ()})


def _check_names(definition: DerivedDefinition, schema: pa.Schema) -> None:
    folded = [name.lower() for name in schema.names]
    for name in schema.names:
        if folded.count(name.lower()) > 1:
            raise ConfigError(
                f"table {definition.name} has two columns {name}: give one of them another name;"
                f" the names {', '.join(folded[:2])}, {LATE} and the columns of its kind are fixed"
            )
