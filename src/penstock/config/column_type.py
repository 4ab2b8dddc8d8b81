"""Types of columns and their notation: a scalar, or a nested type.

    float                                   struct<at: timestamp not null, unit: string>
    decimal(10,2)                           array<struct<name: string, tags: map<string, json>>>

Nested types are written as in Spark's and Delta's schemas. A `struct` without fields has those of
the column's setting `fields`. Code that depends on a type uses `parse_type`; `str` gives the one
canonical text of a type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SCALAR_TYPES: Final = {
    "string": "string",
    "bool": "bool",
    "boolean": "bool",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "int": "int64",
    "long": "int64",
    "float32": "float32",
    "float64": "float64",
    "float": "float64",
    "double": "float64",
    "timestamp": "timestamp",
    "date": "date",
    "binary": "binary",
    "json": "json",
    "variant": "json",
}
"""The canonical name of a scalar type, by each name under which it may be declared."""

DEPTH_MAX: Final = 8
"""Deepest nesting of types; a scalar has depth 1."""

# What Delta, Parquet and Spark allow in a column's name without quoting or mapping.
COLUMN_NAME: Final = re.compile(r"[^ ,;{}()\n\t=`]{1,255}")

_CHARACTERS_MAX: Final = 20_000
_DECIMAL: Final = re.compile(r"decimal\( *([0-9]{1,2}) *, *([0-9]{1,2}) *\)")
_TOKEN: Final = re.compile(rf"\s*({_DECIMAL.pattern}|[<>:,]|[^\s<>:,]+)")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one type."""

    item: ColumnType

    def __str__(self) -> str:
        return f"array<{self.item}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with any text as keys, and values of one type."""

    value: ColumnType

    def __str__(self) -> str:
        return f"map<string, {self.value}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A named value of a struct. With is_required, a struct without the value is a broken
    payload."""

    name: str
    type: ColumnType
    is_required: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{' not null' if self.is_required else ''}"


@dataclass(frozen=True, slots=True)
class StructOf:
    """An object with these fields; with none, the column's `fields` names them."""

    fields: tuple[StructField, ...] = ()

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>" if self.fields else "struct"


ColumnType = Scalar | ListOf | MapOf | StructOf


def parse_type(text: str) -> ColumnType:
    """Parse a type.

    Raises:
        ValueError: the text is no type; the message is one sentence.
    """
    if len(text) > _CHARACTERS_MAX:
        raise ValueError(f"a type is written in at most {_CHARACTERS_MAX} characters")
    parser = _TypeParser(text)
    column_type = parser.parse_type(1)
    parser.expect_end()
    return column_type


def depth(kind: ColumnType) -> int:
    """Return how deeply a type is nested, 1 for a scalar."""
    match kind:
        case ListOf(inner) | MapOf(inner):
            return 1 + depth(inner)
        case StructOf(fields):
            return 1 + max((depth(field.type) for field in fields), default=0)
    return 1


def innermost(kind: ColumnType) -> Scalar | StructOf:
    """Return the scalar or struct that is left when lists and maps around it are taken away."""
    while isinstance(kind, (ListOf, MapOf)):
        kind = kind.item if isinstance(kind, ListOf) else kind.value
    return kind


def decimal_digits(type_name: str) -> tuple[int, int] | None:
    """Return precision and scale of decimal(P,S); None for any other type."""
    match = _DECIMAL.fullmatch(type_name)
    return (int(match[1]), int(match[2])) if match is not None else None


def _scalar(name: str) -> Scalar:
    digits = decimal_digits(name)
    if digits is not None and 1 <= digits[0] <= 38 and digits[1] <= digits[0]:
        return Scalar(f"decimal({digits[0]},{digits[1]})")
    if name not in SCALAR_TYPES:
        raise ValueError(
            f"decimal(P,S) with S up to P up to 38, one of {', '.join(SCALAR_TYPES)}, or of these"
            " struct<name: type, …>, array<type> and map<string, type>"
        )
    return Scalar(SCALAR_TYPES[name])


class _TypeParser:
    """A recursive-descent parser of one type, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse_type(self, level: int) -> ColumnType:
        if level > DEPTH_MAX:
            raise ValueError(f"types are nested {DEPTH_MAX} deep at most")
        name = self._next()
        if name == "struct":
            return StructOf(self._parse_fields(level)) if self._peek() == "<" else StructOf()
        if name == "array":
            self._expect("<")
            item = self.parse_type(level + 1)
            self._expect(">")
            return ListOf(item)
        if name == "map":
            self._expect("<")
            if self._next() != "string":
                raise ValueError("the keys of a map are text: map<string, type>")
            self._expect(",")
            value = self.parse_type(level + 1)
            self._expect(">")
            return MapOf(value)
        return _scalar(name)

    def expect_end(self) -> None:
        if self._peek():
            raise ValueError(f"a type is followed by {self._peek()!r}")

    def _parse_fields(self, level: int) -> tuple[StructField, ...]:
        fields: dict[str, StructField] = {}
        self._expect("<")
        while True:
            name = self._next()
            if COLUMN_NAME.fullmatch(name) is None or name in "<>:,":
                raise ValueError(f"a field of a struct is written name: type, not {name!r}")
            if name.lower() in fields:
                raise ValueError(f"a struct has two fields {name!r}, for Spark reads no case")
            self._expect(":")
            kind = self.parse_type(level + 1)
            is_required = self._peek().lower() == "not"
            if is_required and (self._next(), self._next().lower())[1] != "null":
                raise ValueError("a field that a struct must have is written name: type not null")
            fields[name.lower()] = StructField(name, kind, is_required)
            if self._peek() == ">":
                self._next()
                return tuple(fields.values())
            self._expect(",")

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1] if match is not None else ""

    def _next(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError("a type ends too early: a '>' is missing")
        self._at = match.end()
        return match[1]

    def _expect(self, sign: str) -> None:
        found = self._next()
        if found != sign:
            raise ValueError(f"a type has {found!r} where {sign!r} is expected")
