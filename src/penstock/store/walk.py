"""Reads a column family past damaged blocks.

RocksDB stores a checksum with every block. An iterator stops at a block with a wrong checksum,
although keys behind it may be readable. `walk` finds the next readable key, and yields a gap
between the keys on both sides of the damage::

    a1 a2 a3   ▒▒▒▒▒▒▒▒▒▒   a9 b1 b2
             └ Gap(a3, a9): the keys between them are not known
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocksdict import Rdict

from penstock.errors import StoreUnavailable
from penstock.store.database import raise_if_unreadable

_FINER_BYTES: Final = 8  # the search distinguishes keys up to this much longer than the last key
_SHORTEST_BYTES: Final = 8
_GROWTH: Final = 20  # each step is 1/20 longer than the last: only small readable spans are missed


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of keys that cannot be read.

    Attributes:
        after: the last key before the gap; None if there is none.
        before: the next key that can be read; None if there is none.
        reason: the text of the read error.
    """

    after: bytes | None
    before: bytes | None
    reason: str


def walk(family: Rdict) -> Iterator[tuple[bytes, bytes] | Gap]:
    """Yield the readable keys of a column family in their order with their values, and the gaps."""
    entries = family.iter()
    entries.seek_to_first()
    last: bytes | None = None
    while True:
        if entries.valid():
            last = entries.key()
            yield last, entries.value()
            entries.next()
            continue
        try:
            raise_if_unreadable(entries)
        except StoreUnavailable as error:
            following = next_readable(family, last)
            yield Gap(last, following, str(error))
            if following is None:
                return
            entries = family.iter()
            entries.seek(following)
            if not entries.valid():  # unreadable now, though the search has just read it
                return
            continue
        return


def next_readable(family: Rdict, last: bytes | None) -> bytes | None:
    """Return the first readable key above ``last``, behind the damage if there is some directly
    above it; None if there is none."""
    width = max(len(last or b""), _SHORTEST_BYTES) + _FINER_BYTES
    begin = int.from_bytes((last or b"").ljust(width, b"\0"), "big")
    room = (1 << 8 * width) - 1 - begin
    unreadable, step = 0, 1
    while not _is_readable(family, begin + step, width):
        if step >= room:
            return None
        unreadable, step = step, min(room, step + max(1, step // _GROWTH))
    while step - unreadable > 1:
        middle = (unreadable + step) // 2
        if _is_readable(family, begin + middle, width):
            step = middle
        else:
            unreadable = middle
    entries = family.iter()
    entries.seek((begin + step).to_bytes(width, "big"))
    return entries.key() if entries.valid() else None


def _is_readable(family: Rdict, position: int, width: int) -> bool:
    entries = family.iter()
    entries.seek(position.to_bytes(width, "big"))
    if entries.valid():
        return True
    try:
        raise_if_unreadable(entries)
    except StoreUnavailable:
        return False
    return True
