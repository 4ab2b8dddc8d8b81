"""Messages ↔ chunks: the rows of the log as the engine knows them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.engine.columns import Columns, Text, columns_of
from penstock.engine.message import Message
from penstock.store.chunk import decode_chunk, encode_chunk


def chunk_of(columns: Columns) -> bytes:
    """The chunk that holds ``columns``, of at least one message."""
    count = columns.count
    properties = columns.has_properties
    without = count - properties.true
    return encode_chunk(
        [
            _array(pa.int64(), count, columns.received_at()),
            _text(pa.string(), count, columns.topics),
            _text(pa.binary(), count, columns.payloads),
            _array(pa.int8(), count, columns.qos()),
            _array(pa.bool_(), count, columns.retained.data()),
            _text(pa.string(), count, columns.client_ids),
            _text(pa.binary(), count, columns.properties, properties.data(), without),
            _array(pa.bool_(), count, columns.internal.data()),
        ]
    )


def _array(kind: pa.DataType, count: int, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], null_count=0)


def _text(
    kind: pa.DataType, count: int, column: Text, valid: bytes = b"", null_count: int = 0
) -> pa.Array:
    validity = pa.py_buffer(valid) if null_count else None
    buffers = [validity, pa.py_buffer(column.positions()), pa.py_buffer(column.data())]
    return pa.Array.from_buffers(kind, count, buffers, null_count=null_count)


def messages_of(batch: pa.RecordBatch, base_offset: int, rows: Sequence[int]) -> list[Message]:
    """The messages in ``rows`` of the chunk that starts at ``base_offset``."""
    table = batch.take(pa.array(rows, type=pa.int64())).to_pylist()
    return [
        Message(
            values["topic"],
            values["payload"],
            values["qos"],
            values["retain"],
            values["client_id"],
            values["received_at"],
            values["properties"] or b"",
            base_offset + row,
            values["internal"],
        )
        for row, values in zip(rows, table, strict=True)
    ]


def rehearse() -> None:
    """Write and read a chunk that nobody keeps.

    Arrow's first conversion loads modules for a quarter of a second; better before the
    first message than while it waits for its acknowledgement.
    """
    messages_of(decode_chunk(chunk_of(columns_of([Message("rehearsal", b"")]))), 0, [0])
