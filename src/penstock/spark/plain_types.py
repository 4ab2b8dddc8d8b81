"""Reduces Arrow's several types for the same values to one, the *plain* type.

A Parquet file names the Arrow types of its writer, and readers use them: text that delta-rs has
rewritten is read as `string_view`, text of other writers as `large_string` or as a dictionary, and
few of Arrow's functions take all of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.storage.location import Location


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the plain type for values of a type: the one that Penstock writes."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([plain_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_field(kind.key_field), plain_field(kind.item_field))
    if _is_list(kind):
        return pa.list_(plain_field(kind.value_field))
    return kind


def plain_field(field: pa.Field) -> pa.Field:
    """Return the field with its plain type."""
    return field.with_type(plain_type(field.type))


def plain_rows(rows: pa.Table) -> pa.Table:
    """Return the rows with all columns in plain types."""
    schema = pa.schema([plain_field(field) for field in rows.schema])
    return rows.replace_schema_metadata() if schema == rows.schema else rows.cast(schema)


def read_rows(location: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a Parquet file of any writer in plain types: all or these columns."""
    with location.open_input() as content, pq.ParquetFile(content) as file:
        return plain_rows(file.read(columns))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
