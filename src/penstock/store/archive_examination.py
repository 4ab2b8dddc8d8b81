"""Examining archives: whether each has all of its pieces, and whether they can be read.

::

    piece 0..99   piece 100..249   ▒▒▒▒▒▒▒▒   piece 310..399┄┄┄┄┄┤ end
                                   └ damage 250..309: its messages are lost, if it had any
"""

from __future__ import annotations

from typing import final

import msgspec
import pyarrow as pa

from penstock.errors import StoreFailed, StoreFormatError
from penstock.store import log_walk
from penstock.store.archive import (
    Archive,
    ArchivePiece,
    choose_rows,
    decode_piece,
    encode_archive,
    encode_piece,
    make_pieces,
    new_archive,
)
from penstock.store.chunk import decode_chunk, decode_key, encode_key
from penstock.store.copying import Copy
from penstock.store.database import ARCHIVE_FAMILY
from penstock.store.findings import Examination
from penstock.store.ranges import Ranges, in_words, join_ranges, without
from penstock.store.salvage_reader import SalvageReader
from penstock.store.selection import TopicSelector
from penstock.store.walk import Gap


@final
class ArchiveExaminer:
    """Reads all archives of a store, and copies the good rows.

    Args:
        reader: reads the readable part of the store.
        found: takes the findings.
        archives: the records of the archives, as the store has them.
        copy: takes the pieces that can be read; None to copy nothing.
    """

    def __init__(
        self, reader: SalvageReader, found: Examination, archives: list[Archive], copy: Copy | None
    ) -> None:
        self._reader = reader
        self._found = found
        self._copy = copy
        self._archives = {archive.number: archive for archive in archives}
        self._spans: dict[int, list[tuple[int, int]]] = {number: [] for number in self._archives}
        self._counts = dict.fromkeys(self._archives, (0, 0))  # messages, bytes
        self._reasons: dict[int, str] = {}
        self._unknown_numbers: set[int] = set()

    def read(self) -> None:
        """Read all pieces."""
        found = self._found
        for item in self._reader.walk("archive"):
            if isinstance(item, Gap):
                found.incomplete.add("archive")
                found.add_problem(f"a part of the archives cannot be read: {item.reason}")
                for number in self._archives:
                    self._reasons.setdefault(number, item.reason)
                continue
            self._examine_piece(*item)
        if self._reader.older.get("archive", 0):
            found.incomplete.add("archive")

    def take_from_log(self, returned: log_walk.LogPiece) -> None:
        """Report a piece of the log that had moved to the archives, and is in the log again.

        Damage has undone its removal. An open archive that lacks these messages gets them.
        """
        if returned.chunk is None:
            return
        self._found.add_problem(
            "messages that had moved from the log to archives are in the log again:"
            f" {in_words(returned.begin, returned.end)}"
        )
        chunk = pa.Table.from_batches([decode_chunk(returned.chunk)])
        offsets = pa.array(range(returned.begin, returned.end), pa.int64())
        for archive in self._archives.values():
            present = join_ranges(self._spans[archive.number])
            missing = without(returned.begin, returned.end, present)
            lacks = missing == [(returned.begin, returned.end)] and returned.begin >= archive.begin
            if archive.is_open and lacks:
                rows = choose_rows(chunk, offsets, TopicSelector([archive.topic_filters]))
                for piece in make_pieces(returned.begin, returned.end, rows):
                    self._count_and_copy(archive.number, piece, b"".join(encode_piece(piece)))

    def conclude(self) -> None:
        """Report the missing parts of each archive; to be called once the log was examined."""
        found = self._found
        for number in sorted(self._unknown_numbers):
            found.incomplete.add("archive")
            found.add_problem(f"messages in an archive ({number}) that belongs to no stream")
            spans = join_ranges(self._spans[number])
            found.archives_lost += spans
            archive = new_archive(number, f"archive-{number}", (), spans[0][0])
            archive.covered = archive.end = spans[-1][1]
            archive.is_open, archive.is_retired = False, True
            archive.given_up = without(archive.begin, archive.end, spans)
            archive.messages, archive.size_bytes = self._counts[number]
            self._archives[number] = archive
        for archive in self._archives.values():
            self._examine_end(archive)

    def _examine_piece(self, key: bytes, value: bytes) -> None:
        number = decode_key(key[:8])
        archive = self._archives.get(number)
        try:
            value = self._reader.full_value(ARCHIVE_FAMILY, key, value)
            piece = decode_piece(key, value)
        except (StoreFormatError, StoreFailed) as error:
            self._reasons.setdefault(number, str(error))
            return
        if archive is None:
            self._unknown_numbers.add(number)
            self._spans.setdefault(number, [])
            self._counts.setdefault(number, (0, 0))
        elif piece.base < archive.begin:
            return  # removed by retention, and back by damage
        self._count_and_copy(number, piece, value)

    def _count_and_copy(self, number: int, piece: ArchivePiece, value: bytes) -> None:
        self._spans[number].append((piece.base, piece.end))
        messages, size_bytes = self._counts[number]
        self._counts[number] = (messages + piece.batch.num_rows, size_bytes + len(value))
        if self._copy is not None:
            self._copy.put("archive", encode_key(number) + encode_key(piece.base), value)

    def _examine_end(self, archive: Archive) -> None:
        found = self._found
        problems_before = len(found.problems)
        present = join_ranges(self._spans[archive.number])
        kept = msgspec.structs.replace(archive)
        if (
            present and present[-1][1] > kept.covered
        ):  # written after what is known of the archive now
            kept.covered = present[-1][1]
            kept.end = max(kept.end, kept.covered)
        why = self._reasons.get(archive.number, "there is no piece with them")
        missing = self._report_lost(kept, without(kept.begin, kept.covered, present), why)
        if not kept.is_retired and kept.end > found.end:
            kept.is_open, kept.is_retired = False, True
            found.add_problem(
                f"the stream {kept.stream} has kept messages up to offset {kept.end - 1}, and the"
                " log ends before: they are not read any more"
            )
        elif kept.is_open and kept.end < found.begin:
            hole = (kept.end, found.begin)
            missing += self._report_lost(
                kept, [hole], "they are neither in the log nor in its archive"
            )
            kept.end = found.begin
        kept.messages, kept.size_bytes = self._counts[archive.number]
        kept.given_up = join_ranges([*archive.given_up, *missing])
        if len(found.problems) == problems_before and kept != archive:
            found.add_problem(
                f"the archive of the stream {archive.stream} says {archive.messages:,} messages in"
                f" {archive.size_bytes:,} bytes, and has {kept.messages:,} in {kept.size_bytes:,}"
            )
        found.archives.append(kept)
        if self._copy is not None:
            self._copy.put("meta", kept.key, encode_archive(kept))

    def _report_lost(self, archive: Archive, missing: Ranges, why: str) -> Ranges:
        """Report the part of `missing` that no repair has given up yet; return `missing`."""
        for hole in missing:
            for begin, end in without(*hole, archive.given_up):
                self._found.add_problem(
                    f"what the stream {archive.stream} keeps of the {in_words(begin, end)}: {why}"
                )
                self._found.archives_lost.append((begin, end))
        return missing
