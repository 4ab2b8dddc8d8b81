"""Arrow record batches from finished buffers, as bytes: an IPC message without its schema.

::

      FFFFFFFF  size  metadata ················  body
                      rows, nodes, buffers, …    buffer ▒ buffer ▒ …     ▒ up to 8 bytes

PyArrow needs 80 µs to wrap the buffers of a chunk into arrays, those into a batch, and to
write that, however few rows it has; a commit of one message takes 450 µs, sync included. All that
differs between two batches of one schema are numbers at fixed places of the metadata, a FlatBuffer:
here PyArrow writes one batch, and in every other those numbers are replaced. This file goes when
PyArrow writes a batch of finished buffers in about 10 µs. Until then
`tests/unit/store/test_log.py` compares chunks of any messages with PyArrow's, byte by byte.

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

# Places in the tables of Message.fbs.
_MESSAGE_HEADER: Final = 2
_MESSAGE_BODY_LENGTH: Final = 3
_BATCH_LENGTH: Final = 0
_BATCH_NODES: Final = 1
_BATCH_BUFFERS: Final = 2


@final
class RecordBatchForm:
    """Writes record batches of one schema.

    Args:
        schema: a schema with columns of numbers, truth values, text or bytes.
    """

    def __init__(self, schema: pa.Schema) -> None:
        nulls = [pa.nulls(1, field.type) for field in schema]
        sample = pa.RecordBatch.from_arrays(nulls, schema=schema)
        data: bytes = sample.serialize().to_pybytes()
        table = _Table(data, _PREFIX_BYTES + _unsigned(data, _PREFIX_BYTES))
        batch = table.points_to(_MESSAGE_HEADER)
        self._body_length_at = table.place(_MESSAGE_BODY_LENGTH)
        self._length_at = _Table(data, batch).place(_BATCH_LENGTH)
        nodes = _Table(data, batch).points_to(_BATCH_NODES)
        buffers = _Table(data, batch).points_to(_BATCH_BUFFERS)
        self._nodes = Struct(f"<{2 * _unsigned(data, nodes)}q")  # rows and nulls of each column
        self._buffers = Struct(f"<{2 * _unsigned(data, buffers)}q")  # begin and length of each
        self._nodes_at = nodes + 4
        self._buffers_at = buffers + 4
        self._head = data[: _PREFIX_BYTES + _unsigned(data, 4)]

    def encode(
        self, rows: int, null_counts: Sequence[int], buffers: Sequence[bytes | list[bytes]]
    ) -> list[bytes]:
        """Return one batch, in pieces that are to be joined: a large buffer is not copied here.

        Args: rows: number of its rows, 1 or more. null_counts: number of nulls in each column.
        buffers: the buffers of all columns, as Arrow orders them, each whole or in pieces; an empty
        one where there is no validity.
        """
        assert rows > 0, "a batch of no rows has other buffers"
        head = bytearray(self._head)
        pieces = [b""]
        places: list[int] = []
        at = 0
        for buffer in buffers:
            if isinstance(buffer, bytes):
                size = len(buffer)
                pieces.append(buffer)
            else:
                size = sum(map(len, buffer))
                pieces += buffer
            places.append(at)
            places.append(size)
            padding = -size & 7
            if padding:
                pieces.append(_PADDING[padding])
            at += size + padding
        nodes: list[int] = []
        for null_count in null_counts:
            nodes.append(rows)
            nodes.append(null_count)
        _NUMBER.pack_into(head, self._length_at, rows)
        _NUMBER.pack_into(head, self._body_length_at, at)
        self._nodes.pack_into(head, self._nodes_at, *nodes)
        self._buffers.pack_into(head, self._buffers_at, *places)
        pieces[0] = bytes(head)
        return pieces


@final
class _Table:
    """A table of a FlatBuffer, and the places of its fields."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields_at = at - _signed(data, at) + 4

    def place(self, field: int) -> int:
        """Return the place of a number that lies in the table."""
        at = self._fields_at + 2 * field
        return self._at + int.from_bytes(self._data[at : at + 2], "little")

    def points_to(self, field: int) -> int:
        """Return the place of a table or vector that the table points to."""
        place = self.place(field)
        return place + _unsigned(self._data, place)


def _unsigned(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _signed(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little", signed=True)
