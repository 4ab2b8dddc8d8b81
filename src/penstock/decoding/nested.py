"""Converts lists and objects in payloads to Arrow's lists, maps and structs.

The items of all lists are converted as one column, and so are the fields of
structs: a nested value costs little more than its parts. If a part does not fit, the reason says
where it is: `values[3]`, `tags['k']`, `place.line`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.column_type import ColumnType, ListOf, MapOf, Scalar, StructOf, parse_type
from penstock.config.decoder import Column
from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.paths import Path, path_reader
from penstock.decoding.scalars import (
    Misfits,
    NullMarkers,
    ScalarConversion,
    ValueCountCheck,
    Values,
)


class Conversion(Protocol):
    """Converts values of one type.

    Attributes:
        type: the Arrow type.
        width: the least number of single values that a value becomes.
        default: the replacement of missing values; None if they stay null.
    """

    type: pa.DataType
    width: int
    default: pa.Scalar | None

    def __call__(self, values: Values, check: ValueCountCheck) -> tuple[pa.Array, Misfits]:
        """Return the array, which is null where a value does not fit, and the misfits.

        ``check`` is called with the number of items before lists and maps are converted.
        """
        ...


class FieldConversion:
    """A column or a field of a struct: its conversion, and the treatment of missing values.

    ``field`` has the name and type in Arrow, ``width`` the least number of single values in a row.
    """

    def __init__(self, name: str, column: Column, null_markers: NullMarkers) -> None:
        self._convert = _conversion(name, parse_type(column.type), column, null_markers)
        self._default = self._convert.default
        self._is_required = column.required
        self.width = self._convert.width
        metadata = {"unit": column.unit} if column.unit else None
        self.field = pa.field(name, self._convert.type, metadata=metadata)

    def __call__(self, values: Values, check: ValueCountCheck) -> tuple[pa.Array, Misfits]:
        """Return the array, and the values that do not fit or are missing."""
        array, misfits = self._convert(values, check)
        if array.null_count:
            if self._default is not None:
                array = pc.fill_null(array, self._default)
            elif self._is_required:
                for position in pc.indices_nonzero(array.is_null()).to_pylist():
                    misfits.setdefault(position, ("", "is missing."))
        return array, misfits


class ListConversion:
    """Converts lists."""

    def __init__(self, item: Conversion) -> None:
        self._item = item
        self.width = item.width
        self.default = None
        self.type = pa.list_(pa.field("element", item.type))

    def __call__(self, values: Values, check: ValueCountCheck) -> tuple[pa.Array, Misfits]:
        """Convert all items at once."""
        items: Values = []
        offsets: list[int | None] = []
        starts: list[int] = []
        misfits: Misfits = {}
        for position, value in enumerate(values):
            starts.append(len(items))
            if isinstance(value, (list, tuple)):
                offsets.append(len(items))
                items += value
                continue
            offsets.append(None)
            if value is not None:
                misfits[position] = "", f"is {abbreviate(value)}, which is no list."
        check(len(items) * self.width)
        converted, item_misfits = self._item(items, check)
        for place, (path, reason) in item_misfits.items():
            position = bisect_right(starts, place) - 1
            misfits.setdefault(position, (f"[{place - starts[position]}]{path}", reason))
        bounds = pa.array([*offsets, len(items)], pa.int32())
        return pa.ListArray.from_arrays(bounds, converted, type=self.type), misfits


class MapConversion:
    """Converts objects with arbitrary keys."""

    def __init__(self, value: Conversion) -> None:
        self._value = value
        self.width = value.width
        self.default = None
        self.type = pa.map_(pa.string(), value.type)

    def __call__(self, values: Values, check: ValueCountCheck) -> tuple[pa.Array, Misfits]:
        """Convert all values at once."""
        keys: list[str] = []
        items: Values = []
        offsets: list[int | None] = []
        starts: list[int] = []
        misfits: Misfits = {}
        for position, value in enumerate(values):
            starts.append(len(items))
            if isinstance(value, dict):
                try:
                    values_by_key = {key_text(key): item for key, item in value.items()}
                except (ValueError, TypeError):
                    misfits[position] = "", "has a key that is no text."
                else:
                    offsets.append(len(items))
                    keys += values_by_key
                    items += values_by_key.values()
                    continue
            elif value is not None:
                misfits[position] = "", f"is {abbreviate(value)}, which is no object."
            offsets.append(None)
        check(len(items) * self.width)
        converted, item_misfits = self._value(items, check)
        for place, (path, reason) in item_misfits.items():
            position = bisect_right(starts, place) - 1
            misfits.setdefault(position, (f"[{abbreviate(keys[place])}]{path}", reason))
        bounds = pa.array([*offsets, len(items)], pa.int32())
        texts = pa.array(keys, pa.string())
        return pa.MapArray.from_arrays(bounds, texts, converted, type=self.type), misfits


class StructConversion:
    """Converts objects to structs of known fields; other keys are left out."""

    def __init__(self, columns: dict[str, Column], null_markers: NullMarkers) -> None:
        self._fields = [
            (
                path_reader(Path.parse(column.path).keys if column.path else (key,)),
                FieldConversion(key, column, null_markers),
            )
            for key, column in columns.items()
        ]
        self._arrow_fields = [field.field for _, field in self._fields]
        self.width = sum(field.width for _, field in self._fields)
        self.default = None
        self.type = pa.struct(self._arrow_fields)

    def __call__(self, values: Values, check: ValueCountCheck) -> tuple[pa.Array, Misfits]:
        """Convert each field as a column, of the objects that are present."""
        places: list[int] = []
        misfits: Misfits = {}
        for position, value in enumerate(values):
            if isinstance(value, dict):
                places.append(position)
            elif value is not None:
                misfits[position] = "", f"is {abbreviate(value)}, which is no object."
        objects = values if len(places) == len(values) else [values[place] for place in places]
        arrays = []
        for read, field in self._fields:
            array, item_misfits = field(list(map(read, objects)), check)
            arrays.append(array)
            for place, (path, reason) in item_misfits.items():
                misfits.setdefault(places[place], (f".{field.field.name}{path}", reason))
        structs = pa.StructArray.from_arrays(arrays, fields=self._arrow_fields)
        if len(places) < len(values):
            indices: list[int | None] = [None] * len(values)
            for index, place in enumerate(places):
                indices[place] = index
            structs = structs.take(pa.array(indices, pa.int64()))
        return structs, misfits


def _conversion(
    name: str, kind: ColumnType, column: Column, null_markers: NullMarkers
) -> Conversion:
    """Return the conversion to this type, by the settings of a column that contains it."""
    match kind:
        case ListOf(item):
            return ListConversion(_conversion(name, item, column, null_markers))
        case MapOf(value):
            return MapConversion(_conversion(name, value, column, null_markers))
        case StructOf(fields):
            columns = column.fields or {
                field.name: Column(type=str(field.type), required=field.is_required)
                for field in fields
            }
            return StructConversion(columns, null_markers)
        case Scalar(scalar):
            return ScalarConversion(name, column.model_copy(update={"type": scalar}), null_markers)


def key_text(key: Any) -> str:
    """Return a key of an object as text.

    Raises:
        ValueError, TypeError: it is neither text nor bytes of text nor a whole number.
    """
    if isinstance(key, str):
        key.encode()  # a lone surrogate is not text
        return key
    return key.decode() if isinstance(key, bytes) else str(int(key))
