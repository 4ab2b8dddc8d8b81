"""The chunk: the log's unit of writing, one Arrow record batch for one group commit.

A chunk holds the messages of one commit, column by column, in the order of their offsets. It is
stored as one RocksDB value, an Arrow IPC message *without* its schema; a large one is stored in
parts (``store.parts``). Its key is the offset of the first row; row ``i`` has the offset
``base + i``.

Readers of the log want columns (Flight, Spark, Parquet), and building the batch once, when it is
written, costs 0.3 µs a message; a row format would cost every reader more than that. The schema is
left out because it is the same for every chunk and would outweigh a small one; it may only change
together with the store's format number.

A column of text or bytes holds at most 2 GiB (32-bit Arrow offsets); the committer's limit on the
bytes of one commit keeps a chunk far below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import pyarrow as pa

from penstock.errors import StoreFormatError
from penstock.store.parts import read_head
from penstock.store.record_batch import RecordBatchTemplate

LOG_SCHEMA: Final = pa.schema(
    [
        pa.field("received_at", pa.int64(), nullable=False),  # µs since the Unix epoch, UTC
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("client_id", pa.string(), nullable=False),
        pa.field("properties", pa.binary(), nullable=True),  # raw MQTT 5 property bytes
        pa.field("internal", pa.bool_(), nullable=False),  # for sessions only: in no stream
    ]
)
"""The columns of a chunk, one row a message."""

KEY_LENGTH_BYTES: Final = 8
"""Length of a chunk's key in the log: its base offset, big-endian, so that keys sort as numbers."""


def encode_key(base_offset: int) -> bytes:
    """Return the log key of the chunk whose first row has `base_offset` (0 to 2**64 - 1)."""
    return base_offset.to_bytes(KEY_LENGTH_BYTES, "big")


def decode_key(key: bytes) -> int:
    """Return the base offset that `key` encodes.

    Raises:
        StoreFormatError: `key` does not have 8 bytes.
    """
    if len(key) != KEY_LENGTH_BYTES:
        raise StoreFormatError(
            f"a key of the log has {len(key)} bytes where {KEY_LENGTH_BYTES} belong"
        )
    return int.from_bytes(key, "big")


_TEMPLATE: Final = RecordBatchTemplate(LOG_SCHEMA)


def encode_chunk(
    rows: int, null_counts: Sequence[int], buffers: Sequence[bytes | list[bytes]]
) -> list[bytes]:
    """Return the stored form of a chunk, as byte strings to be joined.

    Args:
        rows: number of its messages, 1 or more.
        null_counts: number of nulls in each column of `LOG_SCHEMA`.
        buffers: the Arrow buffers of all columns (`RecordBatchTemplate.encode`).
    """
    return _TEMPLATE.encode(rows, null_counts, buffers)


def decode_chunk(value: bytes) -> pa.RecordBatch:
    """Return the record batch that `encode_chunk` stored as `value`.

    The columns point into `value`; nothing is copied.

    Raises:
        StoreFormatError: `value` is no chunk.
    """
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(value), LOG_SCHEMA)
    except (pa.ArrowInvalid, EOFError, OSError) as error:
        raise StoreFormatError(f"a chunk of the log cannot be read: {error}") from error


@final
class ChunkSummary:
    """The number of rows, the size and the newest time of a chunk, known without reading the parts
    of a large one.

    Attributes:
        rows: number of its rows.
        size_bytes: size of its stored form.
        batch: the chunk's rows; None where the chunk is large.
    """

    __slots__ = ("_newest_us", "batch", "rows", "size_bytes")

    def __init__(
        self, rows: int, size_bytes: int, newest_us: int, batch: pa.RecordBatch | None
    ) -> None:
        self.rows = rows
        self.size_bytes = size_bytes
        self.batch = batch
        self._newest_us = newest_us

    @property
    def newest_us(self) -> int:
        """The time of receipt of its last message, µs since the Unix epoch."""
        if self.batch is None:
            return self._newest_us
        return int(self.batch.column("received_at")[-1].as_py())


def chunk_note(rows: int, newest_us: int) -> bytes:
    """Return the note for the head of a large chunk (`store.parts`): the number of rows and the
    newest time of receipt, 8 bytes each."""
    return encode_key(rows) + encode_key(newest_us)


def summarize_chunk(value: bytes) -> ChunkSummary:
    """Return the summary of a chunk.

    Args:
        value: the value under the chunk's key: the chunk, or the head of a large one.

    Raises:
        StoreFormatError: `value` is neither a chunk nor a head.
    """
    head = read_head(value)
    if head is None:
        batch = decode_chunk(value)
        return ChunkSummary(int(batch.num_rows), len(value), 0, batch)
    rows = decode_key(head.note[:KEY_LENGTH_BYTES])
    return ChunkSummary(rows, head.size_bytes, decode_key(head.note[KEY_LENGTH_BYTES:]), None)
