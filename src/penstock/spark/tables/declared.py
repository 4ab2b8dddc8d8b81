"""Checks the declaration of a table, and opens its two tables: of rows, and of dead letters.

    epoch, offset │ metadata │ message_id │ levels of the topic │ decoded columns │ date

Each part of the columns but the first may be empty; tables partitioned by date have `date`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

import pyarrow as pa

from penstock.config.decoder import Column
from penstock.config.table import TableDefinition
from penstock.decoding.casts import Cast
from penstock.decoding.factory import make_decoder, pin_schema
from penstock.decoding.topic_pattern import TopicPattern
from penstock.errors import ConfigError
from penstock.spark.options import parse_options
from penstock.spark.partition_fields import PARTITIONS_MAX, PartitionField, parse_partition
from penstock.spark.storage.location import Location
from penstock.spark.tables.columns import DATE, DEAD_LETTER_SCHEMA
from penstock.spark.tables.decoding_split import MESSAGE_ID, DecodingSplit
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS, LandedTable, Selection
from penstock.spark.tables.places import TablePlaces
from penstock.stream.rows import STREAM_SCHEMA

_PARTITION_COLUMN: Final = re.compile(r"[\w-]+")


class DeclaredTable:
    """One `[[tables.declared]]`, with all checks that need no log.

    Args:
        definition: the declaration.
        places: the directories of tables, and their catalog.

    Raises:
        ConfigError: the declaration contradicts itself, or names a file that cannot be used.
    """

    has_state = False
    """False: the table itself says what has landed."""

    has_watermark = False
    """False: the table is complete up to the landed offset, not up to a time."""

    def __init__(
        self,
        definition: TableDefinition,
        places: TablePlaces,
    ) -> None:
        parse_options({"startingOffsets": definition.starting_offsets})
        self._unpinned_definition = definition
        # Executors make decoders later: all must use the same version of a registered schema.
        definition = definition.model_copy(update={"decoder": pin_schema(definition.decoder)})
        self.definition = definition
        self.name = definition.name
        self.stream = definition.stream
        self.location = places.table(definition.name, definition.path)
        self.dead_letters_location = self.location.with_name(f"{self.location.name}_dead_letters")
        self.topic_filter = TopicPattern.parse(definition.topics).topic_filter
        self.schema = _schema(definition)
        self.split = DecodingSplit(definition, self.schema)
        self.job_dir = places.job_dir(self.name, self.location)
        self.births_dir = places.births_dir(self.name, self.location)
        self.places = places

    def selection(self, epoch: str) -> Selection:
        """Return the selection of the table in the log with this epoch."""
        return Selection(epoch, self.stream, (self.topic_filter,))

    def open(self) -> dict[str, LandedTable]:
        """Return the tables `ROWS` and `DEAD_LETTERS`; neither need exist yet."""
        definition, places = self.definition, self.places
        rows = (self.location, self.schema, definition.partition_by)
        dead_letters = (self.dead_letters_location, DEAD_LETTER_SCHEMA, (DATE,))
        return {
            ROWS: open_table(definition.format, *rows, places, definition.partitions_max),
            DEAD_LETTERS: open_table(definition.format, *dead_letters, places),
        }

    @property
    def version(self) -> int:
        """The version of the decoder's registered schema; 0 without a schema registry."""
        registry = self.definition.decoder.registry
        return 0 if registry is None else registry.version

    def newest(self) -> DeclaredTable:
        """Return the table with the newest schema of its subject; itself if that has not changed.

        Raises:
            ConfigError: a table cannot have this schema.
            RegistryUnavailable: the registry does not answer.
        """
        newest = DeclaredTable(self._unpinned_definition, self.places)
        return self if newest.version == self.version else newest

    def with_types(self, types: Mapping[str, Column]) -> DeclaredTable:
        """Return the table with these types of its columns, by name; other columns are ignored."""
        decoder = self.definition.decoder
        columns = {
            name: column.model_copy(update={"type": types[name].type})
            if name in types and _arrow_type(types[name]) != _arrow_type(column)
            else column
            for name, column in decoder.columns.items()
        }
        update = {"decoder": decoder.model_copy(update={"columns": columns})}
        definition = self.definition.model_copy(update=update)
        table = DeclaredTable(definition, self.places)
        table._unpinned_definition = self._unpinned_definition
        return table

    @property
    def group(self) -> str | None:
        """The name of the table's landing as a registered reader; None if it is none."""
        group = self.definition.group
        return self.definition.name if group is None else group or None

    @property
    def id_column(self) -> str:
        """The column with the id by which repeats are found; empty if they are not looked for."""
        repeats = self.definition.repeats
        return "" if repeats is None else repeats.column or MESSAGE_ID


def _arrow_type(column: Column) -> pa.DataType:
    return Cast("", column).field.type


def open_table(
    form: Literal["delta", "iceberg", "parquet"],
    location: Location,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    places: TablePlaces,
    partitions_max: int = PARTITIONS_MAX,
) -> LandedTable:
    """Return a table of this format, which need not exist yet.

    Args:
        form: the format.
        location: the directory of the table.
        schema: the columns of the table.
        partition_by: the texts of the partition fields.
        places: the directories of tables, and their catalog.
        partitions_max: the most partitions in which one commit may have files.
    """
    table: LandedTable
    match form:
        case "delta":
            table = DeltaMessageTable(location, schema, partition_by)
        case "iceberg":
            from penstock.spark.tables.iceberg import IcebergTable

            table = IcebergTable(location, schema, partition_by, places.catalog, places.iceberg)
        case "parquet":
            from penstock.spark.tables.directory import ParquetDirectory

            table = ParquetDirectory(location, schema, partition_by)
    table.layout = replace(table.layout, partitions_max=partitions_max)
    return table


def _schema(table: TableDefinition) -> pa.Schema:
    decoded = make_decoder(table.decoder).schema
    parts: list[pa.Schema] = [
        pa.schema([STREAM_SCHEMA.field(name) for name in ("epoch", "offset", *table.metadata)]),
        TopicPattern.parse(table.topics).schema,
        decoded,
    ]
    if table.repeats is not None and table.repeats.column:
        _check_id(table, table.repeats.column, decoded)
    if table.repeats is not None and table.repeats.user_property:
        parts.insert(1, pa.schema([pa.field(MESSAGE_ID, pa.string())]))
    if DATE in table.partition_by:
        parts.append(pa.schema([pa.field(DATE, pa.date32())]))
    fields = [field for part in parts for field in part]
    _check(table, fields)
    return pa.schema(fields)


def _check_id(table: TableDefinition, name: str, decoded: pa.Schema) -> None:
    """Raise ConfigError unless a message has one id, of a type that Spark and Arrow write alike."""
    if name not in decoded.names:
        raise ConfigError(
            f"table {table.name} finds repeats by {name}, but its decoder has no"
            f" such column; it has {', '.join(decoded.names)}"
        )
    kind = decoded.field(name).type
    is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if not (is_whole or pa.types.is_string(kind)):
        raise ConfigError(
            f"table {table.name} finds repeats by {name}, which is {kind}; only text and whole"
            " numbers are possible"
        )
    decoder = table.decoder
    has_rows = decoder.has_many_rows or decoder.kind in ("csv", "sparkplug_b")
    is_of_message = name in decoder.columns and decoder.columns[name].path.startswith("$.")
    if has_rows and decoder.rows_max > 1 and not is_of_message:
        raise ConfigError(
            f"table {table.name} finds repeats by {name}, of which a message may have several, one"
            f' in each row: take it from the payload (path = "$.{name}"), from a user property,'
            " or set rows_max = 1"
        )


def _check(table: TableDefinition, fields: list[pa.Field]) -> None:
    types: dict[str, pa.DataType] = {}
    for field in fields:
        if field.name.lower() in {name.lower() for name in types}:
            raise ConfigError(
                f"table {table.name} has two columns {field.name}: give one of them another name,"
                " in its topics or its decoder"
            )
        types[field.name] = field.type
    by = [parse_partition(text) for text in table.partition_by]
    for one in by:
        _check_partition(table, one, types)
        time_fields = [other for other in by if other.column == one.column and not other.buckets]
        if len(time_fields) > 1:
            raise ConfigError(
                f"table {table.name} is partitioned by {one.column} twice: use only the field of"
                " the shorter time"
            )


def _check_partition(
    table: TableDefinition, one: PartitionField, types: Mapping[str, pa.DataType]
) -> None:
    if one.column not in types:
        raise ConfigError(
            f"table {table.name} is partitioned by {one.column}, but has no such column; it has"
            f" {', '.join(types)}"
        )
    if _PARTITION_COLUMN.fullmatch(one.name) is None or len(one.name.encode()) > 50:
        raise ConfigError(
            f"table {table.name} is partitioned by {one.column!r}, and directories cannot be named"
            " after that: name the column with letters, digits, _ and -, up to 50 bytes"
        )
    kind = types[one.column]
    if not one.is_column:
        if table.format != "iceberg":
            raise ConfigError(
                f"table {table.name} is partitioned by {one.transform}({one.column}), which only"
                " format iceberg has; let the decoder make a column of it"
            )
        if one.name in types:
            raise ConfigError(
                f"table {table.name} is partitioned by {one.transform}({one.column}), whose name"
                f" is {one.name} as that of a column: give the column another name"
            )
        one.check(table.name, kind)
        return
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)):
        advice = "; with format iceberg also hour(…) of it" if pa.types.is_timestamp(kind) else ""
        raise ConfigError(
            f"table {table.name} is partitioned by {one.column}, which is {kind}; only text, whole"
            f" numbers and dates are possible{advice}"
        )
