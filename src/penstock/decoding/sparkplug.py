"""`sparkplug_b`: Eclipse Sparkplug 3.0, each metric of a payload is a row.

Metrics to which a birth certificate gave an alias come without their name in the data that follows
(Sparkplug 3.0.0 §6.4.8): the alias is a column, by which a query joins them with the births. The
data type may be absent, too; then a whole number is read as unsigned, as it is sent.

A payload without metrics, such as a DDEATH, is one row without a metric.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import pyarrow as pa

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.casts import Cast
from penstock.decoding.decoder import DecodedBatch
from penstock.decoding.repetition_limit import exceeds_repetition_limit
from penstock.decoding.rows import Rows, decode_in_portions
from penstock.decoding.sparkplug_schema import DATATYPES, payload_class
from penstock.errors import ConfigError

_COMPRESSED: Final = "SPBV1.0_COMPRESSED"
_SIGNED_BITS: Final = {1: 8, 2: 16, 3: 32, 4: 64}
_DATE_TIME: Final = 13
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
_METRIC_BYTES_MIN: Final = 2
_BITS_A_BYTE: Final = 8
_INT64_MAX: Final = 2**63 - 1

_PAYLOAD_COLUMNS: Final = {
    "payload_timestamp": Column(type="timestamp", unit_from="ms"),
    "seq": Column(type="int64"),
}
_METRIC_COLUMNS: Final = {
    "name": Column(type="string"),
    "alias": Column(type="int64"),
    "datatype": Column(type="string"),
    "timestamp": Column(type="timestamp", unit_from="ms"),
    "is_historical": Column(type="bool"),
    "is_transient": Column(type="bool"),
    "is_null": Column(type="bool"),
    "value_int": Column(type="int64"),
    "value_double": Column(type="float64"),
    "value_bool": Column(type="bool"),
    "value_string": Column(type="string"),
    "value_timestamp": Column(type="timestamp", unit_from="ms"),
    "value_binary": Column(type="binary"),
    "value_json": Column(type="json"),
    "properties": Column(type="json"),
    "metadata": Column(type="json"),
}


class SparkplugDecoder:
    """Decodes payloads of NBIRTH, NDATA, NDEATH, DBIRTH, DDATA, DDEATH, NCMD and DCMD."""

    def __init__(self, definition: DecoderDefinition) -> None:
        try:
            from google.protobuf.message import DecodeError
        except ImportError:
            raise ConfigError(
                "The decoder sparkplug_b needs the package protobuf, which is not installed:"
                " pip install 'penstock[spark]'."
            ) from None
        self._error = DecodeError
        self._definition = definition
        self._payload_class = payload_class()
        self._outline_class = payload_class("Outline")
        columns = {**_PAYLOAD_COLUMNS, **_METRIC_COLUMNS}
        self._casts = [Cast(name, column) for name, column in columns.items()]
        self.schema = pa.schema([cast.field for cast in self._casts])

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> DecodedBatch:  # noqa: ARG002
        """Decode a batch; each metric is a row."""
        values_max = self._definition.values_max
        return decode_in_portions(self.schema, payloads, self._decode_portion, values_max)

    def _decode_portion(self, payloads: list[bytes], rows: Rows) -> None:
        found: list[tuple[Any, ...]] = []
        for source, payload in enumerate(payloads):
            try:
                message = self._read_message(payload)
                rows.check_message(len(message.metrics) * len(self._casts))
                metrics = [_metric_values(metric) for metric in message.metrics] or [_NULL_METRIC]
            except BrokenPayload as broken:
                rows.mark_broken(source, str(broken))
                continue
            rows.check_rows((len(found) + len(metrics)) * len(self._casts))
            head = (
                message.timestamp if message.HasField("timestamp") else None,
                message.seq if message.HasField("seq") else None,
            )
            found += [head + metric for metric in metrics]
            rows.sources += [source] * len(metrics)
        columns = list(zip(*found, strict=True)) or [()] * len(self._casts)
        for cast, values in zip(self._casts, columns, strict=True):
            rows.add(*cast(list(values)))

    def _read_message(self, payload: bytes) -> Any:
        message = self._parse(payload)
        if message.uuid == _COMPRESSED:
            inner = self._parse(self._decompress(message))
            for name in ("timestamp", "seq"):
                if message.HasField(name) and not inner.HasField(name):
                    setattr(inner, name, getattr(message, name))
            message = inner
        self._check_count(len(message.metrics))
        self._check_booleans(message)
        return message

    def _check_booleans(self, message: Any) -> None:
        """Raise BrokenPayload if arrays of booleans have too many values, eight in each byte."""
        values_max = self._definition.values_max
        if _BITS_A_BYTE * message.ByteSize() <= values_max:
            return
        arrays = (one.bytes_value for one in message.metrics if one.datatype == _BOOLEAN_ARRAY)
        if _BITS_A_BYTE * sum(map(len, arrays)) > values_max:
            raise BrokenPayload(
                f"The payload has more values than values_max allows ({values_max})."
            )

    def _check_count(self, metrics: int) -> None:
        if metrics > self._definition.rows_max:
            raise BrokenPayload(f"The payload has {metrics} metrics, more than rows_max.")

    def _parse(self, payload: bytes) -> Any:
        try:
            if len(payload) > _METRIC_BYTES_MIN * self._definition.rows_max:
                # A metric of two bytes takes hundreds in memory: count the metrics before parsing.
                self._check_count(len(self._outline_class.FromString(payload).metrics))
            return self._payload_class.FromString(payload)
        except self._error:
            raise BrokenPayload("The payload is not Sparkplug B.") from None

    def _decompress(self, message: Any) -> bytes:
        """Return the decompressed body of a payload that Eclipse Tahu compressed by GZIP or
        DEFLATE."""
        bytes_max = self._definition.expanded_bytes_max
        decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects both by their headers
        try:
            expanded = decompressor.decompress(message.body, bytes_max + 1)
        except zlib.error:
            raise BrokenPayload("The compressed body is neither gzip nor zlib.") from None
        if len(expanded) > bytes_max:
            raise BrokenPayload(f"The compressed body is longer than {bytes_max} bytes.")
        if not decompressor.eof:
            raise BrokenPayload("The compressed body ends too early.")
        return expanded


def _metric_values(metric: Any) -> tuple[Any, ...]:
    """Return the values of a metric's columns, in the order of _METRIC_COLUMNS."""
    fields = {field.number: value for field, value in metric.ListFields()}
    found = fields.get
    datatype = found(4, 0)
    is_null = found(7, False)
    return (
        found(1),
        found(2),
        _datatype_name(datatype),
        found(3),
        found(5, False),
        found(6, False),
        is_null,
        *(_NULL_VALUE if is_null else _value_column_values(metric, datatype)),
        _properties(fields[9]) if 9 in fields else None,
        _set_fields(fields[8]) if 8 in fields else None,
    )


def _datatype_name(datatype: int) -> str | None:
    return DATATYPES.get(datatype, str(datatype)) if datatype else None


_NULL_VALUE: Final = (None,) * 7
_NULL_METRIC: Final = (None,) * len(_METRIC_COLUMNS)


def _value_column_values(metric: Any, datatype: int) -> tuple[Any, ...]:
    """Return the values of a metric's columns value_int, value_double, value_bool, value_string,
    value_timestamp, value_binary and value_json.

    Each number is in value_double, too, so that one column has all numbers. A whole number beyond
    a signed integer of 64 bits is in value_string with all its digits, and not in value_int.
    """
    value = _value(metric, datatype)
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
        items = _array_items(value, datatype)
        if items is None:
            return (None, None, None, None, None, value, None)
        return (None, None, None, None, None, None, items)
    return (None, None, None, None, None, None, value)


def _value(holder: Any, datatype: int) -> Any:
    """Return the value of a metric, parameter, property or DataSet element; None if it is unset."""
    choice = holder.WhichOneof("value")
    if choice is None:
        return None
    value = getattr(holder, choice)
    if choice in ("int_value", "long_value"):
        return _signed(value, datatype)
    if choice == "dataset_value":
        return _data_set_rows(value)
    if choice == "template_value":
        return _template_object(value)
    if choice == "propertyset_value":
        return _properties(value)
    if choice == "propertysets_value":
        return [_properties(one) for one in value.propertyset]
    return value


def _signed(value: int, datatype: int) -> int:
    """Return a whole number by its data type: signed types are sent as their two's complement."""
    bits = _SIGNED_BITS.get(datatype)
    if bits is None:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


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


def _data_set_rows(data: Any) -> list[dict[str, Any]]:
    """Return the rows of a DataSet as objects, with the names of its columns as keys."""
    names = list(data.columns)
    if exceeds_repetition_limit(len(data.rows) * sum(map(len, names)), data.ByteSize()):
        raise BrokenPayload(
            f"A DataSet has names of {sum(map(len, names))} characters, and {len(data.rows)} rows"
            " would repeat them."
        )
    types = [*data.types, *([0] * len(names))]
    return [
        {
            name: _value(element, kind)
            for name, kind, element in zip(names, types, row.elements, strict=False)
        }
        for row in data.rows
    ]


def _template_object(template: Any) -> dict[str, Any]:
    """Return the metrics and parameters of a template, by name."""
    metrics = {
        metric.name: None if metric.is_null else _value(metric, metric.datatype)
        for metric in template.metrics
    }
    parameters = {one.name: _value(one, one.type) for one in template.parameters}
    return {
        "template_ref": template.template_ref or None,
        "version": template.version or None,
        "is_definition": template.is_definition,
        "metrics": metrics,
        "parameters": parameters,
    }


def _properties(properties: Any) -> dict[str, Any]:
    """Return the values of a PropertySet by key."""
    pairs = zip(properties.keys, properties.values, strict=False)
    return {key: None if one.is_null else _value(one, one.type) for key, one in pairs}


def _set_fields(message: Any) -> dict[str, Any]:
    """Return the set fields of a message by name."""
    return {field.name: value for field, value in message.ListFields()}
