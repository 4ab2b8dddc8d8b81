"""Aggregates: their columns, and how they are computed row by row.

A *part* is a partial aggregate of some rows; parts can be merged in any order:

    count      number                         min, max   value
    sum        number, value                  mean       number, value: the sum
    first      time, offset, value            last       time, offset, value

Spark's operators do this by themselves (`aggregation`); for windows with a watermark for each key
(`keyed_aggregation`) it is done here. NaN is larger than every number, as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.config.derived import Aggregate, Function
from penstock.errors import ConfigError

_LONG_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 38
_EXACT: Final = Context(prec=2 * _DIGITS_MAX)


class Part(NamedTuple):
    """A partial aggregate of some rows.

    Attributes:
        number: the number of rows, or of values that are not null.
        at_us: the time of the row that has `value`, for first and last.
        offset: the offset of that row.
        value: see above; for a sum None if it exceeds its type.
    """

    number: int = 0
    at_us: int | None = None
    offset: int | None = None
    value: Any = None


NOTHING: Final = Part()


def part_of(function: Function, value: Any, at_us: int, offset: int) -> Part:
    """Return the aggregate of one row; `value` may be null."""
    if value is None:
        return NOTHING
    match function:
        case "count":
            return Part(1)
        case "mean":
            return Part(1, value=float(value))
        case "first" | "last":
            return Part(1, at_us, offset, value)
        case "sum" | "min" | "max":
            return Part(1, value=value)


def merged(function: Function, one: Part, other: Part) -> Part:
    """Return the aggregate of the rows of both."""
    if not one.number or not other.number:
        return one if one.number else other
    number = one.number + other.number
    match function:
        case "count":
            return Part(number)
        case "sum" | "mean":
            return Part(number, value=_sum(one.value, other.value))
        case "min":
            return Part(number, value=min(one.value, other.value, key=_order))
        case "max":
            return Part(number, value=max(one.value, other.value, key=_order))
        case "first":
            return min(one, other, key=_order_key)._replace(number=number)
        case "last":
            return max(one, other, key=_order_key)._replace(number=number)


def result_of(function: Function, part: Part) -> Any:
    """Return the value of the column."""
    if function == "count":
        return part.number
    if function == "mean" and part.number:
        return part.value / part.number
    return part.value


def result_types(
    table: str, aggregates: Mapping[str, Aggregate], schema: pa.Schema
) -> dict[str, pa.DataType]:
    """Return the types of the columns, by name.

    Args:
        table: name of the table, for errors.
        aggregates: by column.
        schema: the columns of the rows.

    Raises:
        ConfigError: a column has no type for its function.
    """
    return {name: _result_type(table, one, schema) for name, one in aggregates.items()}


def _result_type(table: str, aggregate: Aggregate, schema: pa.Schema) -> pa.DataType:
    if aggregate.function == "count":
        return pa.int64()
    kind = schema.field(aggregate.column).type
    is_decimal = pa.types.is_decimal(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal
    if aggregate.function in ("mean", "sum") and not is_number:
        raise ConfigError(
            f"table {table} has the {aggregate.function} of {aggregate.column}, which is {kind};"
            " only numbers have one"
        )
    if aggregate.function in ("min", "max") and pa.types.is_nested(kind):
        raise ConfigError(
            f"table {table} has the {aggregate.function} of {aggregate.column}, which is {kind}"
            " and has no order"
        )
    if aggregate.function == "mean":
        return pa.float64()
    if aggregate.function == "sum" and pa.types.is_integer(kind):
        return pa.int64()
    if aggregate.function == "sum" and is_decimal:
        return pa.decimal128(min(_DIGITS_MAX, kind.precision + 10), kind.scale)
    if aggregate.function == "sum":
        return pa.float64()
    return kind


def _sum(one: Any, other: Any) -> Any:
    """Add two values; None if either is None, or the sum exceeds the column."""
    if one is None or other is None:
        return None
    if isinstance(one, Decimal):
        total = _EXACT.add(one, other)
        return total if len(total.as_tuple().digits) <= _DIGITS_MAX else None
    total = one + other
    return None if isinstance(total, int) and abs(total) > _LONG_MAX else total


def _order(value: Any) -> tuple[bool, Any]:
    return value != value, value  # only NaN differs from itself


def _order_key(part: Part) -> tuple[int, int]:
    assert part.at_us is not None
    assert part.offset is not None
    return part.at_us, part.offset
