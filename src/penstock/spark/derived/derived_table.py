"""A derived table, ready to fill: its source, its columns, and the table.

    epoch, offset │ columns of the kind

`epoch` and `offset` are those of the last message of which a row is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol, get_args

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.config.derived import RECEIVED_AT, DerivedDefinition
from penstock.config.table import IcebergNames, Metadata, TableDefinition
from penstock.errors import ConfigError
from penstock.spark.derived.aggregation import Aggregation
from penstock.spark.derived.keyed_aggregation import LATE, KeyedAggregation
from penstock.spark.derived.last_known import LastKnown
from penstock.spark.derived.silence import Silence
from penstock.spark.options import parse_options
from penstock.spark.tables.api import ROWS, LandedTable, Selection
from penstock.spark.tables.declared import DeclaredTable, open_table

_METADATA: Final[tuple[Metadata, ...]] = get_args(Metadata)


class Derivation(Protocol):
    """Computes rows of the table from rows of the source."""

    schema: pa.Schema
    """The table's columns."""

    @property
    def wording(self) -> str:
        """The computation in words; a table of other words is another table."""

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return the query: from a stream of messages to a stream of rows, or of their sources."""


class DerivedTable:
    """One `[[tables.derived]]`, checked as far as it can be without a log.

    Raises:
        ConfigError: the declaration contradicts itself or its source.
    """

    def __init__(
        self,
        definition: DerivedDefinition,
        source: TableDefinition,
        tables_dir: Path,
        iceberg: IcebergNames = IcebergNames(),  # noqa: B008  # frozen
    ) -> None:
        parse_options({"startingOffsets": definition.starting_offsets})
        self.definition = definition
        self.name = definition.name
        self.stream = source.stream
        self.path = Path(definition.path or tables_dir / definition.name).absolute()
        self._places = (tables_dir, iceberg)
        self.source = DeclaredTable(_with_metadata(source, definition, tables_dir), tables_dir)
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
        """The registered reader of its query; None if it has none."""
        given = self.definition.group
        return self.definition.name if given is None else given or None

    @property
    def has_watermark(self) -> bool:
        """True if it is complete up to a time that its query knows."""
        return isinstance(self.derivation, Aggregation)

    def selection(self, epoch: str) -> Selection:
        """Return the messages of a log that the table holds."""
        wording = f", as {self.derivation.wording}"
        return Selection(epoch, self.stream, (self.topic_filter,), wording)

    def open(self) -> dict[str, LandedTable]:
        """Return the table, which need not exist yet."""
        form = self.definition.format
        return {ROWS: open_table(form, self.path, self.schema, (), *self._places)}

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
        it, types = self.definition, self.source.schema
        if source.repeats is not None:
            raise ConfigError(
                f"table {it.name} has the source {source.name}, which leaves out repeats: nothing"
                " can be derived from such a table yet; declare the source once more without"
                " repeats, under another name"
            )
        columns = [*it.keys, it.event_time]
        if it.kind in ("windowed", "sessions"):
            columns += [text.partition("(")[2].rstrip(")") for text in it.aggregates.values()]
        for name in filter(None, columns):
            if name not in types.names:
                raise ConfigError(
                    f"table {it.name} needs the column {name}, and its source {source.name} has"
                    f" none; it has {', '.join(types.names)}"
                )
        if not pa.types.is_timestamp(types.field(it.event_time).type):
            raise ConfigError(
                f"table {it.name} has the event_time {it.event_time}, which is"
                f" {types.field(it.event_time).type}; it must be a timestamp"
            )
        for key in it.keys:
            if pa.types.is_nested(types.field(key).type):
                raise ConfigError(
                    f"table {it.name} has the key {key}, which is {types.field(key).type}; only"
                    " single values will do"
                )


def _with_metadata(
    source: TableDefinition, definition: DerivedDefinition, tables_dir: Path
) -> TableDefinition:
    """Return the source with the further metadata that is needed of each message."""
    present = DeclaredTable(source, tables_dir).schema.names
    needed = [one for one in (RECEIVED_AT, *definition.keys) if one not in present]
    metadata = tuple(one for one in _METADATA if one in (*source.metadata, *needed))
    return source.model_copy(update={"metadata": metadata, "partition_by": ()})


def _check_names(definition: DerivedDefinition, schema: pa.Schema) -> None:
    folded = [name.lower() for name in schema.names]
    for name in schema.names:
        if folded.count(name.lower()) > 1:
            raise ConfigError(
                f"table {definition.name} has two columns {name}: give one of them another name;"
                f" the names {', '.join(folded[:2])}, {LATE} and the columns of its kind are fixed"
            )
