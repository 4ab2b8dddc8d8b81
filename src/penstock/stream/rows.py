"""The rows that readers of a stream get: one row per message, in Arrow columns.

The log stores messages in the broker's form (`penstock.store.chunk`): raw property bytes, µs as
integers, no offsets. This module converts such rows to the public form. Only requested columns are
built; properties are parsed once per distinct value of a block.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.protocol.properties import parse_properties

PROPERTIES_TYPE: Final = pa.struct(
    [
        pa.field("payload_format_indicator", pa.int8()),
        pa.field("message_expiry_interval", pa.int64()),  # seconds
        pa.field("content_type", pa.string()),
        pa.field("response_topic", pa.string()),
        pa.field("correlation_data", pa.binary()),
        pa.field(
            "user_properties",
            pa.list_(
                pa.field(
                    "element",
                    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())]),
                )
            ),
        ),
    ]
)
"""The MQTT 5 properties of a message [MQTT 5 §3.3.2.3] that are forwarded to its subscribers."""

STREAM_SCHEMA: Final = pa.schema(
    [
        pa.field("epoch", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("received_at", pa.timestamp("us", tz="UTC")),
        pa.field("topic", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("qos", pa.int8()),
        pa.field("retain", pa.bool_()),
        pa.field("client_id", pa.string()),
        pa.field("properties", PROPERTIES_TYPE),
    ]
)
"""The columns of a stream. All have nullable types, because Spark compares types exactly and its
own types are nullable; only `properties` is ever null."""

PUBLISH_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("qos", pa.int8()),
        pa.field("retain", pa.bool_()),
        pa.field("properties", PROPERTIES_TYPE),
    ]
)
"""The columns of rows to be published, with the types of a stream; only `properties` may be
null."""


def select_schema(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema with these columns of a stream, in this order; None for all columns.

    Raises:
        KeyError: a stream has no such column; the error's argument is the name.
    """
    if columns is None:
        return STREAM_SCHEMA
    unknown = [name for name in columns if name not in _BUILDERS]
    if unknown:
        raise KeyError(unknown[0])
    return pa.schema([STREAM_SCHEMA.field(name) for name in columns])


def portions(log_rows: pa.Table, schema: pa.Schema, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of consecutive rows of which the public form takes about ``bytes_max``.

    A row that takes more is alone.

    Args:
        log_rows: rows of `LOG_SCHEMA`.
        schema: the result of `select_schema`.
        bytes_max: bytes of rows in their public form; a byte of properties, of which objects are
            made on the way, counts ``_PROPERTY_FACTOR`` times.
    """
    weights = pa.repeat(pa.scalar(_ROW_BYTES, pa.int64()), log_rows.num_rows)
    for name, factor in _WEIGHTS.items():
        if name in schema.names:
            lengths = pc.fill_null(pc.binary_length(log_rows.column(name)), 0)
            weighed = pc.multiply(lengths.cast(pa.int64()), factor)
            weights = pc.add(weights, weighed)
    ends = pc.cumulative_sum(weights)
    begin = used = 0
    while begin < log_rows.num_rows:
        last = bisect.bisect_right(
            range(log_rows.num_rows), used + bytes_max, key=lambda at: ends[at].as_py()
        )
        end = max(last, begin + 1)
        yield begin, end
        begin, used = end, ends[end - 1].as_py()


def make_rows(log_rows: pa.Table, offsets: pa.Array, epoch: str, schema: pa.Schema) -> pa.Table:
    """Return rows of the log in their public form, with the columns that `schema` names.

    Args:
        log_rows: rows of `LOG_SCHEMA`.
        offsets: the offset of each row, int64.
        epoch: epoch of the log.
        schema: the result of `select_schema`.
    """
    assert len(offsets) == log_rows.num_rows, "each row has its offset"
    columns = [_BUILDERS[name](log_rows, offsets, epoch) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def _same(name: str, log_rows: pa.Table, _offsets: pa.Array, _epoch: str) -> Any:
    return log_rows.column(name)


def _epochs(log_rows: pa.Table, _offsets: pa.Array, epoch: str) -> Any:
    return pa.repeat(pa.scalar(epoch, pa.string()), log_rows.num_rows)


def _offsets(_log_rows: pa.Table, offsets: pa.Array, _epoch: str) -> Any:
    return offsets


def _received_at(log_rows: pa.Table, _offsets: pa.Array, _epoch: str) -> Any:
    return log_rows.column("received_at").cast(pa.timestamp("us", tz="UTC"))


def _properties(log_rows: pa.Table, _offsets: pa.Array, _epoch: str) -> Any:
    raw = log_rows.column("properties")
    if raw.null_count == len(raw):
        return pa.nulls(len(raw), PROPERTIES_TYPE)
    encoded = pc.dictionary_encode(raw.combine_chunks())
    parsed = pa.array([_parse(value) for value in encoded.dictionary.to_pylist()], PROPERTIES_TYPE)
    return parsed.take(encoded.indices)


def _parse(data: bytes) -> dict[str, object]:
    found = parse_properties(data)
    pairs = found.user_properties
    return {
        "payload_format_indicator": found.payload_format_indicator,
        "message_expiry_interval": found.message_expiry_interval,
        "content_type": found.content_type,
        "response_topic": found.response_topic,
        "correlation_data": found.correlation_data,
        "user_properties": pairs and [{"key": key, "value": value} for key, value in pairs],
    }


_ROW_BYTES: Final = 64  # of the columns that are small, and alike in all rows
_PROPERTY_FACTOR: Final = 32
_WEIGHTS: Final = {"topic": 1, "payload": 1, "client_id": 1, "properties": _PROPERTY_FACTOR}

_BUILDERS: Final[dict[str, Callable[[pa.Table, pa.Array, str], Any]]] = {
    "epoch": _epochs,
    "offset": _offsets,
    "received_at": _received_at,
    "properties": _properties,
    **{name: partial(_same, name) for name in ("topic", "payload", "qos", "retain", "client_id")},
}
