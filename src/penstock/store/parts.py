"""Stores large values in parts, so that other threads run while one is written or read.

::

      log      17 ─▶ head: write id, number of parts, length, note
      parts    "l" 17 write id 0 ─▶ ▒▒▒▒▒▒▒▒  1 MiB
               "l" 17 write id 1 ─▶ ▒▒▒▒▒▒▒▒
               "l" 17 write id 2 ─▶ ▒▒▒

rocksdict holds the interpreter's lock while RocksDB copies a batch, and while RocksDB waits for
room in memory: for a value of 100 MB all threads waited 0.4 s and more. Therefore the parts are
written one by one, and other threads run in between (``Database.write_parts``).

A value is in the store as a whole or not at all. Parts are written before the batch with their
head, and RocksDB's write-ahead log is read in order after a crash: when the head is there, so are
its parts. Parts without a head are left by a crash or a failed write; they are never read, and are
removed at the next start (``Database.remove_parts``, ``store.large_retained``). Each write has an
id of its own in the keys of its parts, so that no part is overwritten by another attempt to write
under the same key: a reader in another process (``store.secondary``) could mix up their bytes.

A head begins with a byte with which no other large value begins (a chunk begins with FF, a record
with a MessagePack array, a piece of an archive with the highest byte of an offset). The column
family of parts is created for a store's first large value; ``meta`` records that (``PARTS_KEY``).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

from rocksdict import Rdict

from penstock.errors import StoreFormatError, StoreUnavailable

PARTS_FAMILY: Final = "parts"
"""The column family of parts; a store has it from its first large value on."""

LARGE_BYTES: Final = 4 * 1_048_576
"""Values of this size or more are stored in parts."""

PART_BYTES: Final = 1_048_576
"""Size of each part but the last, which may be smaller."""

Fragments: TypeAlias = Sequence[bytes | memoryview]
"""The bytes of a value as byte strings to be joined."""

_TAGS: Final = {"log": b"l", "archive": b"a", "retained": b"r"}
FAMILIES: Final = frozenset(_TAGS)
"""Column families whose large values are stored in parts; a large will, for instance, is stored
whole."""

_MARK: Final = b"\xc1\x01"  # a byte that MessagePack never uses, and the version of the layout
_HEAD: Final = Struct(">2s8sIQ")
_WRITE_ID_BYTES: Final = 8
_NUMBER_BYTES: Final = 4
_BEHIND: Final = b"\xff" * (_NUMBER_BYTES + 1)


class Head(NamedTuple):
    """The record under the key of a large value.

    Attributes:
        write_id: distinguishes the value's parts from parts of other writes under the same key.
        parts: number of its parts.
        size_bytes: size of the value.
        note: a summary of the value, for a reader that does not need the value itself.
    """

    write_id: bytes
    parts: int
    size_bytes: int
    note: bytes


@final
class LargeValue:
    """A value that is to be written in parts.

    Args:
        family: column family of its key.
        key: its key.
        fragments: its bytes.
        write_id: from ``new_write_id``; may be reused only to write the same bytes again.
        note: see ``Head``.
    """

    def __init__(
        self, family: str, key: bytes, fragments: Fragments, write_id: bytes, note: bytes = b""
    ) -> None:
        assert len(write_id) == _WRITE_ID_BYTES, "a write id of another length is padded or cut"
        self.size_bytes = total_size_bytes(fragments)
        count = -(-self.size_bytes // PART_BYTES)
        self._count = count
        self.head = _HEAD.pack(_MARK, write_id, count, self.size_bytes) + note
        self._prefix = part_key_prefix(family, key) + write_id
        self._fragments = fragments

    def parts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of each part, in the order in which they are written."""
        number = 0
        for part in cut(self._fragments):
            yield self._prefix + number.to_bytes(_NUMBER_BYTES, "big"), part
            number += 1
        assert number == self._count, "a large value has the parts that its head counts"


def new_write_id() -> bytes:
    """Return a random write id."""
    return secrets.token_bytes(_WRITE_ID_BYTES)


def total_size_bytes(fragments: Fragments) -> int:
    """Return the number of bytes of all fragments together."""
    return sum(map(len, fragments))


def part_key_prefix(family: str, key: bytes) -> bytes:
    """Return the prefix of the keys of the parts of the value under ``key`` in ``family``.

    Prefixes sort as the values' keys do.
    """
    return _TAGS[family] + key


def part_range(family: str, key: bytes, write_id: bytes) -> tuple[bytes, bytes]:
    """Return the key range of the parts of one write: an inclusive start and an exclusive end."""
    prefix = part_key_prefix(family, key) + write_id
    return prefix, prefix + _BEHIND


def part_range_of(part_key: bytes) -> tuple[bytes, bytes]:
    """Return the key range of all parts written together with the part under ``part_key``."""
    prefix = part_key[:-_NUMBER_BYTES]
    return prefix, prefix + _BEHIND


def read_head(value: bytes) -> Head | None:
    """Decode ``value`` as the head of a large value; return None if it is a whole value.

    Raises:
        StoreFormatError: ``value`` begins like a head and cannot be decoded.
    """
    if value[:1] != _MARK[:1]:
        return None
    if value[:2] != _MARK or len(value) < _HEAD.size:
        raise StoreFormatError("the head of a large value cannot be understood")
    _, write_id, count, size_bytes = _HEAD.unpack_from(value)
    return Head(write_id, count, size_bytes, value[_HEAD.size :])


def full_value(family: str, key: bytes, value: bytes, parts: Rdict | None) -> bytes:
    """Return the whole value under ``key``: ``value`` itself, or its parts joined if it is a head.

    Args:
        family: column family of the key.
        key: the key under which ``value`` is stored.
        value: the stored bytes, a whole value or a head.
        parts: column family of parts; None where the store has none.

    Raises:
        StoreFormatError: parts of the value are missing.
        StoreUnavailable: parts cannot be read.
    """
    head = read_head(value)
    if head is None:
        return value
    prefix = part_key_prefix(family, key) + head.write_id
    found: list[bytes] = []
    for number in range(head.parts if parts is not None else 0):
        assert parts is not None
        try:  # a list, because rocksdict releases the interpreter's lock for a list only
            keys: list[Any] = [prefix + number.to_bytes(_NUMBER_BYTES, "big")]
            part: bytes | None = cast("list[bytes | None]", parts.get(keys))[0]
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise StoreUnavailable(f"a part of a large value could not be read: {error}") from error
        if part is None:
            break
        found.append(part)
    if len(found) != head.parts or total_size_bytes(found) != head.size_bytes:
        raise StoreFormatError(
            f"a large value of {head.size_bytes} bytes has {len(found)} of its {head.parts} parts"
        )
    return b"".join(found)


def cut(fragments: Fragments) -> Iterator[bytes]:
    """Yield the bytes of ``fragments``, joined, in parts of ``PART_BYTES``; the last may be
    smaller."""
    gathered: list[memoryview] = []
    room = PART_BYTES
    for fragment in fragments:
        rest = memoryview(fragment)
        while rest:
            gathered.append(rest[:room])
            room -= len(gathered[-1])
            rest = rest[len(gathered[-1]) :]
            if room == 0:
                yield b"".join(gathered)
                gathered, room = [], PART_BYTES
    if gathered:
        yield b"".join(gathered)
