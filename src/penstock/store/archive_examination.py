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
from penstock.store.ranges import in_words, join_ranges, without
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
                for number in self._archives:
                    self._reasons.setdefault(number, item.reason)
                continue
            self._take(*item)
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
        held = join_ranges(self._spans[archive.number])
        missing = without(archive.begin, archive.covered, held)
        for hole in missing:
            for begin, end in without(*hole, archive.given_up):
                why = self._reasons.get(archive.number, "there is no piece with them")
                found.tell(
                    f"what the stream {archive.stream} keeps of the {in_words(begin, end)}: {why}"
                )
                found.archives_lost.append((begin, end))
        messages, size_bytes = self._counts[archive.number]
        kept = msgspec.structs.replace(
            archive,
            messages=messages,
            size_bytes=size_bytes,
            given_up=join_ranges([*archive.given_up, *missing]),
        )
        if not missing and kept != archive:
            found.tell(
                f"the archive of the stream {archive.stream} says {archive.messages:,} messages in"
                f" {archive.size_bytes:,} bytes, and has {messages:,} in {size_bytes:,}"
            )
        found.archives.append(kept)
        if self._copy is not None:
            self._copy.put("meta", kept.key, encode_archive(kept))
