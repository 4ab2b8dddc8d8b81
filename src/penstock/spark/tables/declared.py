"""A checked declaration of a table: its columns, its directories, and the tables there.

    epoch, offset │ metadata │ message_id │ levels of the topic │ decoded columns │ date

Any part after the first may be empty; `date` exists for tables partitioned by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa

from penstock.config.decoder import Column
from penstock.config.table import IcebergNames, TableDefinition
from penstock.decoding.api import make_decoder, pin_schema
from penstock.decoding.casts import Cast
from penstock.decoding.topic_pattern import TopicPattern
from penstock.errors import ConfigError
from penstock.spark.options import parse_options
from penstock.spark.partition_fields import PARTITIONS_MAX, PartitionField, parse_partition
from penstock.spark.tables.api import DEAD_LETTERS, ROWS, LandedTable, Selection
from penstock.spark.tables.columns import DATE, DEAD_LETTER_SCHEMA
from penstock.spark.tables.decoding_split import MESSAGE_ID, DecodingSplit
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.stream.rows import STREAM_SCHEMA

CATALOG_NAME: Final = "iceberg.db"
"""The SQLite catalog of Iceberg tables, in tables.dir."""

_PARTITION_COLUMN: Final = re.compile(r"[\w-]+")


class DeclaredTable:
    """One `[[tables.declared]]`, checked as far as it can be without a log.

    Raises:
        ConfigError: the declaration contradicts itself, or names a file that cannot be used.
    """

    has_watermark = False
    """Such a table is complete up to the landed offset, whatever times its rows have."""

    def __init__(
        self,
        definition: TableDefinition,
        tables_dir: Path,
        iceberg: IcebergNames = IcebergNames(),  # noqa: B008  # frozen
    ) -> None:
        parse_options({"startingOffsets": definition.starting_offsets})
        self._given = definition
        # The executors make decoders, too, and later: all must use the same version of a schema.
        definition = definition.model_copy(update={"decoder": pin_schema(definition.decoder)})
        self.definition = definition
        self.name = definition.name
        self.stream = definition.stream
        self.path = Path(definition.path or tables_dir / definition.name).absolute()
        self.dead_letters_path = self.path.with_name(f"{self.path.name}_dead_letters")
        self.topic_filter = TopicPattern.parse(definition.topics).topic_filter
        self.schema = _schema(definition)
        self.split = DecodingSplit(definition, self.schema)
        self._tables_dir = tables_dir
        self._iceberg = iceberg

    def selection(self, epoch: str) -> Selection:
        """Return the messages of a log that the table holds."""
        return Selection(epoch, self.stream, (self.topic_filter,))

    def open(self) -> dict[str, LandedTable]:
        """Return the table of rows and that of dead letters; neither need exist yet."""
        it, places = self.definition, (self._tables_dir, self._iceberg)
        rows = (self.path, self.schema, it.partition_by)
        dead = (self.dead_letters_path, DEAD_LETTER_SCHEMA, (DATE,))
        return {
            ROWS: open_table(it.format, *rows, *places, it.partitions_max),
            DEAD_LETTERS: open_table(it.format, *dead, *places),
        }

    @property
    def version(self) -> int:
        """The version of its subject in a schema registry; 0 if it has none."""
        registry = self.definition.decoder.registry
        return 0 if registry is None else registry.version

    def newest(self) -> DeclaredTable:
        """Return the table by the newest schema of its subject.

        Raises:
            ConfigError: a table cannot have this schema.
            RegistryUnavailable: the registry does not answer.
        """
        newest = DeclaredTable(self._given, self._tables_dir, self._iceberg)
        return self if newest.version == self.version else newest

    def with_types(self, types: Mapping[str, Column]) -> DeclaredTable:
        """Return the same table with the types of these columns, by their names."""
        decoder = self.definition.decoder
        columns = {
            name: column.model_copy(update={"type": types[name].type})
            if name in types and _arrow_type(types[name]) != _arrow_type(column)
            else column
            for name, column in decoder.columns.items()
        }
        update = {"decoder": decoder.model_copy(update={"columns": columns})}
        definition = self.definition.model_copy(update=update)
        made = DeclaredTable(definition, self._tables_dir, self._iceberg)
        made._given = self._given
        return made

    @property
    def group(self) -> str | None:
        """The registered reader of its landing; None if it has none."""
        given = self.definition.group
        return self.definition.name if given is None else given or None

    @property
    def id_column(self) -> str:
        """The column that identifies repeats; empty if they are not looked for."""
        repeats = self.definition.repeats
        return "" if repeats is None else repeats.column or MESSAGE_ID


def _arrow_type(column: Column) -> pa.DataType:
    return Cast("", column).field.type


def open_table(
    form: Literal["delta", "iceberg", "parquet"],
    path: Path,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    tables_dir: Path,
    iceberg: IcebergNames = IcebergNames(),  # noqa: B008  # frozen
    partitions_max: int = PARTITIONS_MAX,
) -> LandedTable:
    """Return a table of this format, which need not exist yet."""
    table: LandedTable
    match form:
        case "delta":
            table = DeltaMessageTable(path, schema, partition_by)
        case "iceberg":
            from penstock.spark.tables.iceberg import IcebergTable

            catalog = tables_dir.absolute() / CATALOG_NAME
            table = IcebergTable(path, schema, partition_by, catalog, iceberg)
        case "parquet":
            from penstock.spark.tables.directory import ParquetDirectory

            table = ParquetDirectory(path, schema, partition_by)
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
    """Check that a message has one id, and one that Spark and Arrow write alike."""
    if name not in decoded.names:
        raise ConfigError(
            f"table {table.name} knows repeats by {name}, but its decoder has no"
            f" such column; it has {', '.join(decoded.names)}"
        )
    kind = decoded.field(name).type
    is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if not (is_whole or pa.types.is_string(kind)):
        raise ConfigError(
            f"table {table.name} knows repeats by {name}, which is {kind}; only text and whole"
            " numbers will do"
        )
    decoder = table.decoder
    has_rows = decoder.many or decoder.rows_path or decoder.kind in ("csv", "sparkplug_b")
    is_of_message = name in decoder.columns and decoder.columns[name].path.startswith("$.")
    if has_rows and decoder.rows_max > 1 and not is_of_message:
        raise ConfigError(
            f"table {table.name} knows repeats by {name}, of which a message may have several, one"
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
        of_time = [it for it in by if it.column == one.column and not it.buckets]
        if len(of_time) > 1:
            raise ConfigError(
                f"table {table.name} is partitioned by {one.column} twice: the shorter time alone"
                " does what both would"
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
            " after that: call the column something of letters, digits, _ and -, up to 50 bytes"
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
            f" numbers and dates will do{advice}"
        )
