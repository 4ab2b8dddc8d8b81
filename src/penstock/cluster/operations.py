"""The operations of a batch: recorded while the store fills it, and encoded as a commit's body.

An operation is ``(kind, family, key, value)``: put, delete, or delete the keys from ``key`` up to
``value``. The store's batches have no other operations, so carrying out the same operations in the
same order makes an equal view.

::

      the body of a commit     MessagePack: [(kind, family, key, value), …]
      or, if that is smaller   C1 01 │ its length, 8 bytes │ the same, compressed (an LZ4 block)

No MessagePack begins with C1. Each byte that compression saves is saved six times: a record is sent
to three servers, and each of them writes it to its Raft log and to the stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias, final

import msgspec
import pyarrow as pa
from rocksdict import ColumnFamily, WriteBatch

from penstock.cluster.record import RecordDamaged
from penstock.store.database import COLUMN_FAMILIES
from penstock.store.parts import PARTS_FAMILY

PUT: Final = 0
DELETE: Final = 1
DELETE_RANGE: Final = 2

FAMILIES: Final = (*COLUMN_FAMILIES, PARTS_FAMILY)
"""The column families; a record has their index in this tuple. The order is part of the format."""

Operation: TypeAlias = tuple[int, int, bytes, bytes]
"""Kind, number of the column family, key, and value or end of the range."""

COMPRESSED_BYTES_MIN: Final = 4096
"""Smaller bodies are not compressed: an append costs the servers hardly less then."""

_LZ4: Final = pa.Codec("lz4_raw")
_LZ4_MARK: Final = b"\xc1\x01"
_LZ4_HEAD: Final = Struct("<2sQ")
_LZ4_RATIO_MAX: Final = 256  # an LZ4 block never compresses better

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Operation]).decode


def encode_operations(operations: Sequence[Operation]) -> bytes:
    """Return operations as the body of a record, compressed where that makes it smaller."""
    plain = _encode(operations)
    if len(plain) < COMPRESSED_BYTES_MIN:
        return plain
    compressed = _LZ4.compress(plain, asbytes=True)  # else it is a buffer, which costs 8 µs more
    if _LZ4_HEAD.size + len(compressed) >= len(plain):
        return plain
    return b"".join((_LZ4_HEAD.pack(_LZ4_MARK, len(plain)), compressed))


def decode_operations(body: bytes) -> list[Operation]:
    """Return the operations in the body of a record.

    Raises:
        RecordDamaged: the body cannot be decoded, or has an unknown kind or column family.
    """
    try:
        operations = _decode(_decompressed(body) if body[:2] == _LZ4_MARK else body)
    except msgspec.MsgspecError as error:
        raise RecordDamaged(f"a commit cannot be decoded: {error}") from error
    for kind, family, _, _ in operations:
        if not (PUT <= kind <= DELETE_RANGE and 0 <= family < len(FAMILIES)):
            raise RecordDamaged(f"a commit has an operation {kind} on column family {family}")
    return operations


def _decompressed(body: bytes) -> memoryview:
    try:
        _, size = _LZ4_HEAD.unpack_from(body)
        if size > len(body) * _LZ4_RATIO_MAX:
            raise RecordDamaged(f"a commit of {len(body)} bytes cannot have {size}")
        return memoryview(_LZ4.decompress(memoryview(body)[_LZ4_HEAD.size :], size))
    except (StructError, OSError) as error:  # Arrow's own is of this kind
        raise RecordDamaged(f"a commit cannot be decompressed: {error}") from error


def numbers_of(handles: Mapping[str, ColumnFamily]) -> dict[int, int]:
    """Return the index of each column family in ``FAMILIES``, by the ``id`` of its handle."""
    return {id(handles[name]): number for number, name in enumerate(FAMILIES) if name in handles}


@final
class NotedBatch:
    """A batch of RocksDB that also records its operations for the replicated log.

    Args:
        rocks: an empty batch of RocksDB.
        handles: the column families' handles, by name; they must outlive the batch.

    Attributes:
        rocks: the batch of RocksDB.
        operations: the recorded operations, in order.
    """

    def __init__(self, rocks: WriteBatch, handles: Mapping[str, ColumnFamily]) -> None:
        self.rocks = rocks
        self.operations: list[Operation] = []
        self._handles = handles
        self._numbers = numbers_of(handles)

    def put(self, key: bytes, value: bytes, column_family: ColumnFamily) -> None:
        """Add a write of ``value`` under ``key``."""
        self.rocks.put(key, value, column_family)
        self.operations.append((PUT, self._number(column_family), key, value))

    def delete(self, key: bytes, column_family: ColumnFamily) -> None:
        """Add the deletion of ``key``."""
        self.rocks.delete(key, column_family)
        self.operations.append((DELETE, self._number(column_family), key, b""))

    def delete_range(self, begin: bytes, end: bytes, column_family: ColumnFamily) -> None:
        """Add the deletion of the keys from ``begin`` up to, not including, ``end``.

        Raises:
            ValueError: ``end`` is before ``begin``. RocksDB would refuse the batch only when it is
                written, after the record is in the log, and then no view could apply the record.
        """
        if begin > end:
            raise ValueError(f"a range of keys ends at {end!r}, before it begins at {begin!r}")
        self.rocks.delete_range(begin, end, column_family)
        self.operations.append((DELETE_RANGE, self._number(column_family), begin, end))

    def is_empty(self) -> bool:
        """Return whether the batch has no operations."""
        return not self.operations

    def size_in_bytes(self) -> int:
        """Return the size of the batch in bytes, as RocksDB counts it."""
        return self.rocks.size_in_bytes()

    def _number(self, family: ColumnFamily) -> int:
        number = self._numbers.get(id(family))
        if number is None:  # the column family of parts is created with the first large value
            self._numbers = numbers_of(self._handles)
            number = self._numbers[id(family)]
        return number
