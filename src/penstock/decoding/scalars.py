"""Converts single values, as found in payloads, to an Arrow array of one type.

Most values have the type of their column, and Arrow converts the column at once. If Arrow refuses
one, each value is converted by itself, and those that do not fit get a reason. Both ways give the
same result for a value, whatever other values are converted with it: a batch that is decoded again
in other portions gives the same rows.

docs/decoders.md#values has the rules; nested.py converts lists and objects.
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
from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.convert import (
    BOOL_WORDS,
    MICROSECONDS,
    MICROSECONDS_MAX,
    MICROSECONDS_MIN,
    NUMBER_CHARACTERS_MAX,
    UnfitValue,
    to_binary,
    to_bool,
    to_date,
    to_decimal,
    to_float,
    to_int,
    to_json,
    to_string,
    to_timestamp,
    with_point,
)
from penstock.decoding.units import LinearConversion, unit_conversion
from penstock.errors import ConfigError

Values = list[Any]
ValueCountCheck = Callable[[int], None]
"""A function that raises if a portion may not become this number of values."""

Misfits = dict[int, tuple[str, str]]
"""By position of a value: the path of the part that does not fit (".a[3]"; "" for the whole value),
and the sentence that follows the path ("is 'x', which is no int64.")."""

ConvertColumn = Callable[[Values], pa.Array]

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
_COLUMN_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError)
_PAYLOAD_ERRORS: Final = (ValueError, TypeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class NullMarkers:
    """The values that stand for null.

    Attributes:
        texts: the null markers that are text.
        nonfinite_floats: NaN and infinities, in columns whose type is no float.
    """

    texts: frozenset[str] = frozenset()
    nonfinite_floats: bool = False

    def to_none(self, values: Values, kind: str) -> Values:
        """Return the values of a column of the type ``kind``, with None for each null marker."""
        nulls = self.texts
        if nulls:
            values = [None if isinstance(one, str) and one in nulls else one for one in values]
        if self.nonfinite_floats and not kind.startswith("float"):
            values = [
                None if isinstance(one, float) and not math.isfinite(one) else one for one in values
            ]
        return values


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a column type that is no list, map or struct."""
    digits = decimal_digits(name)
    return _PLAIN[name] if digits is None else pa.decimal128(*digits)


class ScalarConversion:
    """Converts single values to one type: a `nested.Conversion`.

    Args:
        name: the name of the column, for errors.
        column: its type and settings.
        null_markers: the values that stand for null, besides those of the column.

    Raises:
        ConfigError: the settings of the column contradict each other.
    """

    def __init__(self, name: str, column: Column, null_markers: NullMarkers) -> None:
        self._column = column
        self._null_markers = replace(
            null_markers, texts=null_markers.texts | frozenset(column.null_values)
        )
        self.type = arrow_type(column.type)
        self.width = 1
        scaling = _column_scaling(name, column)
        self._convert_value = _converter(column, scaling)
        self._convert_column = _column_converter(column, scaling)
        self.default = self._converted_default(name)

    def __call__(self, values: Values, check: ValueCountCheck) -> tuple[pa.Array, Misfits]:  # noqa: ARG002
        """Return the array, which is null where a value does not fit, and the misfits."""
        if self._null_markers != _NO_MARKERS:
            values = self._null_markers.to_none(values, self._column.type)
        if self._column.decimal == ",":
            values = [with_point(one) if isinstance(one, str) else one for one in values]
        if (not values or values[0] is None) and values.count(None) == len(values):
            return pa.nulls(len(values), self.type), {}
        if self._convert_column is not None:
            with contextlib.suppress(*_COLUMN_ERRORS):
                return self._convert_column(values), {}
            with contextlib.suppress(*_COLUMN_ERRORS):
                return self._convert_column(_parse_texts(values, self._column.type)), {}
        return self._convert_each(values)

    def _convert_each(self, values: Values) -> tuple[pa.Array, Misfits]:
        converted: Values = []
        misfits: Misfits = {}
        for position, value in enumerate(values):
            try:
                converted.append(None if value is None else self._convert_value(value))
            except UnfitValue as unfit:
                converted.append(None)
                misfits[position] = "", f"is {abbreviate(value)}, which is {unfit}."
            except _PAYLOAD_ERRORS:
                converted.append(None)
                misfits[position] = "", f"is {abbreviate(value)}, which is no {self._column.type}."
        return pa.array(converted, self.type), misfits

    def _converted_default(self, name: str) -> pa.Scalar | None:
        """Return the default as an Arrow scalar; None without one.

        The default is in the column's unit, so it is neither scaled nor offset.
        """
        default = self._column.default
        if default is None:
            return None
        try:
            return pa.scalar(_converter(self._column, LinearConversion())(default), self.type)
        except (UnfitValue, *_PAYLOAD_ERRORS):
            raise ConfigError(
                f"The default of the column {name} is {default!r}, which is no {self._column.type}."
            ) from None


_NO_MARKERS: Final = NullMarkers()


def _column_scaling(name: str, column: Column) -> LinearConversion:
    scaled = LinearConversion(Fraction(str(column.scale)), Fraction(str(column.offset)))
    if column.type == "timestamp" or not column.unit_from:
        return scaled
    try:
        return scaled.then(unit_conversion(column.unit_from, column.unit))
    except ConfigError as mistake:
        raise ConfigError(f"Column {name}: {mistake}") from None


def _converter(column: Column, scaling: LinearConversion) -> Callable[[Any], Any]:
    """Return a function that converts one value; it raises UnfitValue or one of _PAYLOAD_ERRORS."""
    kind = column.type
    digits = decimal_digits(kind)
    if digits is not None:
        return to_decimal(*digits, scaling)
    if kind.startswith("int"):
        return to_int(int(kind.removeprefix("int")), scaling)
    if kind.startswith("float"):
        return to_float(int(kind.removeprefix("float")), scaling)
    if kind == "timestamp":
        return to_timestamp(column.unit_from, column.format, column.time_zone)
    if kind == "date":
        return to_date(column.format)
    if kind == "binary":
        return to_binary(column.binary)
    return {"string": to_string, "bool": to_bool, "json": to_json}[kind]


def _column_converter(column: Column, scaling: LinearConversion) -> ConvertColumn | None:
    """Return a function that converts a whole column of values of the right type at once.

    The function raises one of _COLUMN_ERRORS if a value has another type. None for a type that is
    converted value by value.
    """
    kind = column.type
    if kind in ("string", "bool"):
        return lambda values: pa.array(values, _PLAIN[kind])
    if kind.startswith("int") and scaling.is_identity:
        return lambda values: _whole_numbers(pa.array(values)).cast(_PLAIN[kind])
    if kind.startswith("float"):
        return lambda values: _floats(values, _PLAIN[kind], scaling)
    if kind == "timestamp" and column.unit_from in MICROSECONDS:
        return lambda values: _times(values, MICROSECONDS[column.unit_from])
    if kind == "timestamp" and not column.unit_from and not column.format:
        return lambda values: _iso_timestamps(values, column.time_zone)
    return None


def _parse_texts(values: Values, kind: str) -> Values:
    """Return the numbers or truth values in a column of text.

    A value that is not such text raises one of _COLUMN_ERRORS.
    """
    texts = [value for value in values if value is not None]
    if "_" in "".join(texts) or len(max(texts, key=len)) > NUMBER_CHARACTERS_MAX:
        raise ValueError("a number in text has no underscore, nor so many characters")
    if kind == "bool":
        return [None if value is None else BOOL_WORDS[value] for value in values]
    if kind.startswith("float"):
        numbers = [None if value is None else float(value) for value in values]
        if math.inf in numbers or -math.inf in numbers:  # 1e999 or inf: convert each by itself
            raise ValueError("out of range")
        return numbers
    return [None if value is None else int(value) for value in values]


def _whole_numbers(array: pa.Array) -> pa.Array:
    """Return an array as int64; raise ValueError if it has other values than whole numbers.

    The array must have been made without a type: made as int64, Arrow would cut 3.5 to 3.
    """
    if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise ValueError("not only whole numbers")
    return array.cast(pa.int64())


def _floats(values: Values, kind: pa.DataType, scaling: LinearConversion) -> pa.Array:
    array = pa.array(values, pa.float64())
    if not scaling.is_identity:
        array = pc.multiply(array, float(scaling.factor))
        array = pc.add(array, float(scaling.offset)) if scaling.offset else array  # -0.0 + 0 is 0.0
    if scaling.is_identity and kind == pa.float64():
        return array
    fitted = array.cast(kind, safe=False)
    if pc.any(pc.is_inf(fitted)).as_py():  # it may be out of range: convert each by itself
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
