"""Converts the engine's messages to chunks of the log, and chunks to messages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from io import BytesIO

import pyarrow as pa

from penstock.engine.values.log_columns import Columns
from penstock.engine.values.message import Message
from penstock.engine.values.steady_clock import Leads
from penstock.store.chunk import encode_chunk
from penstock.store.parts import PART_BYTES


def chunk_from_columns(columns: Columns) -> list[bytes]:
    """Return the stored form of a chunk with the messages in ``columns``, one or more, as byte
    strings to be joined."""
    count = columns.count
    properties = columns.has_properties
    without = count - properties.true_count
    buffers: list[
        bytes | list[bytes]
    ] = [  # each column begins with its validity bitmap, empty where no value is null
        *(b"", columns.received_at()),
        *(b"", columns.topics.positions(), columns.topics.data()),
        *(b"", columns.payloads.positions(), columns.payloads.data()),
        *(b"", columns.qos()),
        *(b"", columns.retained.data()),
        *(b"", columns.client_ids.positions(), columns.client_ids.data()),
        *(properties.data() if without else b"", columns.properties.positions()),
        columns.properties.data(),
        *(b"", columns.internal.data()),
    ]
    return encode_chunk(count, (0, 0, 0, 0, 0, 0, without, 0), buffers)


def messages_from_chunk(
    batch: pa.RecordBatch, base_offset: int, rows: Sequence[int], leads: Leads
) -> list[Message]:
    """Return messages of a chunk.

    Args:
        batch: the rows of the chunk.
        base_offset: offset of its first row.
        rows: numbers of the rows to return.
        leads: how far the dates of messages are ahead of the steady clock, by offset.
    """
    payloads = batch.column("payload")
    is_large = payloads.buffers()[2].size >= PART_BYTES
    columns = batch.drop_columns("payload") if is_large else batch
    indices = pa.py_buffer(array("q", rows))  # pa.array(rows) would load pandas, if it is installed
    table = columns.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, indices])).to_pylist()
    return [
        Message(
            values["topic"],
            _payload(payloads, row) if is_large else values["payload"],
            values["qos"],
            values["retain"],
            values["client_id"],
            values["received_at"],
            values["properties"] or b"",
            base_offset + row,
            values["internal"],
            lead_us=leads.at(base_offset + row),
        )
        for row, values in zip(rows, table, strict=True)
    ]


def _payload(payloads: pa.Array, row: int) -> bytes:
    """Return the payload in ``row``; a large one is copied in steps, so that other threads run in
    between."""
    positions = memoryview(payloads.buffers()[1]).cast("i")
    first, end = positions[payloads.offset + row], positions[payloads.offset + row + 1]
    if end - first < PART_BYTES:
        small: bytes = payloads[row].as_py()
        return small
    values = memoryview(payloads.buffers()[2])
    copy = BytesIO()
    for at in range(first, end, PART_BYTES):
        copy.write(values[at : min(at + PART_BYTES, end)])
    return copy.getvalue()
