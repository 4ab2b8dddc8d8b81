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
from penstock.decoding.paths import Path, reader
from penstock.decoding.scalars import Check, Misfits, NullMarkers, Scalars, Values
from penstock.decoding.shown import shown


class Conversion(Protocol):
    """Converts values of one type.

    ``width`` is the least number of values that each becomes; ``default``, if there is one,
    replaces missing values.
    """

    type: pa.DataType
    width: int
    default: pa.Scalar | None

    def __call__(self, values: Values, check: Check) -> tuple[pa.Array, Misfits]:
        """Return the array, which is null where a value does not fit, and the misfits."""
        ...


class Field:
    """A column or a field of a struct: its conversion, and the treatment of missing values.

    ``field`` has its name and type in Arrow.
    """

    def __init__(self, name: str, column: Column, absent: NullMarkers) -> None:
        self._convert = _conversion(name, parse_type(column.type), column, absent)
        self._default = self._convert.default
        self._is_required = column.required
        self.width = self._convert.width
        metadata = {"unit": column.unit} if column.unit else None
        self.field = pa.field(name, self._convert.type, metadata=metadata)

    def __call__(self, values: Values, check: Check) -> tuple[pa.Array, Misfits]:
        """Return the array, and the values that do not fit or are missing."""
        array, misfits = self._convert(values, check)
        if array.null_count:
            if self._default is not None:
                array = pc.fill_null(array, self._default)
            elif self._is_required:
                for position in pc.indices_nonzero(array.is_null()).to_pylist():
                    misfits.setdefault(position, ("", "is missing."))
        return array, misfits


class Lists:
    """Converts lists."""

    def __init__(self, item: Conversion) -> None:
        self._item = item
        self.width = item.width
        self.default = None
        self.type = pa.list_(pa.field("element", item.type))

    def __call__(self, values: Values, check: Check) -> tuple[pa.Array, Misfits]:
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
                misfits[position] = "", f"is {shown(value)}, which is no list."
        check(len(items) * self.width)
        converted, found = self._item(items, check)
        for place, (path, reason) in found.items():
            position = bisect_right(starts, place) - 1
            misfits.setdefault(position, (f"[{place - starts[position]}]{path}", reason))
        bounds = pa.array([*offsets, len(items)], pa.int32())
        return pa.ListArray.from_arrays(bounds, converted, type=self.type), misfits


class Maps:
    """Converts objects with arbitrary keys."""

    def __init__(self, value: Conversion) -> None:
        self._value = value
        self.width = value.width
        self.default = None
        self.type = pa.map_(pa.string(), value.type)

    def __call__(self, values: Values, check: Check) -> tuple[pa.Array, Misfits]:
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
                    named = {_text_of(key): item for key, item in value.items()}
                except (ValueError, TypeError):
                    misfits[position] = "", "has a key that is no text."
                else:
                    offsets.append(len(items))
                    keys += named
                    items += named.values()
                    continue
            elif value is not None:
                misfits[position] = "", f"is {shown(value)}, which is no object."
            offsets.append(None)
        check(len(items) * self.width)
        converted, found = self._value(items, check)
        for place, (path, reason) in found.items():
            position = bisect_right(starts, place) - 1
            misfits.setdefault(position, (f"[{shown(keys[place])}]{path}", reason))
        bounds = pa.array([*offsets, len(items)], pa.int32())
        texts = pa.array(keys, pa.string())
        return pa.MapArray.from_arrays(bounds, texts, converted, type=self.type), misfits


class Structs:
    """Converts objects to structs of known fields; other keys are left out."""

    def __init__(self, columns: dict[str, Column], absent: NullMarkers) -> None:
        self._fields = [
            (
                reader(Path.parse(column.path).keys if column.path else (key,)),
                Field(key, column, absent),
            )
            for key, column in columns.items()
        ]
        self._arrow_fields = [field.field for _, field in self._fields]
        self.width = sum(field.width for _, field in self._fields)
        self.default = None
        self.type = pa.struct(self._arrow_fields)

    def __call__(self, values: Values, check: Check) -> tuple[pa.Array, Misfits]:
        """Convert each field as a column, of the objects that are present."""
        places: list[int] = []
        misfits: Misfits = {}
        for position, value in enumerate(values):
            if isinstance(value, dict):
                places.append(position)
            elif value is not None:
                misfits[position] = "", f"is {shown(value)}, which is no object."
        objects = values if len(places) == len(values) else [values[place] for place in places]
        arrays = []
        for read, field in self._fields:
            array, found = field(list(map(read, objects)), check)
            arrays.append(array)
            for place, (path, reason) in found.items():
                misfits.setdefault(places[place], (f".{field.field.name}{path}", reason))
        structs = pa.StructArray.from_arrays(arrays, fields=self._arrow_fields)
        if len(places) < len(values):
            indices: list[int | None] = [None] * len(values)
            for index, place in enumerate(places):
                indices[place] = index
            structs = structs.take(pa.array(indices, pa.int64()))
        return structs, misfits


def _conversion(name: str, kind: ColumnType, column: Column, absent: NullMarkers) -> Conversion:
    """Return the conversion to this type, by the settings of a column that contains it."""
    match kind:
        case ListOf(item):
            return Lists(_conversion(name, item, column, absent))
        case MapOf(value):
            return Maps(_conversion(name, value, column, absent))
        case StructOf(fields):
            columns = column.fields or {
                field.name: Column(type=str(field.type), required=field.is_required)
                for field in fields
            }
            return Structs(columns, absent)
        case Scalar(scalar):
            return Scalars(name, column.model_copy(update={"type": scalar}), absent)


def _text_of(key: Any) -> str:
    if isinstance(key, str):
        key.encode()  # a lone surrogate is not text
        return key
    return key.decode() if isinstance(key, bytes) else str(int(key))
