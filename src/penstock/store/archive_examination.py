"""Examines archives: verifies that each has all of its pieces, and that they can be read.

::

    piece 0..99   piece 100..249   ▒▒▒▒▒▒▒▒   piece 310..399┄┄┄┄┄┤ end
                                   └ damage 250..309: the stream's messages there are lost
"""

from __future__ import annotations

from typing import final

import msgspec
import pyarrow as pa

from penstock.errors import StoreFormatError, StoreUnavailable
from penstock.store import log_walk
from penstock.store.archive import (
    Archive,
    ArchivePiece,
    decode_piece,
    encode_archive,
    encode_piece,
    make_pieces,
    new_archive,
    select_rows,
)
from penstock.store.chunk import decode_chunk, decode_key, encode_key
from penstock.store.copying import Copy
from penstock.store.database import ARCHIVE_FAMILY
from penstock.store.findings import Examination
from penstock.store.ranges import Ranges, join_ranges, range_in_words, subtract_ranges
from penstock.store.salvage_reader import SalvageReader
from penstock.store.selection import TopicSelector
from penstock.store.walk import Gap


@final
class ArchiveExaminer:
    """Examines all archives of a store, and copies the pieces that can be read.

    Call `read_pieces` first, then `restore_returned` for chunks that are in the log again, then
    `report`.

    Args:
        reader: reads the readable part of the store.
        findings: the findings are added to it.
        archives: the records of the archives, as the store has them.
        copy: receives the pieces that can be read; None to copy nothing.
    """

    def __init__(
        self,
        reader: SalvageReader,
        findings: Examination,
        archives: list[Archive],
        copy: Copy | None,
    ) -> None:
        self._reader = reader
        self._findings = findings
        self._copy = copy
        self._archives = {archive.number: archive for archive in archives}
        self._spans: dict[int, list[tuple[int, int]]] = {number: [] for number in self._archives}
        self._counts = dict.fromkeys(self._archives, (0, 0))  # messages, bytes
        self._reasons: dict[int, str] = {}
        self._unknown_numbers: set[int] = set()

    def read_pieces(self) -> None:
        """Read all pieces of all archives, and copy the good ones."""
        findings = self._findings
        for item in self._reader.walk("archive"):
            if isinstance(item, Gap):
                findings.incomplete_families.add("archive")
                findings.add_problem(f"a part of the archives cannot be read: {item.reason}")
                for number in self._archives:
                    self._reasons.setdefault(number, item.reason)
                continue
            self._examine_piece(*item)
        if self._reader.stale_counts.get("archive", 0):
            findings.incomplete_families.add("archive")

    def restore_returned(self, returned: log_walk.LogPiece) -> None:
        """Report a chunk that had moved to the archives and is in the log again.

        Damage has undone its removal from the log. Its messages are added to each open archive
        that lacks them.
        """
        if returned.chunk is None:
            return
        self._findings.add_problem(
            "messages that had moved from the log to archives are in the log again:"
            f" {range_in_words(returned.begin, returned.end)}"
        )
        chunk = pa.Table.from_batches([decode_chunk(returned.chunk)])
        offsets = pa.array(range(returned.begin, returned.end), pa.int64())
        for archive in self._archives.values():
            present = join_ranges(self._spans[archive.number])
            missing = subtract_ranges(returned.begin, returned.end, present)
            lacks = missing == [(returned.begin, returned.end)] and returned.begin >= archive.begin
            if archive.is_open and lacks:
                rows = select_rows(chunk, offsets, TopicSelector([archive.topic_filters]))
                for piece in make_pieces(returned.begin, returned.end, rows):
                    self._count_and_copy(archive.number, piece, b"".join(encode_piece(piece)))

    def report(self) -> None:
        """Report the missing parts of each archive; call this after the log was examined."""
        findings = self._findings
        for number in sorted(self._unknown_numbers):
            findings.incomplete_families.add("archive")
            findings.add_problem(f"messages in an archive ({number}) that belongs to no stream")
            spans = join_ranges(self._spans[number])
            findings.lost_archive_ranges += spans
            archive = new_archive(number, f"archive-{number}", (), spans[0][0])
            archive.covered = archive.end = spans[-1][1]
            archive.is_open, archive.is_retired = False, True
            archive.given_up = subtract_ranges(archive.begin, archive.end, spans)
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
        except (StoreFormatError, StoreUnavailable) as error:
            self._reasons.setdefault(number, str(error))
            return
        if archive is None:
            self._unknown_numbers.add(number)
            self._spans.setdefault(number, [])
            self._counts.setdefault(number, (0, 0))
        elif piece.base < archive.begin:
            return  # retention had removed it, and damage has brought it back
        self._count_and_copy(number, piece, value)

    def _count_and_copy(self, number: int, piece: ArchivePiece, value: bytes) -> None:
        self._spans[number].append((piece.base, piece.end))
        messages, size_bytes = self._counts[number]
        self._counts[number] = (messages + piece.batch.num_rows, size_bytes + len(value))
        if self._copy is not None:
            self._copy.put("archive", encode_key(number) + encode_key(piece.base), value)

    def _examine_end(self, archive: Archive) -> None:
        findings = self._findings
        problems_before = len(findings.problems)
        present = join_ranges(self._spans[archive.number])
        record = msgspec.structs.replace(archive)
        if (
            present and present[-1][1] > record.covered
        ):  # the piece is newer than the archive's record
            record.covered = present[-1][1]
            record.end = max(record.end, record.covered)
        why = self._reasons.get(archive.number, "there is no piece with them")
        missing = self._report_lost(
            record, subtract_ranges(record.begin, record.covered, present), why
        )
        if not record.is_retired and record.end > findings.end:
            record.is_open, record.is_retired = False, True
            findings.add_problem(
                f"the stream {record.stream} has kept messages up to offset {record.end - 1}, and"
                " the log ends before: they are not read any more"
            )
        elif record.is_open and record.end < findings.begin:
            hole = (record.end, findings.begin)
            missing += self._report_lost(
                record, [hole], "they are neither in the log nor in its archive"
            )
            record.end = findings.begin
        record.messages, record.size_bytes = self._counts[archive.number]
        record.given_up = join_ranges([*archive.given_up, *missing])
        if len(findings.problems) == problems_before and record != archive:
            findings.add_problem(
                f"the archive of the stream {archive.stream} says {archive.messages:,} messages in"
                f" {archive.size_bytes:,} bytes, and has {record.messages:,} in"
                f" {record.size_bytes:,}"
            )
        findings.archives.append(record)
        if self._copy is not None:
            self._copy.put("meta", record.key, encode_archive(record))

    def _report_lost(self, archive: Archive, missing: Ranges, why: str) -> Ranges:
        """Report the ranges of `missing` that no repair has given up yet; return `missing`."""
        for hole in missing:
            for begin, end in subtract_ranges(*hole, archive.given_up):
                self._findings.add_problem(
                    f"what the stream {archive.stream} keeps of the"
                    f" {range_in_words(begin, end)}: {why}"
                )
                self._findings.lost_archive_ranges.append((begin, end))
        return missing
