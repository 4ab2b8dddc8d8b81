"""Finds the offsets of the log that a damaged block hides, and reads what is around it.

    chunk 0..9   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒   chunk 40..49
                 └ LogDamaged 10..39: no chunk that can be read has them

RocksDB stores a checksum with every block, and an iterator stops at a block with a wrong one. It
reads the last block of a table, too, to learn that an offset is above that table: so a search for
the chunk of an offset that fails goes on with searches that begin below the offset.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rocksdict import Rdict, RdictIter

from penstock.errors import StoreUnavailable
from penstock.store.chunk import decode_key, encode_key, summarize_chunk
from penstock.store.database import raise_if_unreadable
from penstock.store.faults import DISK_FIRST, is_disk_failure
from penstock.store.walk import next_readable

DAMAGED: Final = "damaged"
"""The first word of the line by which the stream service tells its broker of a damaged block; the
first offset, the offset after the last, and the sentence of `LogDamaged` follow."""

_GROWTH: Final = 4  # each search begins so many times as far below the offset as the one before


class LogDamaged(StoreUnavailable):
    """Some offsets of the log cannot be read: a block of the store is damaged, or the disk does not
    return it.

    Args:
        begin: the first of them.
        end: the offset after the last.
        data_dir: the broker's data directory.
        cause: the error of the read. On a disk that fails a repair would give up what a copy of
            the disk may still have.
    """

    def __init__(self, begin: int, end: int, data_dir: Path, cause: object) -> None:
        repair = (
            f"stop the broker and run 'penstock store repair --data-dir {data_dir}', which gives"
            " up what cannot be read and keeps all else, or restore a backup"
        )
        why = f"a block of the store in {data_dir} is damaged; {repair}"
        if is_disk_failure(cause):
            why = (
                f"the disk does not return a block of the store in {data_dir} (Input/output"
                f" error); {DISK_FIRST}; then {repair}"
            )
        super().__init__(f"the offsets {begin} to {end - 1} cannot be read: {why}")
        self.begin = begin
        self.end = end


def is_damage(error: object) -> bool:
    """Return whether a read failed because of the bytes on the disk, and not for want of files or
    memory."""
    return "Corruption" in str(error) or is_disk_failure(error)


def seek_chunk(log: Rdict, offset: int) -> RdictIter:
    """Return an iterator at the chunk with an offset; at the next chunk if there is none with it.

    Raises:
        StoreUnavailable: a block with that chunk, or beside it, cannot be read.
    """
    chunks = log.iter()
    chunks.seek_for_prev(encode_key(offset))
    if chunks.valid():
        return chunks
    try:
        raise_if_unreadable(chunks)
    except StoreUnavailable:
        found = _seek_from_below(log, offset)
        if found is None:
            raise
        return found
    chunks.seek(encode_key(offset))
    return chunks


def find_hidden(log: Rdict, offset: int, earliest: int, end: int) -> tuple[int, int]:
    """Return the range of offsets around `offset`, which cannot be read, that no chunk has which
    can be read.

    Args:
        log: the column family with the log.
        offset: an offset whose chunk cannot be read.
        earliest: the first offset of the log.
        end: the offset after the last.
    """
    following = next_readable(log, encode_key(offset))
    until = end if following is None else min(end, decode_key(following))
    return _end_below(log, offset, earliest), max(until, offset + 1)


def _seek_from_below(log: Rdict, offset: int) -> RdictIter | None:
    """Return an iterator at the chunk with an offset, found by reading upward; None if there is a
    block in between that cannot be read."""
    distance = 1
    while True:
        begin = max(0, offset - distance)
        chunks = log.iter()
        chunks.seek(encode_key(begin))
        if chunks.valid() and (decode_key(chunks.key()) <= offset or begin == 0):
            break
        if begin == 0:
            return None
        distance *= _GROWTH
    while chunks.valid():
        if decode_key(chunks.key()) + summarize_chunk(chunks.value()).rows > offset:
            return chunks
        chunks.next()
    return None


def _end_below(log: Rdict, offset: int, earliest: int) -> int:
    """Return the end of the last chunk below an offset that can be read; `earliest` without one."""
    distance = 1
    while True:
        begin = max(earliest, offset - distance)
        chunks = log.iter()
        chunks.seek(encode_key(begin))
        end = None
        while chunks.valid() and decode_key(chunks.key()) < offset:
            end = decode_key(chunks.key()) + summarize_chunk(chunks.value()).rows
            chunks.next()
        if end is not None:
            return min(end, offset)
        if begin == earliest:
            return earliest
        distance *= _GROWTH
