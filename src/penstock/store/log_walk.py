"""Reads the whole log past damage (``store.walk``), and names the offsets that are damaged.

::

    chunk 0..4   chunk 5..9   ▒▒▒▒▒▒▒▒▒▒   chunk 17..20
                              └ damage 10..16, between the readable chunks on both sides
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import StoreFormatError, StoreUnavailable
from penstock.store.chunk import decode_chunk, decode_key
from penstock.store.salvage_reader import SalvageReader
from penstock.store.walk import Gap


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Consecutive offsets of the log: a chunk, or damage where there should be one.

    Attributes:
        begin: first offset.
        end: offset after the last; equal to `begin` for damage up to the unknown end of the log.
        chunk: the stored bytes; None for damage.
        damage: the damage in words; empty for a chunk.
    """

    begin: int
    end: int
    chunk: bytes | None
    damage: str = ""


def walk_log(reader: SalvageReader, begin: int) -> Iterator[LogPiece]:
    """Yield the pieces of the log in the order of their offsets.

    Args:
        reader: reads the store with the log.
        begin: the offset at which the log should begin, used only where the first chunk cannot be
            read; a first chunk that begins elsewhere is not reported as damage.
    """
    expected: int | None = None
    reason = ""
    for found in reader.walk("log"):
        if isinstance(found, Gap):
            reason = found.reason
            expected = begin if expected is None else expected
            continue
        base = decode_key(found[0])
        try:
            chunk = reader.full_value("log", *found)
            rows = int(decode_chunk(chunk).num_rows)
        except (StoreFormatError, StoreUnavailable) as error:
            expected, reason = (base if expected is None else expected), str(error)
            continue
        if expected is not None and base > expected:
            yield LogPiece(expected, base, None, reason or "there is no chunk with them")
        yield LogPiece(base, base + rows, chunk)
        expected, reason = base + rows, ""
    if reason and expected is not None:
        yield LogPiece(expected, expected, None, reason)
