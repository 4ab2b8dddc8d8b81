"""Large values, kept in parts, so that other threads run while one is written or read.

::

      log      17 ─▶ head: run, number of parts, length, note
      parts    "l" 17 run 0 ─▶ ▒▒▒▒▒▒▒▒  1 MiB
               "l" 17 run 1 ─▶ ▒▒▒▒▒▒▒▒
               "l" 17 run 2 ─▶ ▒▒▒

rocksdict holds the interpreter's lock while RocksDB takes a batch, and while that waits for room in
memory: for a value of 100 MB all threads waited 0.4 s and more. Therefore the parts are written one
by one, and others run in between (``Database.write_parts``).

A value is in the store as a whole or not at all. Parts are written before the batch with their
head, and RocksDB's write-ahead log is read in order after a crash: when the head is there, so are
its parts. Parts without a head are left by a crash or a failed write; they are never read, and are
removed at the next start (``Database.remove_parts``, ``store.large_retained``). A *run* tells them
from those of the next attempt to write under the same key: no part is ever written anew with other
bytes, which a reader beside the broker (``store.secondary``) might mix up.

A head begins with a byte with which no other value begins that may be large (a chunk begins with
FF, a record with a MessagePack array, a piece of an archive with the highest byte of an offset).
The column family of parts is made for a store's first large value, which is noted in
``meta`` (``PARTS_KEY``). Before format 3 that made it a store of format 2, for the first versions
of Penstock knew no parts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

from rocksdict import Rdict

from penstock.errors import StoreFailed, StoreFormatError

PARTS_FAMILY: Final = "parts"
"""The column family of parts; a store has it once it had a large value."""

LARGE_BYTES: Final = 4 * 1_048_576
"""A value of as many bytes is kept in parts."""

PART_BYTES: Final = 1_048_576

Pieces: TypeAlias = Sequence[bytes | memoryview]
"""The bytes of a value, which are to be joined."""

_TAGS: Final = {"log": b"l", "archive": b"a", "retained": b"r"}
FAMILIES: Final = frozenset(_TAGS)
"""Column families whose large values are kept in parts; a large will, for instance, is kept
whole."""

_MARK: Final = b"\xc1\x01"  # no MessagePack begins so; the layout of what follows
_HEAD: Final = Struct(">2s8sIQ")
_RUN_BYTES: Final = 8
_NUMBER_BYTES: Final = 4
_BEHIND: Final = b"\xff" * (_NUMBER_BYTES + 1)


class Head(NamedTuple):
    """The record under the key of a large value.

    Attributes:
        run: tells the value's parts from others written for the same key.
        parts: number of its parts.
        size_bytes: size of the value.
        note: a few bytes about it, for a reader that needs no more than these.
    """

    run: bytes
    parts: int
    size_bytes: int
    note: bytes


@final
class LargeValue:
    """A value that is to be written in parts.

    Args:
        family: column family of its key.
        key: its key.
        pieces: its bytes, one piece after the other.
        run: ``new_run()``; the same only for the same bytes.
        note: see ``Head``.
    """

    def __init__(
        self, family: str, key: bytes, pieces: Pieces, run: bytes, note: bytes = b""
    ) -> None:
        assert len(run) == _RUN_BYTES, "a run of another length would be padded or cut"
        self.size_bytes = size_of(pieces)
        count = -(-self.size_bytes // PART_BYTES)
        self._count = count
        self.head = _HEAD.pack(_MARK, run, count, self.size_bytes) + note
        self._prefix = owner_key(family, key) + run
        self._pieces = pieces

    def parts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of each part, in the order in which they are written."""
        number = 0
        for part in _cut(self._pieces):
            yield self._prefix + number.to_bytes(_NUMBER_BYTES, "big"), part
            number += 1
        assert number == self._count, "a large value has the parts that its head counts"


def new_run() -> bytes:
    """Return a run that no other value has."""
    return secrets.token_bytes(_RUN_BYTES)


def size_of(pieces: Pieces) -> int:
    """Return the number of bytes of all pieces together."""
    return sum(map(len, pieces))


def owner_key(family: str, key: bytes) -> bytes:
    """Return the prefix of the keys of a value's parts; prefixes sort as the values' keys do."""
    return _TAGS[family] + key


def part_range(family: str, key: bytes, run: bytes) -> tuple[bytes, bytes]:
    """Return the key range of one value's parts: an inclusive begin and an exclusive end."""
    prefix = owner_key(family, key) + run
    return prefix, prefix + _BEHIND


def part_range_of(part_key: bytes) -> tuple[bytes, bytes]:
    """Return the range of all parts of the value that has the part under ``part_key``."""
    prefix = part_key[:-_NUMBER_BYTES]
    return prefix, prefix + _BEHIND


def read_head(value: bytes) -> Head | None:
    """Return the head that ``value`` is; None for a value that is not in parts.

    Raises:
        StoreFormatError: it begins as a head does, and is none.
    """
    if value[:1] != _MARK[:1]:
        return None
    if value[:2] != _MARK or len(value) < _HEAD.size:
        raise StoreFormatError("the head of a large value cannot be understood")
    _, run, count, size_bytes = _HEAD.unpack_from(value)
    return Head(run, count, size_bytes, value[_HEAD.size :])


def full_value(family: str, key: bytes, value: bytes, parts: Rdict | None) -> bytes:
    """Return the whole value under ``key``: ``value`` itself, or its parts joined if it is a head.

    Args:
        family: column family of the key.
        key: the key under which ``value`` was found.
        value: the bytes that were found there.
        parts: column family of parts, where there is one.

    Raises:
        StoreFormatError: parts of it are missing.
        StoreFailed: they cannot be read.
    """
    head = read_head(value)
    if head is None:
        return value
    prefix = owner_key(family, key) + head.run
    found: list[bytes] = []
    for number in range(head.parts if parts is not None else 0):
        assert parts is not None
        try:  # a list, because rocksdict lets go of the interpreter's lock for that only
            keys: list[Any] = [prefix + number.to_bytes(_NUMBER_BYTES, "big")]
            part: bytes | None = cast("list[bytes | None]", parts.get(keys))[0]
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise StoreFailed(f"a part of a large value could not be read: {error}") from error
        if part is None:
            break
        found.append(part)
    if len(found) != head.parts or size_of(found) != head.size_bytes:
        raise StoreFormatError(
            f"a large value of {head.size_bytes} bytes has {len(found)} of its {head.parts} parts"
        )
    return b"".join(found)


def _cut(pieces: Pieces) -> Iterator[bytes]:
    gathered: list[memoryview] = []
    room = PART_BYTES
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            gathered.append(rest[:room])
            room -= len(gathered[-1])
            rest = rest[len(gathered[-1]) :]
            if room == 0:
                yield b"".join(gathered)
                gathered, room = [], PART_BYTES
    if gathered:
        yield b"".join(gathered)
