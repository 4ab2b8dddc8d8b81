"""The column types of Iceberg."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

_PROMOTED: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with Iceberg's types: no integers below 32 bits, no large strings."""
    return pa.schema([pa.field(field.name, _widened(field.type)) for field in schema])


def plain_of(table: Table) -> pa.Schema:
    """Return the columns of a table, with the same types."""
    return plain(schema_to_pyarrow(table.schema(), include_field_ids=False))


def is_promoted(present: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether Iceberg lets a column become the wider type (format 2, Schema Evolution)."""
    if pa.types.is_decimal128(present) and pa.types.is_decimal128(wanted):
        return bool(present.scale == wanted.scale and present.precision < wanted.precision)
    return (present, wanted) in _PROMOTED


def _widened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_widened(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_widened(kind.key_type), _widened(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_widened(kind.value_type)))
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind
