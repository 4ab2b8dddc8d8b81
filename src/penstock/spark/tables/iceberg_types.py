"""Converts column types to those that Iceberg has, and tells which types it can promote."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

_PROMOTED: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def to_iceberg_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema with Iceberg's types: no integers below 32 bits, no large strings."""
    return pa.schema([pa.field(field.name, _to_iceberg_type(field.type)) for field in schema])


def iceberg_columns(table: Table) -> pa.Schema:
    """Return the columns of a table, with Iceberg's types in Arrow."""
    return to_iceberg_types(schema_to_pyarrow(table.schema(), include_field_ids=False))


def can_promote(present: pa.DataType, wider: pa.DataType) -> bool:
    """Return whether Iceberg can promote a column's type to another (format 2, Schema
    Evolution)."""
    if pa.types.is_decimal128(present) and pa.types.is_decimal128(wider):
        return bool(present.scale == wider.scale and present.precision < wider.precision)
    return (present, wider) in _PROMOTED


def _to_iceberg_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_to_iceberg_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_to_iceberg_type(kind.key_type), _to_iceberg_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_to_iceberg_type(kind.value_type)))
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind
