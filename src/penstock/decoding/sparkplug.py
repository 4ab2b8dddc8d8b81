"""`sparkplug_b`: Eclipse Sparkplug 3.0, each metric of a payload is a row.

Data may come without the names of their metrics, by an alias, and without their types (Sparkplug
3.0.0 §6.4.8). Both are in the birth certificate of the node or device, an earlier message:

    message ──topic, offset──▶ births (sparkplug_births) ──▶ definitions (sparkplug_definitions)
       └──payload──▶ metrics ──────────────────────────────────▶ values (sparkplug_values) ──▶ rows

A payload without metrics, such as a DDEATH, is one row without a metric.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.casts import Cast
from penstock.decoding.decoder import DecodedBatch, Messages
from penstock.decoding.rows import Rows, decode_in_portions
from penstock.decoding.sparkplug_births import (
    Birth,
    Births,
    DefiningBirths,
    births_among,
    is_birth,
)
from penstock.decoding.sparkplug_definitions import (
    NO_DEFINITIONS,
    Definition,
    Definitions,
    definitions_in,
)
from penstock.decoding.sparkplug_schema import payload_class
from penstock.decoding.sparkplug_values import NULL_METRIC, metric_values
from penstock.errors import ConfigError

DEFINITIONS_MAX: Final = 500_000
"""Most metrics, and parts of them, whose definitions a decoder keeps; then it forgets all."""

_COMPRESSED: Final = "SPBV1.0_COMPRESSED"
_METRIC_BYTES_MIN: Final = 2

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
    """Decodes payloads of NBIRTH, NDATA, NDEATH, DBIRTH, DDATA, DDEATH, NCMD and DCMD.

    Args:
        definition: the settings of the decoder.
        births: all births before the messages that will be decoded; None if those in the same
            batch are all.
    """

    def __init__(self, definition: DecoderDefinition, births: Births | None = None) -> None:
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
        self._types = None if births is None else _DefinedTypes(births, self._read_message)

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; each metric is a row.

        Raises:
            DecodingPostponed: not all births before a message are known yet.
        """
        types = self._types
        if types is None:
            births = births_among(messages.offsets, messages.topics, messages.payloads)
            types = _DefinedTypes(Births([births]), self._read_message)
        topics, offsets = messages.topics.to_pylist(), messages.offsets.to_pylist()

        def decode_portion(payloads: list[bytes], rows: Rows) -> None:
            portion = slice(rows.first, rows.first + len(payloads))
            self._decode_portion(payloads, topics[portion], offsets[portion], types, rows)

        values_max = self._definition.values_max
        return decode_in_portions(self.schema, messages.payloads, decode_portion, values_max)

    def count_metrics(self, payload: bytes) -> int | None:
        """Return the number of metrics in a payload; None if it is not Sparkplug B."""
        try:
            return len(self._read_message(payload).metrics)
        except BrokenPayload:
            return None

    def _decode_portion(
        self,
        payloads: list[bytes],
        topics: list[str],
        offsets: list[int],
        types: _DefinedTypes,
        rows: Rows,
    ) -> None:
        found: list[tuple[Any, ...]] = []
        for source, payload in enumerate(payloads):
            try:
                message = self._read_message(payload)
                rows.check_message(len(message.metrics) * len(self._casts))
                of_message = _MessageTypes(topics[source], offsets[source], types, rows)
                metrics = [metric_values(metric, of_message) for metric in message.metrics]
            except BrokenPayload as broken:
                rows.mark_broken(source, str(broken))
                continue
            metrics = metrics or [NULL_METRIC]
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
        return message

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


class _DefinedTypes:
    """The definitions of births, parsed when a message needs them, and kept for others.

    Args:
        births: finds the births of a message.
        read_message: parses the payload of a birth; raises BrokenPayload.
    """

    def __init__(self, births: Births, read_message: Callable[[bytes], Any]) -> None:
        self.births = births
        self._read_message = read_message
        self._by_offset: dict[int, Definitions | str] = {}
        self._count = 0

    def of(self, birth: Birth) -> Definitions | str:
        """Return the definitions in a birth; the reason in words if it is broken."""
        found = self._by_offset.get(birth.offset)
        if found is not None:
            return found
        try:
            found = definitions_in(self._read_message(birth.payload))
        except BrokenPayload as broken:
            found = f"its birth at offset {birth.offset} is broken: {str(broken).rstrip('.')}"
        if self._count > DEFINITIONS_MAX:
            self._by_offset, self._count = {}, 0
        self._by_offset[birth.offset] = found
        self._count += 1 if isinstance(found, str) else 1 + found.count
        return found


class _MessageTypes:
    """Tells what births say of the metrics of one message (`MetricTypes`)."""

    def __init__(self, topic: str, offset: int, types: _DefinedTypes, rows: Rows) -> None:
        self._topic = topic
        self._offset = offset
        self._types = types
        self._rows = rows
        self._values = 0
        self._births: DefiningBirths | None = None

    def find(self, name: str | None, alias: int | None) -> Definition | None:
        """Return the definition of a metric; None if no birth defines it."""
        return self._definitions(self._found().own).find(name, alias)

    def find_template(self, name: str) -> Definition | None:
        """Return the definition of a template; None if the birth of the node has none."""
        return self._definitions(self._found().node).find(name, None)

    def missing(self) -> str:
        """Return why a metric has no definition, to follow "has no data type, and"."""
        found = self._found()
        if found.own is None:
            return found.missing
        definitions = self._types.of(found.own)
        if isinstance(definitions, str):
            return definitions
        return f"its birth at offset {found.own.offset} has none for it"

    def check_values(self, count: int) -> None:
        """Raise BrokenPayload if the message becomes too many values with so many more."""
        self._values += count
        self._rows.check_message(self._values)

    def _found(self) -> DefiningBirths:
        if self._births is None:
            if is_birth(self._topic):
                self._births = DefiningBirths(None, None, "a birth must tell it")
            else:
                self._births = self._types.births.find(self._topic, self._offset)
        return self._births

    def _definitions(self, birth: Birth | None) -> Definitions:
        found = NO_DEFINITIONS if birth is None else self._types.of(birth)
        return NO_DEFINITIONS if isinstance(found, str) else found
