"""Computes aggregates row by row, and the types of their columns.

A partial aggregate has the values of some rows; partial aggregates can be merged in any order:

    count      number                         min, max   value
    sum        number, value                  mean       number, value: the sum
    first      time, offset, value            last       time, offset, value

They are for windows with a watermark for each key (`keyed_aggregation`); for other windows Spark's
operators compute aggregates (`aggregation`). NaN is larger than every number, as in Spark.
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


class PartialAggregate(NamedTuple):
    """A partial aggregate of some rows.

    Attributes:
        number: the number of rows, or of values that are not null.
        at_us: for first and last the time of the row that has `value`, in µs since the Unix epoch.
        offset: for first and last the offset of that row.
        value: the value in the table above; None for a sum that exceeds its type.
    """

    number: int = 0
    at_us: int | None = None
    offset: int | None = None
    value: Any = None


EMPTY: Final = PartialAggregate()


def partial_of_row(function: Function, value: Any, at_us: int, offset: int) -> PartialAggregate:
    """Return the partial aggregate of one row.

    Args:
        function: the function of the aggregate.
        value: the value of the row; a null value is not counted.
        at_us: the time of the row, in µs since the Unix epoch.
        offset: the offset of the row.
    """
    if value is None:
        return EMPTY
    match function:
        case "count":
            return PartialAggregate(1)
        case "mean":
            return PartialAggregate(1, value=float(value))
        case "first" | "last":
            return PartialAggregate(1, at_us, offset, value)
        case "sum" | "min" | "max":
            return PartialAggregate(1, value=value)


def merge_partials(
    function: Function, one: PartialAggregate, other: PartialAggregate
) -> PartialAggregate:
    """Return the partial aggregate of the rows of both."""
    if not one.number or not other.number:
        return one if one.number else other
    number = one.number + other.number
    match function:
        case "count":
            return PartialAggregate(number)
        case "sum" | "mean":
            return PartialAggregate(number, value=_sum(one.value, other.value))
        case "min":
            return PartialAggregate(number, value=min(one.value, other.value, key=_nan_last))
        case "max":
            return PartialAggregate(number, value=max(one.value, other.value, key=_nan_last))
        case "first":
            return min(one, other, key=_time_order)._replace(number=number)
        case "last":
            return max(one, other, key=_time_order)._replace(number=number)


def final_value(function: Function, part: PartialAggregate) -> Any:
    """Return the value of the aggregate's column."""
    if function == "count":
        return part.number
    if function == "mean" and part.number:
        return part.value / part.number
    return part.value


def result_types(
    table: str, aggregates: Mapping[str, Aggregate], schema: pa.Schema
) -> dict[str, pa.DataType]:
    """Return the type of each aggregate's column, by name.

    Args:
        table: the name of the table, for errors.
        aggregates: the aggregates, by column.
        schema: the columns of the source.

    Raises:
        ConfigError: a function cannot be applied to the type of its source column.
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
    """Return the sum of two values; None if either is None, or the sum exceeds the column's
    type."""
    if one is None or other is None:
        return None
    if isinstance(one, Decimal):
        total = _EXACT.add(one, other)
        return total if len(total.as_tuple().digits) <= _DIGITS_MAX else None
    total = one + other
    return None if isinstance(total, int) and abs(total) > _LONG_MAX else total


def _nan_last(value: Any) -> tuple[bool, Any]:
    return value != value, value  # only NaN differs from itself


def _time_order(part: PartialAggregate) -> tuple[int, int]:
    assert part.at_us is not None
    assert part.offset is not None
    return part.at_us, part.offset
