"""Counts the values in Avro data without building them.

A byte may be one value or sixteen (`avro_schema.py`), so only counting tells whether a long
payload fits `values_max`. It takes a microsecond per value, and ends at the first one too many.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.decoding.avro_schema import AvroSchema

_WIDTHS: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def count_avro_values(content: bytes, schema: AvroSchema, count: int, values_max: int) -> int:
    """Return the number of values of ``count`` data, or a number above values_max.

    Malformed data ends the count, as it ends reading.
    """
    walk = _Walk(content, schema.named, values_max)
    try:
        for _ in range(count):
            walk.pass_by(schema.parsed)
    except (_Over, IndexError, KeyError, TypeError):
        pass
    return walk.values


class _Over(Exception):
    """Raised when there are too many values."""


class _Walk:
    """Walks through a payload; ``values`` is the number of values before its position."""

    def __init__(self, content: bytes, named: dict[str, Any], values_max: int) -> None:
        self.values = 0
        self._content = content
        self._named = named
        self._values_max = values_max
        self._at = 0

    def pass_by(self, schema: Any) -> None:
        """Move behind a datum."""
        self.values += 1
        if self.values > self._values_max:
            raise _Over
        if isinstance(schema, list):
            self.values -= 1  # the index of the branch is not a value
            self.pass_by(schema[self._long()])
            return
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("record", "error"):
            for field in schema["fields"]:
                self.pass_by(field["type"])
        elif kind == "array":
            self._pass_items(schema["items"], has_keys=False)
        elif kind == "map":
            self._pass_items(schema["values"], has_keys=True)
        elif kind in ("bytes", "string"):
            length = self._long()  # this moves the position
            self._at += max(0, length)
        elif kind == "fixed":
            self._at += schema["size"]
        elif kind in _WIDTHS:
            self._at += _WIDTHS[kind]
        elif isinstance(kind, str):  # int, long, enum
            self._long()
        else:
            self.values -= 1
            self.pass_by(kind)

    def _pass_items(self, items: Any, *, has_keys: bool) -> None:
        while count := self._long():
            if count < 0:
                self._long()  # their length in bytes
            for _ in range(abs(count)):
                if self._at >= len(self._content):
                    raise IndexError
                if has_keys:
                    self.pass_by("string")
                self.pass_by(items)

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._content[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise IndexError
