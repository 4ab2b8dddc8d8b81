"""Counts the values in Avro data without building them.

A byte may be one value or sixteen (`avro_schema.py`), so only counting tells whether a long
payload fits `values_max`. Counting takes a microsecond per value, and stops at the first value
above the limit.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.decoding.avro_schema import AvroSchema

_WIDTHS: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def count_avro_values(content: bytes, schema: AvroSchema, count: int, values_max: int) -> int:
    """Return the number of values of ``count`` successive data, or a number above values_max.

    Counting stops at malformed data, which the decoder reports when it reads them.
    """
    counter = _ValueCounter(content, schema.named_types, values_max)
    try:
        for _ in range(count):
            counter.skip_datum(schema.fastavro_schema)
    except (_TooManyValues, IndexError, KeyError, TypeError):
        pass
    return counter.values


class _TooManyValues(Exception):
    """Raised at the first value above the limit."""


class _ValueCounter:
    """Walks through encoded data; ``values`` is the number of values before its position."""

    def __init__(self, content: bytes, named: dict[str, Any], values_max: int) -> None:
        self.values = 0
        self._content = content
        self._named = named
        self._values_max = values_max
        self._position = 0

    def skip_datum(self, schema: Any) -> None:
        """Count the values of the datum at the position, and move behind it."""
        self.values += 1
        if self.values > self._values_max:
            raise _TooManyValues
        if isinstance(schema, list):
            self.values -= 1  # the index of the branch is not a value
            self.skip_datum(schema[self._read_long()])
            return
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("record", "error"):
            for field in schema["fields"]:
                self.skip_datum(field["type"])
        elif kind == "array":
            self._skip_items(schema["items"], has_keys=False)
        elif kind == "map":
            self._skip_items(schema["values"], has_keys=True)
        elif kind in ("bytes", "string"):
            length = self._read_long()  # first: reading the length moves the position
            self._position += max(0, length)
        elif kind == "fixed":
            self._position += schema["size"]
        elif kind in _WIDTHS:
            self._position += _WIDTHS[kind]
        elif isinstance(kind, str):  # int, long, enum
            self._read_long()
        else:
            self.values -= 1
            self.skip_datum(kind)

    def _skip_items(self, items: Any, *, has_keys: bool) -> None:
        while count := self._read_long():
            if count < 0:
                self._read_long()  # the length of the items in bytes
            for _ in range(abs(count)):
                if self._position >= len(self._content):
                    raise IndexError
                if has_keys:
                    self.skip_datum("string")
                self.skip_datum(items)

    def _read_long(self) -> int:
        value = shift = 0
        while True:
            byte = self._content[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise IndexError
