"""The columns of tables in which messages land, and how a declaration may change them.

A declared column that the table lacks is added; older rows have null in it. A column that is no
longer declared stays; new rows have null in it. A column may get a wider type if the format allows
it. Nothing else may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError
from penstock.spark.parquet_files import Layout
from penstock.spark.storage.location import Location
from penstock.stream.rows import STREAM_SCHEMA

DATE: Final = "date"
"""The column with the UTC date of `received_at`, by which tables are partitioned."""

MESSAGE_SCHEMA: Final = STREAM_SCHEMA.append(pa.field(DATE, pa.date32()))
"""The columns of a table of undecoded messages: those of the stream, and the date."""

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        *(STREAM_SCHEMA.field(name) for name in ("epoch", "offset", "received_at", "topic")),
        STREAM_SCHEMA.field("payload"),
        pa.field("kind", pa.string()),
        pa.field("reason", pa.string()),
        pa.field(DATE, pa.date32()),
    ]
)
"""The columns of a table of dead letters; `kind` is broken, repeated or empty."""


def with_missing_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with exactly the columns of a schema, with null in missing columns."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def with_partition_values(
    rows: pa.Table, values: Mapping[str, str | None], schema: pa.Schema
) -> pa.Table:
    """Return rows of a file with the partition columns that the file lacks, from their values."""
    for name in (values.keys() & set(schema.names)) - set(rows.column_names):
        scalar = pa.scalar(values[name], pa.string()).cast(schema.field(name).type)
        rows = rows.append_column(name, pa.repeat(scalar, rows.num_rows))
    return rows


CanWiden = Callable[[pa.Field, pa.Field], bool]
"""A function that tells whether a present column may get another type: `LandedTable.can_widen`."""


def is_declared_anew(present: pa.Schema, partition_by: Sequence[str], layout: Layout) -> bool:
    """Return whether a table has other columns or partitions than its layout."""
    declared = layout.schema
    return tuple(partition_by) != layout.partition_by or any(
        field.name not in declared.names or declared.field(field.name).type != field.type
        for field in present
    )


def columns_to_add(
    location: Location,
    present: pa.Schema,
    declared: pa.Schema,
    can_widen: CanWiden = lambda _present, _: False,
) -> list[pa.Field]:
    """Return declared columns that the table in `location` lacks, or has with a narrower type.

    Raises:
        ConfigError: the table has a column with another type, or in another case.
    """
    wider: list[pa.Field] = []
    for field in declared:
        found = present.field(field.name) if field.name in present.names else field
        if found.type == field.type:
            continue
        if not can_widen(found, field):
            raise ConfigError(
                f"the table in {location} has the column {field.name} of type {found.type}, and"
                f" {field.type} is declared; give the new one another name, or land in another"
                " table"
            )
        wider.append(field)
    added = [field for field in declared if field.name not in present.names]
    names_by_lower_case = {name.lower(): name for name in present.names}
    for field in added:
        if field.name.lower() in names_by_lower_case:
            raise ConfigError(
                f"the table in {location} has the column {names_by_lower_case[field.name.lower()]},"
                f" and {field.name} is declared: Spark ignores case, so write the name as it was,"
                " or give the new column another name"
            )
    return wider + added


def check_partitions(location: Location, present: Sequence[str], layout: Layout) -> None:
    """Raise ConfigError if the table in `location` has other partition fields than the layout."""
    if tuple(present) != layout.partition_by:
        raise ConfigError(
            f"the table in {location} is partitioned by {_join_names(present)}, and"
            f" {_join_names(layout.partition_by)} is declared; land in another table"
        )


def _join_names(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"


def rows_outside(rows: pa.Table, epoch: str, start: int, end: int) -> pa.Table:
    """Return the rows without those at offsets `start` to `end` (excluded) of `epoch`."""
    return rows.filter(pc.invert(rows_inside(rows, epoch, start, end)))


def rows_inside(rows: pa.Table, epoch: str, start: int, end: int) -> pa.ChunkedArray:
    """Return for each row whether it is at offsets `start` to `end` (excluded) of `epoch`."""
    offset = rows.column("offset")
    return pc.and_(
        pc.equal(rows.column("epoch"), epoch),
        pc.and_(pc.greater_equal(offset, start), pc.less(offset, end)),
    )
