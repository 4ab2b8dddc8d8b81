"""Examining archives: whether each has all of its pieces, and whether they can be read.

::

    piece 0..99   piece 100..249   ▒▒▒▒▒▒▒▒   piece 310..399┄┄┄┄┄┤ end
                                   └ damage 250..309: its messages are lost, if it had any
"""

from __future__ import annotations

from typing import final

import msgspec

from penstock.errors import StoreFormatError
from penstock.store.archive import Archive, decode_piece, encode_archive
from penstock.store.chunk import decode_key
from penstock.store.copying import Copy
from penstock.store.findings import Examination
from penstock.store.ranges import Ranges, in_words, join_ranges, without
from penstock.store.view import View
from penstock.store.walk import Gap


@final
class ArchiveExaminer:
    """Reads all archives of a store, and copies what is good.

    Args:
        view: what can be read.
        found: gets what is found.
        archives: as they describe themselves.
        copy: gets what is good; None for none.
    """

    def __init__(
        self, view: View, found: Examination, archives: list[Archive], copy: Copy | None
    ) -> None:
        self._view = view
        self._found = found
        self._copy = copy
        self._archives = {archive.number: archive for archive in archives}
        self._spans: dict[int, list[tuple[int, int]]] = {number: [] for number in self._archives}
        self._counts = dict.fromkeys(self._archives, (0, 0))  # messages, bytes
        self._reasons: dict[int, str] = {}
        self._strangers: set[int] = set()

    def examine(self) -> None:
        """Read all pieces, then see what is missing."""
        found = self._found
        for item in self._view.walk("archive"):
            if isinstance(item, Gap):
                found.incomplete.add("archive")
                found.tell(f"a part of what streams keep longer cannot be read: {item.reason}")
                for number in self._archives:
                    self._reasons.setdefault(number, item.reason)
                continue
            self._take(*item)
        if self._view.older.get("archive", 0):
            found.incomplete.add("archive")
        for number in self._strangers:
            found.incomplete.add("archive")
            found.tell(f"messages in an archive ({number}) that belongs to no stream")
        for archive in self._archives.values():
            self._conclude(archive)

    def _take(self, key: bytes, value: bytes) -> None:
        number = decode_key(key[:8])
        archive = self._archives.get(number)
        if archive is None:
            self._strangers.add(number)
            return
        try:
            piece = decode_piece(key, value)
        except StoreFormatError as error:
            self._reasons.setdefault(number, str(error))
            return
        if piece.base < archive.begin:
            return  # removed by retention, and back by damage
        self._spans[number].append((piece.base, piece.end))
        messages, size_bytes = self._counts[number]
        self._counts[number] = (messages + piece.batch.num_rows, size_bytes + len(value))
        if self._copy is not None:
            self._copy.put("archive", key, value)

    def _conclude(self, archive: Archive) -> None:
        found = self._found
        told = len(found.problems)
        held = join_ranges(self._spans[archive.number])
        kept = msgspec.structs.replace(archive)
        for begin, end in held:  # written after what is known of the archive now
            if begin <= kept.covered < end:
                kept.covered = end
                kept.end = max(kept.end, end)
        why = self._reasons.get(archive.number, "there is no piece with them")
        missing = self._lose(kept, without(kept.begin, kept.covered, held), why)
        if kept.is_open and kept.end > found.end:
            kept.is_open, kept.is_retired = False, True
            found.tell(
                f"the stream {kept.stream} has kept messages up to offset {kept.end - 1}, and the"
                " log ends before: they are not read any more"
            )
        elif kept.is_open and kept.end < found.begin:
            hole = (kept.end, found.begin)
            missing += self._lose(kept, [hole], "they are neither in the log nor in its archive")
            kept.end = found.begin
        kept.messages, kept.size_bytes = self._counts[archive.number]
        kept.given_up = join_ranges([*archive.given_up, *missing])
        if len(found.problems) == told and kept != archive:
            found.tell(
                f"the archive of the stream {archive.stream} says {archive.messages:,} messages in"
                f" {archive.size_bytes:,} bytes, and has {kept.messages:,} in {kept.size_bytes:,}"
            )
        found.archives.append(kept)
        if self._copy is not None:
            self._copy.put("meta", kept.key, encode_archive(kept))

    def _lose(self, archive: Archive, missing: Ranges, why: str) -> Ranges:
        """Tell what of `missing` nobody has given up yet; all of it."""
        for hole in missing:
            for begin, end in without(*hole, archive.given_up):
                self._found.tell(
                    f"what the stream {archive.stream} keeps of the {in_words(begin, end)}: {why}"
                )
                self._found.archives_lost.append((begin, end))
        return missing
