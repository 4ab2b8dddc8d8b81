"""Reads the values of Sparkplug metrics: a tuple with a value for each column of a metric.

A signed integer travels as its two's complement in an unsigned field, and an array as bytes, so
that only the data type tells what they are. Where a message leaves it out, the birth has it
(`MetricTypes`). A whole number or bytes whose type nobody tells make the message broken: no number
is guessed.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.repetition_limit import exceeds_repetition_limit
from penstock.decoding.sparkplug_definitions import Definition, PartKind
from penstock.decoding.sparkplug_schema import DATATYPES

_SIGNED_BITS: Final = {1: 8, 2: 16, 3: 32, 4: 64}
_UNSIGNED: Final = frozenset({5, 6, 7, 8, 13})  # and DateTime
_BOOLEAN: Final = 11
_DATE_TIME: Final = 13
_NESTED: Final = frozenset({16, 19})  # DataSet and Template
_ARRAYS: Final = {
    22: "b",
    23: "h",
    24: "i",
    25: "q",
    26: "B",
    27: "H",
    28: "I",
    29: "Q",
    30: "f",
    31: "d",
    34: "Q",
}
_BOOLEAN_ARRAY: Final = 32
_STRING_ARRAY: Final = 33
_BITS_A_BYTE: Final = 8
_INT64_MAX: Final = 2**63 - 1
_BD_SEQ: Final = Definition("bdSeq", 8)  # a number from 0 to 255 (Sparkplug 3.0.0 §6.4.21)

NULL_METRIC: Final = (None,) * 16
"""The columns of a payload without metrics."""

_NULL_VALUE: Final = (None,) * 7


class MetricTypes(Protocol):
    """Tells what births say of the metrics of one message."""

    def find(self, name: str | None, alias: int | None) -> Definition | None:
        """Return the definition of a metric; None if no birth defines it."""
        ...

    def find_template(self, name: str) -> Definition | None:
        """Return the definition of a template; None if the birth of the node has none."""
        ...

    def missing(self) -> str:
        """Return why a metric has no definition, to follow "has no data type, and"."""
        ...

    def check_values(self, count: int) -> None:
        """Raise BrokenPayload if the message becomes too many values with so many more."""
        ...


def metric_values(metric: Any, types: MetricTypes) -> tuple[Any, ...]:
    """Return name, alias, data type, times, flags, values, properties and metadata of a metric.

    Raises:
        BrokenPayload: a value has no type that tells how to read it, or does not fit its type.
    """
    fields = {field.number: value for field, value in metric.ListFields()}
    found = fields.get
    name, alias, datatype = found(1), found(2), found(4, 0)
    definition = None
    if name is None or not datatype or datatype in _NESTED or 9 in fields:
        definition = types.find(name, alias)
        if definition is None and name == _BD_SEQ.name:
            definition = _BD_SEQ
        if definition is not None:
            name = definition.name if name is None else name
            datatype = datatype or definition.datatype
    is_null = found(7, False)
    reader = _Reader(types, f"Metric {abbreviate(name if name is not None else alias)}")
    return (
        name,
        alias,
        _datatype_name(datatype),
        found(3),
        found(5, False),
        found(6, False),
        is_null,
        *(_NULL_VALUE if is_null else reader.columns(metric, datatype, definition)),
        reader.properties(fields[9], definition) if 9 in fields else None,
        _set_fields(fields[8]) if 8 in fields else None,
    )


def _datatype_name(datatype: int) -> str | None:
    return DATATYPES.get(datatype, str(datatype)) if datatype else None


class _Reader:
    """Reads the value of one metric.

    Args:
        types: tells what births say of the metrics of the message.
        what: the metric in words, for reasons.
    """

    def __init__(self, types: MetricTypes, what: str) -> None:
        self._types = types
        self._what = what

    def columns(self, metric: Any, datatype: int, definition: Definition | None) -> tuple[Any, ...]:
        """Return the values of a metric's columns value_int, value_double, value_bool,
        value_string, value_timestamp, value_binary and value_json.

        Each number is in value_double, too, so that one column has all numbers. A whole number
        beyond a signed integer of 64 bits is in value_string with all its digits, and not in
        value_int.
        """
        value = self._value(metric, datatype, definition)
        if value is None:
            return _NULL_VALUE
        if isinstance(value, bool):
            return (None, None, value, None, None, None, None)
        if isinstance(value, float):
            return (None, value, None, None, None, None, None)
        if isinstance(value, int):
            if datatype == _DATE_TIME:
                return (None, None, None, None, value, None, None)
            if value > _INT64_MAX:
                return (None, float(value), None, str(value), None, None, None)
            return (value, float(value), None, None, None, None, None)
        if isinstance(value, str):
            return (None, None, None, value, None, None, None)
        if isinstance(value, bytes):
            return (None, None, None, None, None, value, None)
        return (None, None, None, None, None, None, value)

    def properties(self, properties: Any, definition: Definition | None) -> dict[str, Any]:
        """Return the values of a PropertySet by key."""
        pairs = zip(properties.keys, properties.values, strict=False)
        return {
            key: None if one.is_null else self._part(one, one.type, definition, "property", key)
            for key, one in pairs
        }

    def _part(
        self, holder: Any, datatype: int, whole: Definition | None, kind: PartKind, name: str
    ) -> Any:
        """Return the value of a part of a metric, such as a member of a template."""
        definition = None if whole is None else whole.parts.get((kind, name))
        if not datatype and definition is not None:
            datatype = definition.datatype
        return self._value(holder, datatype, definition)

    def _value(self, holder: Any, datatype: int, definition: Definition | None) -> Any:
        """Return the value of a metric, parameter, property or DataSet element; None if it is
        unset."""
        choice = holder.WhichOneof("value")
        if choice is None:
            return None
        value = getattr(holder, choice)
        if choice in ("int_value", "long_value"):
            return self._whole_number(value, datatype)
        if choice == "bytes_value":
            if not datatype:
                raise self._untyped()
            if datatype == _BOOLEAN_ARRAY:
                self._types.check_values(_BITS_A_BYTE * len(value))
            items = _array_items(value, datatype)
            return value if items is None else items
        if choice == "dataset_value":
            return self._data_set_rows(value, definition)
        if choice == "template_value":
            return self._template_object(value, definition)
        if choice == "propertyset_value":
            return self.properties(value, definition)
        if choice == "propertysets_value":
            return [self.properties(one, definition) for one in value.propertyset]
        return value

    def _whole_number(self, value: int, datatype: int) -> int | bool:
        """Return a whole number by its data type: signed types are sent as their two's
        complement."""
        bits = _SIGNED_BITS.get(datatype)
        if bits is not None:
            return self._signed(value, bits, DATATYPES[datatype])
        if datatype in _UNSIGNED:
            return value
        if not datatype:
            raise self._untyped()
        if datatype == _BOOLEAN and value in (0, 1):
            return bool(value)
        kind = DATATYPES.get(datatype, datatype)
        raise BrokenPayload(f"{self._what} has the type {kind}, and a whole number as its value.")

    def _signed(self, value: int, bits: int, kind: str) -> int:
        """Return a signed number of which 8 to 64 bits were sent, the upper ones as its sign."""
        half = 1 << (bits - 1)
        if value < half:
            return value
        for sent_bits in (bits, 32, 64):
            if 0 < (1 << sent_bits) - value <= half:
                return value - (1 << sent_bits)
        raise BrokenPayload(f"{self._what} is {value}, which is out of range for {kind}.")

    def _untyped(self) -> BrokenPayload:
        return BrokenPayload(f"{self._what} has no data type, and {self._types.missing()}.")

    def _data_set_rows(self, data: Any, definition: Definition | None) -> list[dict[str, Any]]:
        """Return the rows of a DataSet as objects, with the names of its columns as keys."""
        names = list(data.columns)
        if exceeds_repetition_limit(len(data.rows) * sum(map(len, names)), data.ByteSize()):
            raise BrokenPayload(
                f"A DataSet has names of {sum(map(len, names))} characters, and {len(data.rows)}"
                " rows would repeat them."
            )
        types = [*data.types, *([0] * len(names))]
        return [
            {
                name: self._part(element, kind, definition, "column", name)
                for name, kind, element in zip(names, types, row.elements, strict=False)
            }
            for row in data.rows
        ]

    def _template_object(self, template: Any, definition: Definition | None) -> dict[str, Any]:
        """Return the metrics and parameters of a template, by name."""
        if definition is None or not definition.parts:
            definition = self._types.find_template(template.template_ref)
        metrics = {
            member.name: None
            if member.is_null
            else self._part(member, member.datatype, definition, "metric", member.name)
            for member in template.metrics
        }
        parameters = {
            one.name: self._part(one, one.type, definition, "parameter", one.name)
            for one in template.parameters
        }
        return {
            "template_ref": template.template_ref or None,
            "version": template.version or None,
            "is_definition": template.is_definition,
            "metrics": metrics,
            "parameters": parameters,
        }


def _array_items(value: bytes, datatype: int) -> list[Any] | None:
    """Return the items of an array (little-endian, Sparkplug 3.0.0 §6.4.16).

    None if the data type is not that of an array.
    """
    code = _ARRAYS.get(datatype)
    if code is not None:
        width = struct.calcsize("<" + code)
        if len(value) % width:
            raise BrokenPayload(f"A {DATATYPES[datatype]} is cut short: it has {len(value)} bytes.")
        return list(struct.unpack(f"<{len(value) // width}{code}", value))
    if datatype == _BOOLEAN_ARRAY:
        count = int.from_bytes(value[:4], "little")
        if len(value) < 4 or len(value) != 4 + (count + 7) // 8:
            raise BrokenPayload(f"A BooleanArray is cut short: it has {len(value)} bytes.")
        return [bool(value[4 + bit // 8] >> (7 - bit % 8) & 1) for bit in range(count)]
    if datatype == _STRING_ARRAY:
        if value and not value.endswith(b"\0"):
            raise BrokenPayload("A StringArray is cut short: its last text has no end.")
        try:
            return [text.decode() for text in value.split(b"\0")[:-1]]
        except UnicodeDecodeError:
            raise BrokenPayload("A StringArray has text that is not UTF-8.") from None
    return None


def _set_fields(message: Any) -> dict[str, Any]:
    """Return the set fields of a message by name."""
    return {field.name: value for field, value in message.ListFields()}
