"""Walking the whole log, past what cannot be read.

RocksDB keeps a checksum with every block. An iterator that meets a wrong one stops; behind it the
log goes on. The walk finds the next chunk that can be read and names the offsets in between::

    chunk 0..4   chunk 5..9   ▒▒▒▒▒▒▒▒▒▒   chunk 17..20
                              └ damage 10..16, between the last that is good and the next
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocksdict import Rdict

from penstock.errors import StoreFailed, StoreFormatError
from penstock.store.chunk import decode_chunk, decode_key, encode_key
from penstock.store.database import Database, check

_STEPS_MAX: Final = 48  # a search in steps that double: farther than any log reaches


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive offsets of the log: a chunk, or what should be one and is not.

    Attributes:
        begin: first offset.
        end: offset after the last; where damage reaches to the end of the log, `begin`.
        chunk: the stored bytes; None for damage.
        damage: what is wrong, in words; empty for a chunk.
    """

    begin: int
    end: int
    chunk: bytes | None
    damage: str = ""


def walk_log(database: Database, begin: int) -> Iterator[Piece]:
    """The pieces of the log in the order of their offsets.

    Args:
        database: whose log is walked.
        begin: where the log should begin, as far as anybody knows; what is good may begin earlier
            or later, and a later begin alone is no damage.
    """
    log = database.families["log"]
    chunks = log.iter()
    chunks.seek_to_first()
    expected: int | None = None
    reason = ""
    while True:
        if not chunks.valid():
            try:
                check(chunks)
            except StoreFailed as error:
                start = begin if expected is None else expected
                expected, reason = start, str(error)
                following = _next_readable(log, start)
                if following is None:
                    yield Piece(start, start, None, reason)
                    return
                chunks = log.iter()
                chunks.seek(encode_key(following))
                continue
            if reason and expected is not None:
                yield Piece(expected, expected, None, reason)
            return
        base, chunk = decode_key(chunks.key()), chunks.value()
        try:
            rows = int(decode_chunk(chunk).num_rows)
        except StoreFormatError as error:
            expected, reason = (base if expected is None else expected), str(error)
            chunks.next()
            continue
        if expected is not None and base != expected:
            yield Piece(expected, base, None, reason or "there is no chunk with them")
        yield Piece(base, base + rows, chunk)
        expected, reason = base + rows, ""
        chunks.next()


def _next_readable(log: Rdict, position: int) -> int | None:
    """The smallest offset above ``position`` from which on the log can be read; None: none is."""
    unreadable, step = 0, 1
    for _ in range(_STEPS_MAX):
        if _is_readable(log, position + step):
            break
        unreadable, step = step, step * 2
    else:
        return None
    while step - unreadable > 1:
        middle = (unreadable + step) // 2
        if _is_readable(log, position + middle):
            step = middle
        else:
            unreadable = middle
    chunks = log.iter()
    chunks.seek(encode_key(position + step))
    return decode_key(chunks.key()) if chunks.valid() else None


def _is_readable(log: Rdict, offset: int) -> bool:
    chunks = log.iter()
    chunks.seek(encode_key(offset))
    if chunks.valid():
        return True
    try:
        check(chunks)
    except StoreFailed:
        return False
    return True
