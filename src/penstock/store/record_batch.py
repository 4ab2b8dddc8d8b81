"""Writes Arrow record batches from finished buffers: as IPC messages without their schema.

::

      FFFFFFFF  size  metadata ················  body
                      rows, nodes, buffers, …    buffer ▒ buffer ▒ …     ▒ up to 8 bytes

PyArrow needs 80 µs to wrap the buffers of a chunk into arrays, the arrays into a batch, and to
write the batch, however few rows it has; a commit of one message takes 450 µs, sync included. Two
batches of one schema differ only in numbers at fixed positions of the metadata, a FlatBuffer. So
PyArrow writes one batch as a template, and these numbers are replaced for every further batch. This
file can be removed when PyArrow writes a batch of finished buffers in about 10 µs. Until then
`tests/unit/store/test_log.py` compares chunks with those of PyArrow, byte by byte.

The format: https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format, and
Message.fbs beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, final

import pyarrow as pa

_NUMBER: Final = Struct("<q")
_PREFIX_BYTES: Final = 8
_PADDING: Final = tuple(bytes(n) for n in range(8))

# Numbers of fields in the tables of Message.fbs.
_MESSAGE_HEADER: Final = 2
_MESSAGE_BODY_LENGTH: Final = 3
_BATCH_LENGTH: Final = 0
_BATCH_NODES: Final = 1
_BATCH_BUFFERS: Final = 2


@final
class RecordBatchTemplate:
    """Writes record batches of one schema.

    Args:
        schema: a schema with columns of numbers, booleans, text or bytes.
    """

    def __init__(self, schema: pa.Schema) -> None:
        nulls = [pa.nulls(1, field.type) for field in schema]
        sample = pa.RecordBatch.from_arrays(nulls, schema=schema)
        data: bytes = sample.serialize().to_pybytes()
        table = _Table(data, _PREFIX_BYTES + _unsigned(data, _PREFIX_BYTES))
        batch = table.target_of(_MESSAGE_HEADER)
        self._body_length_at = table.position_of(_MESSAGE_BODY_LENGTH)
        self._length_at = _Table(data, batch).position_of(_BATCH_LENGTH)
        nodes = _Table(data, batch).target_of(_BATCH_NODES)
        buffers = _Table(data, batch).target_of(_BATCH_BUFFERS)
        self._nodes = Struct(f"<{2 * _unsigned(data, nodes)}q")  # rows and nulls of each column
        self._buffers = Struct(f"<{2 * _unsigned(data, buffers)}q")  # start and length of each
        self._nodes_at = nodes + 4
        self._buffers_at = buffers + 4
        self._head = data[: _PREFIX_BYTES + _unsigned(data, 4)]

    def encode(
        self, rows: int, null_counts: Sequence[int], buffers: Sequence[bytes | list[bytes]]
    ) -> list[bytes]:
        """Return one batch as byte strings to be joined; the given buffers are not copied.

        Args:
            rows: number of rows, 1 or more.
            null_counts: number of nulls in each column.
            buffers: the buffers of all columns in Arrow's order, each as one byte string or as
                several to be joined; an empty one for the validity of a column without nulls.
        """
        assert rows > 0, "a batch of no rows has other buffers"
        head = bytearray(self._head)
        fragments = [b""]
        positions: list[int] = []
        at = 0
        for buffer in buffers:
            if isinstance(buffer, bytes):
                size = len(buffer)
                fragments.append(buffer)
            else:
                size = sum(map(len, buffer))
                fragments += buffer
            positions.append(at)
            positions.append(size)
            padding = -size & 7
            if padding:
                fragments.append(_PADDING[padding])
            at += size + padding
        nodes: list[int] = []
        for null_count in null_counts:
            nodes.append(rows)
            nodes.append(null_count)
        _NUMBER.pack_into(head, self._length_at, rows)
        _NUMBER.pack_into(head, self._body_length_at, at)
        self._nodes.pack_into(head, self._nodes_at, *nodes)
        self._buffers.pack_into(head, self._buffers_at, *positions)
        fragments[0] = bytes(head)
        return fragments


@final
class _Table:
    """A table of a FlatBuffer: finds the positions of its fields in the encoded bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields_at = at - _signed(data, at) + 4

    def position_of(self, field: int) -> int:
        """Return the position of the value of field number ``field``."""
        at = self._fields_at + 2 * field
        return self._at + int.from_bytes(self._data[at : at + 2], "little")

    def target_of(self, field: int) -> int:
        """Return the position of the table or vector that field number ``field`` refers to."""
        position = self.position_of(field)
        return position + _unsigned(self._data, position)


def _unsigned(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _signed(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little", signed=True)
