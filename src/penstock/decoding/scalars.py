"""Converts single values, as found in payloads, to an Arrow array of one type.

Most columns have the right type, and Arrow takes them at once. If it does not, each value
is converted by itself, and those that do not fit get a reason. Both ways give the same result for a
value, whatever stands beside it: a batch read again, in other portions, gives the same rows.

docs/decoders.md#values has the rules. Lists and objects: nested.py.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.column_type import decimal_digits
from penstock.config.decoder import Column
from penstock.decoding.convert import (
    MICROSECONDS,
    MICROSECONDS_MAX,
    MICROSECONDS_MIN,
    NUMBER_CHARACTERS_MAX,
    WORDS,
    Unfit,
    to_binary,
    to_bool,
    to_date,
    to_decimal,
    to_float,
    to_int,
    to_json,
    to_string,
    to_timestamp,
)
from penstock.decoding.shown import shown
from penstock.decoding.units import LinearConversion, conversion
from penstock.errors import ConfigError

Values = list[Any]
Check = Callable[[int], None]
"""Raises if a portion may not become so many values."""

Misfits = dict[int, tuple[str, str]]
"""By position of a value: the part of it that does not fit ("" for the value itself, ".a[3]"),
and the rest of the sentence ("is 'x', which is no int64.")."""

Quick = Callable[[Values], pa.Array]

_PLAIN: Final = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
    "json": pa.string(),
}
_EXACT_AS_FLOAT_MAX: Final = 2**53
_NOT_AT_ONCE: Final = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError)
_PAYLOAD_ERRORS: Final = (ValueError, TypeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class NullMarkers:
    """The values that mean "no value": texts, and NaN and infinities for types without them."""

    texts: frozenset[str] = frozenset()
    not_numbers: bool = False

    def without(self, values: Values, kind: str) -> Values:
        """Return the values, with None for each that means "no value"."""
        nulls = self.texts
        if nulls:
            values = [None if isinstance(one, str) and one in nulls else one for one in values]
        if self.not_numbers and not kind.startswith("float"):
            values = [
                None if isinstance(one, float) and not math.isfinite(one) else one for one in values
            ]
        return values


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a single value."""
    digits = decimal_digits(name)
    return _PLAIN[name] if digits is None else pa.decimal128(*digits)


class Scalars:
    """Converts values of one type.

    ``column`` has the type and the settings of the conversion; ``width`` is the number of values
    that each becomes.

    Raises:
        ConfigError: the settings of the column `name` contradict each other.
    """

    def __init__(self, name: str, column: Column, absent: NullMarkers) -> None:
        self._column = column
        self._absent = replace(absent, texts=absent.texts | frozenset(column.null_values))
        self.type = arrow_type(column.type)
        self.width = 1
        linear = _linear(name, column)
        self._one = _converter(column, linear)
        self._quick = _quick(column, linear)
        self.default = self._converted_default(name)

    def __call__(self, values: Values, check: Check) -> tuple[pa.Array, Misfits]:  # noqa: ARG002
        """Return the array, which is null where a value does not fit, and the misfits."""
        if self._absent != _NOTHING_ABSENT:
            values = self._absent.without(values, self._column.type)
        if (not values or values[0] is None) and values.count(None) == len(values):
            return pa.nulls(len(values), self.type), {}
        if self._quick is not None:
            with contextlib.suppress(*_NOT_AT_ONCE):
                return self._quick(values), {}
            with contextlib.suppress(*_NOT_AT_ONCE):
                return self._quick(_read_texts(values, self._column.type)), {}
        return self._each(values)

    def _each(self, values: Values) -> tuple[pa.Array, Misfits]:
        converted: Values = []
        misfits: Misfits = {}
        for position, value in enumerate(values):
            try:
                converted.append(None if value is None else self._one(value))
            except Unfit as unfit:
                converted.append(None)
                misfits[position] = "", f"is {shown(value)}, which is {unfit}."
            except _PAYLOAD_ERRORS:
                converted.append(None)
                misfits[position] = "", f"is {shown(value)}, which is no {self._column.type}."
        return pa.array(converted, self.type), misfits

    def _converted_default(self, name: str) -> pa.Scalar | None:
        """Return the default, which is in the column's unit: neither scaled nor converted."""
        given = self._column.default
        if given is None:
            return None
        try:
            return pa.scalar(_converter(self._column, LinearConversion())(given), self.type)
        except (Unfit, *_PAYLOAD_ERRORS):
            raise ConfigError(
                f"The default of the column {name} is {given!r}, which is no {self._column.type}."
            ) from None


_NOTHING_ABSENT: Final = NullMarkers()


def _linear(name: str, column: Column) -> LinearConversion:
    scaled = LinearConversion(Fraction(str(column.scale)), Fraction(str(column.offset)))
    if column.type == "timestamp" or not column.unit_from:
        return scaled
    try:
        return scaled.then(conversion(column.unit_from, column.unit))
    except ConfigError as mistake:
        raise ConfigError(f"Column {name}: {mistake}") from None


def _converter(column: Column, linear: LinearConversion) -> Callable[[Any], Any]:
    """Return the conversion of one value; it raises Unfit, or an error of a payload."""
    kind = column.type
    digits = decimal_digits(kind)
    if digits is not None:
        return to_decimal(*digits, linear)
    if kind.startswith("int"):
        return to_int(int(kind.removeprefix("int")), linear)
    if kind.startswith("float"):
        return to_float(int(kind.removeprefix("float")), linear)
    if kind == "timestamp":
        return to_timestamp(column.unit_from, column.format, column.time_zone)
    if kind == "date":
        return to_date(column.format)
    if kind == "binary":
        return to_binary(column.binary)
    return {"string": to_string, "bool": to_bool, "json": to_json}[kind]


def _quick(column: Column, linear: LinearConversion) -> Quick | None:
    """Return the conversion of a whole column of values of the right type; None if there is none.

    The conversion raises if one value has another type.
    """
    kind = column.type
    if kind in ("string", "bool"):
        return lambda values: pa.array(values, _PLAIN[kind])
    if kind.startswith("int") and linear.is_identity:
        return lambda values: _whole_numbers(pa.array(values)).cast(_PLAIN[kind])
    if kind.startswith("float"):
        return lambda values: _floats(values, _PLAIN[kind], linear)
    if kind == "timestamp" and column.unit_from in MICROSECONDS:
        return lambda values: _times(values, MICROSECONDS[column.unit_from])
    if kind == "timestamp" and not column.unit_from and not column.format:
        return lambda values: _iso_timestamps(values, column.time_zone)
    return None


def _read_texts(values: Values, kind: str) -> Values:
    """Parse numbers or truth values that are all written as text; raise if one is not."""
    texts = [value for value in values if value is not None]
    if "_" in "".join(texts) or len(max(texts, key=len)) > NUMBER_CHARACTERS_MAX:
        raise ValueError("a number in text has no underscore, nor so many characters")
    if kind == "bool":
        return [None if value is None else WORDS[value] for value in values]
    if kind.startswith("float"):
        numbers = [None if value is None else float(value) for value in values]
        if math.inf in numbers or -math.inf in numbers:  # 1e999, or inf? let each say so
            raise ValueError("out of range")
        return numbers
    return [None if value is None else int(value) for value in values]


def _whole_numbers(array: pa.Array) -> pa.Array:
    """Return the array as int64.

    It was made without a type: asked for int64, Arrow cuts 3.5 down to 3.
    """
    if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise ValueError("not only whole numbers")
    return array.cast(pa.int64())


def _floats(values: Values, kind: pa.DataType, linear: LinearConversion) -> pa.Array:
    array = pa.array(values, pa.float64())
    if not linear.is_identity:
        array = pc.multiply(array, float(linear.factor))
        array = pc.add(array, float(linear.offset)) if linear.offset else array  # -0.0 + 0 is 0.0
    if linear.is_identity and kind == pa.float64():
        return array
    fitted = array.cast(kind, safe=False)
    if pc.any(pc.is_inf(fitted)).as_py():  # it may be out of range: let each say so
        raise ValueError("out of range")
    return fitted


def _times(values: Values, factor: int) -> pa.Array:
    array = pa.array(values)
    if pa.types.is_floating(array.type):
        scaled = pc.round(pc.multiply(array, float(factor)), round_mode="half_to_even")
        if pc.any(pc.greater(pc.abs(scaled), _EXACT_AS_FLOAT_MAX)).as_py():
            raise ValueError("whole numbers may be among them, and lose digits")
        return scaled.cast(pa.int64()).cast(_PLAIN["timestamp"])
    return _in_range(pc.multiply_checked(_whole_numbers(array), factor).cast(_PLAIN["timestamp"]))


def _iso_timestamps(values: Values, time_zone: str) -> pa.Array:
    texts = pa.array(values, pa.string())
    try:
        return _in_range(texts.cast(_PLAIN["timestamp"]))
    except pa.ArrowInvalid:  # none of them has an offset?
        local = texts.cast(pa.timestamp("us"))
        if time_zone == "UTC":
            return _in_range(local.cast(_PLAIN["timestamp"]))
        return _in_range(
            pc.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="raise").cast(
                _PLAIN["timestamp"]
            )
        )


def _in_range(array: pa.Array) -> pa.Array:
    """Return timestamps if they are in the years 1 to 9999, the range of Spark and Python."""
    bounds = pc.min_max(array.cast(pa.int64())).as_py()
    lowest, highest = bounds["min"], bounds["max"]
    if lowest is not None and not (lowest >= MICROSECONDS_MIN and highest <= MICROSECONDS_MAX):
        raise ValueError("out of range")
    return array
