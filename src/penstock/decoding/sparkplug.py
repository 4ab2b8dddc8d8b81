"""`sparkplug_b`: Eclipse Sparkplug 3.0, each metric of a payload is a row.

Metrics to which a birth certificate gave an alias come without their name in the data that follows
(Sparkplug 3.0.0 §6.4.8): the alias is a column, to be joined with the births by a query. The data
type may be absent, too; then a whole number is taken as it is sent, unsigned.

A payload without metrics, such as a DDEATH, is one row without a metric.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import pyarrow as pa

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken import Broken
from penstock.decoding.casts import Cast
from penstock.decoding.decoded import DecodedBatch
from penstock.decoding.repeated import exceeds_repetition_limit
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
_BITS: Final = 8
_INT64_MAX: Final = 2**63 - 1

_OF_PAYLOAD: Final = {
    "payload_timestamp": Column(type="timestamp", unit_from="ms"),
    "seq": Column(type="int64"),
}
_OF_METRIC: Final = {
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
        self._payload = payload_class()
        self._outline = payload_class("Outline")
        columns = {**_OF_PAYLOAD, **_OF_METRIC}
        self._casts = [Cast(name, column) for name, column in columns.items()]
        self.schema = pa.schema([cast.field for cast in self._casts])

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> DecodedBatch:  # noqa: ARG002
        """Decode a batch; each metric is a row."""
        values_max = self._definition.values_max
        return decode_in_portions(self.schema, payloads, self._portion, values_max)

    def _portion(self, payloads: list[bytes], rows: Rows) -> None:
        found: list[tuple[Any, ...]] = []
        for source, payload in enumerate(payloads):
            try:
                message = self._message(payload)
                rows.check_message(len(message.metrics) * len(self._casts))
                metrics = [_metric(metric) for metric in message.metrics] or [_NO_METRIC]
            except Broken as broken:
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

    def _message(self, payload: bytes) -> Any:
        message = self._parsed(payload)
        if message.uuid == _COMPRESSED:
            inner = self._parsed(self._expand(message))
            for name in ("timestamp", "seq"):
                if message.HasField(name) and not inner.HasField(name):
                    setattr(inner, name, getattr(message, name))
            message = inner
        self._check_count(len(message.metrics))
        self._check_booleans(message)
        return message

    def _check_booleans(self, message: Any) -> None:
        """Raise Broken if arrays of booleans have too many values: a byte of them is eight."""
        values_max = self._definition.values_max
        if _BITS * message.ByteSize() <= values_max:
            return
        arrays = (one.bytes_value for one in message.metrics if one.datatype == _BOOLEAN_ARRAY)
        if _BITS * sum(map(len, arrays)) > values_max:
            raise Broken(f"The payload has more values than values_max allows ({values_max}).")

    def _check_count(self, metrics: int) -> None:
        if metrics > self._definition.rows_max:
            raise Broken(f"The payload has {metrics} metrics, more than rows_max.")

    def _parsed(self, payload: bytes) -> Any:
        try:
            if len(payload) > _METRIC_BYTES_MIN * self._definition.rows_max:
                # A metric takes a hundred times more in memory than the two bytes it may have.
                self._check_count(len(self._outline.FromString(payload).metrics))
            return self._payload.FromString(payload)
        except self._error:
            raise Broken("The payload is not Sparkplug B.") from None

    def _expand(self, message: Any) -> bytes:
        """Expand the body of a compressed payload, as Eclipse Tahu writes it.

        The metric `algorithm` says GZIP or DEFLATE.
        """
        bytes_max = self._definition.expanded_bytes_max
        expander = zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects both by their headers
        try:
            expanded = expander.decompress(message.body, bytes_max + 1)
        except zlib.error:
            raise Broken("The compressed body is neither gzip nor zlib.") from None
        if len(expanded) > bytes_max:
            raise Broken(f"The compressed body is longer than {bytes_max} bytes.")
        if not expander.eof:
            raise Broken("The compressed body ends too early.")
        return expanded


def _metric(metric: Any) -> tuple[Any, ...]:
    """Return the columns of a metric, in the order of _OF_METRIC."""
    fields = {field.number: value for field, value in metric.ListFields()}
    found = fields.get
    datatype = found(4, 0)
    is_null = found(7, False)
    return (
        found(1),
        found(2),
        _name_of(datatype),
        found(3),
        found(5, False),
        found(6, False),
        is_null,
        *(_NO_VALUE if is_null else _value_columns(metric, datatype)),
        _properties(fields[9]) if 9 in fields else None,
        _present(fields[8]) if 8 in fields else None,
    )


def _name_of(datatype: int) -> str | None:
    return DATATYPES.get(datatype, str(datatype)) if datatype else None


_NO_VALUE: Final = (None,) * 7
_NO_METRIC: Final = (None,) * len(_OF_METRIC)


def _value_columns(metric: Any, datatype: int) -> tuple[Any, ...]:
    """Return the value columns of a metric.

    They are value_int, value_double, value_bool, value_string, value_timestamp, value_binary and
    value_json. A number is always in value_double, too, so that one column has all numbers. A whole
    number beyond 64 bits with a sign is in value_string with all its digits.
    """
    value = _value(metric, datatype)
    if value is None:
        return _NO_VALUE
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
        listed = _list_of(value, datatype)
        if listed is None:
            return (None, None, None, None, None, value, None)
        return (None, None, None, None, None, None, listed)
    return (None, None, None, None, None, None, value)


def _value(holder: Any, datatype: int) -> Any:
    """Return the value of a metric, parameter, property or element; None if it has none."""
    choice = holder.WhichOneof("value")
    if choice is None:
        return None
    value = getattr(holder, choice)
    if choice in ("int_value", "long_value"):
        return _signed(value, datatype)
    if choice == "dataset_value":
        return _data_set(value)
    if choice == "template_value":
        return _template(value)
    if choice == "propertyset_value":
        return _properties(value)
    if choice == "propertysets_value":
        return [_properties(one) for one in value.propertyset]
    return value


def _signed(value: int, datatype: int) -> int:
    """Return the signed value of a whole number, which is sent as its two's complement."""
    bits = _SIGNED_BITS.get(datatype)
    if bits is None:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _list_of(value: bytes, datatype: int) -> list[Any] | None:
    """Return the items of an array, Sparkplug 3.0.0 §6.4.16: little-endian; None for other
    bytes."""
    code = _ARRAYS.get(datatype)
    if code is not None:
        width = struct.calcsize("<" + code)
        if len(value) % width:
            raise Broken(f"A {DATATYPES[datatype]} is cut short: it has {len(value)} bytes.")
        return list(struct.unpack(f"<{len(value) // width}{code}", value))
    if datatype == _BOOLEAN_ARRAY:
        count = int.from_bytes(value[:4], "little")
        if len(value) < 4 or len(value) != 4 + (count + 7) // 8:
            raise Broken(f"A BooleanArray is cut short: it has {len(value)} bytes.")
        return [bool(value[4 + bit // 8] >> (7 - bit % 8) & 1) for bit in range(count)]
    if datatype == _STRING_ARRAY:
        if value and not value.endswith(b"\0"):
            raise Broken("A StringArray is cut short: its last text has no end.")
        try:
            return [text.decode() for text in value.split(b"\0")[:-1]]
        except UnicodeDecodeError:
            raise Broken("A StringArray has text that is not UTF-8.") from None
    return None


def _data_set(data: Any) -> list[dict[str, Any]]:
    """Return a table as objects: one for each of its rows, with the names of its columns."""
    names = list(data.columns)
    if exceeds_repetition_limit(len(data.rows) * sum(map(len, names)), data.ByteSize()):
        raise Broken(
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


def _template(template: Any) -> dict[str, Any]:
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
    pairs = zip(properties.keys, properties.values, strict=False)
    return {key: None if one.is_null else _value(one, one.type) for key, one in pairs}


def _present(message: Any) -> dict[str, Any]:
    return {field.name: value for field, value in message.ListFields()}
