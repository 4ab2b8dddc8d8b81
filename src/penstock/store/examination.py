"""Examines a store: counts its content, and verifies that all of it can be read and is consistent.

Every block is read, so RocksDB compares every checksum. Nothing is changed. A repair
(``store.repair``) is an examination that copies the good values, so both report the same problems.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import msgspec

from penstock.errors import StoreError, StoreFormatError
from penstock.store import identity, records
from penstock.store.archive import ARCHIVE, LAST_ARCHIVE_NUMBER, Archive, decode_archive
from penstock.store.archive_examination import ArchiveExaminer
from penstock.store.chain import NO_DIGEST, digest_of, read_link
from penstock.store.chunk import decode_key
from penstock.store.copying import Copy
from penstock.store.database import (
    FORMAT_KEY,
    PRODUCERS,
    STORE_DIRECTORY,
    has_database,
    lock_out_brokers,
)
from penstock.store.diagnosis import lacks_current
from penstock.store.findings import Examination
from penstock.store.history import RUNS, decode_runs
from penstock.store.identity import Loss
from penstock.store.log_walk import walk_log
from penstock.store.manifest import read_manifest
from penstock.store.paths import no_store
from penstock.store.queue_examination import QueueExaminer
from penstock.store.ranges import subtract_ranges
from penstock.store.salvage_reader import SalvageReader, open_salvage_reader
from penstock.store.walk import Gap
from penstock.store.watermark import WATERMARK_FILE, Watermark, read_watermark


def examine(data_dir: Path) -> Examination:
    """Examine the store, or the backup, in ``data_dir``; return the findings.

    Raises:
        StoreLocked: a broker has the store open.
        StoreFormatError: the store is of another format.
        StoreError: there is no store, or nothing of it can be read.
    """
    if not has_files(data_dir):
        raise no_store(data_dir)
    manifest = read_manifest(data_dir)
    watermark = read_watermark(data_dir) if manifest is None else manifest.watermark
    with (
        lock_out_brokers(data_dir),
        tempfile.TemporaryDirectory(prefix="penstock-") as scratch,
        open_salvage_reader(data_dir, Path(scratch), watermark) as reader,
    ):
        return examine_readable(reader, watermark)


def has_files(data_dir: Path) -> bool:
    """Return whether there is a database below ``data_dir``, damaged or not."""
    return has_database(data_dir) or lacks_current(data_dir / STORE_DIRECTORY)


def examine_readable(
    reader: SalvageReader, watermark: Watermark | None, copy: Copy | None = None
) -> Examination:
    """Examine all values that ``reader`` can read; return the findings.

    Args:
        reader: reads the readable part of a store.
        watermark: the watermark of the store; None if it has none.
        copy: receives all good, consistent values; None to copy nothing.

    Raises:
        StoreFormatError: the store is of another format.
    """
    return _Examiner(reader, watermark, copy).examine()


@final
class _Examiner:
    """One examination."""

    def __init__(
        self, reader: SalvageReader, watermark: Watermark | None, copy: Copy | None
    ) -> None:
        self._reader = reader
        self._copy = copy
        self._watermark = watermark
        self._findings = Examination()
        self._log_bytes: int | None = None  # size of the log by the counters in ``meta``
        self._clients: dict[int, str] = {}  # by session number
        self._archives: list[Archive] = []

    def examine(self) -> Examination:
        """Read one column family after the other; return the findings."""
        findings = self._findings
        for problem in self._reader.problems:
            findings.add_problem(problem)
        findings.notes += self._reader.notes
        if self._reader.may_restore_removed:
            findings.add_problem("records removed shortly before the damage may be there again")
        self._examine_meta()
        archives = ArchiveExaminer(self._reader, findings, self._archives, self._copy)
        archives.read_pieces()
        self._examine_log(archives)
        archives.report()
        self._examine_sessions()
        self._examine_subscriptions()
        QueueExaminer(findings, self._clients, self._copy, self._values).examine()
        self._report_lost_sessions()
        findings.retained = self._values(
            "retained",
            lambda key, value: self._check_and_copy(
                "retained",
                key,
                self._reader.full_value("retained", key, value),
                records.decode_message,
            ),
        )
        findings.wills = self._values(
            "wills",
            lambda key, value: self._check_and_copy("wills", key, value, records.decode_will),
        )
        return findings

    def _check_and_copy(
        self, family: str, key: bytes, value: bytes, decode: Callable[[bytes], Any]
    ) -> None:
        decode(value)
        key.decode()
        if self._copy is not None:
            self._copy.put(family, key, value)

    def _examine_meta(self) -> None:
        values: dict[bytes, bytes] = {}

        def take(key: bytes, value: bytes) -> None:
            if key.startswith(ARCHIVE):
                self._archives.append(decode_archive(value))
            elif key.startswith(PRODUCERS):
                records.decode_producer(key[len(PRODUCERS) :].decode(), value)
                if self._copy is not None:
                    self._copy.put("meta", key, value)
            elif key == identity.CLOCK:
                records.decode_clock(value)
                if self._copy is not None:
                    self._copy.put("meta", key, value)
            else:
                values[key] = value

        findings, watermark = self._findings, self._watermark
        before = len(findings.problems)
        self._values("meta", take)
        is_whole = len(findings.problems) == before
        if FORMAT_KEY in values:
            identity.refuse_format(values[FORMAT_KEY])
            findings.format = values[FORMAT_KEY].decode()
        findings.epoch = values.get(identity.EPOCH, b"").decode()
        findings.created_at_us = int(values.get(identity.CREATED_AT, b"0"))
        findings.commits = _read_number(values, identity.COMMITS)
        if identity.LINEAGE in values:
            findings.lineage = identity.decode_lineage(values[identity.LINEAGE])
        findings.runs = decode_runs(values.get(RUNS))
        if identity.SEAMS in values:
            findings.seams = identity.decode_seams(values[identity.SEAMS])
        if identity.GIVEN_UP in values:
            findings.given_up = identity.decode_given_up(values[identity.GIVEN_UP])
        numbers = [archive.number for archive in self._archives]
        findings.last_archive_number = max([_read_number(values, LAST_ARCHIVE_NUMBER), *numbers])
        if is_whole and identity.LOG_BYTES_APPENDED in values:
            removed = _read_number(values, identity.LOG_BYTES_REMOVED)
            self._log_bytes = _read_number(values, identity.LOG_BYTES_APPENDED) - removed
        if watermark is not None and not identity.is_same_log(watermark, findings.epoch):
            self._watermark = None
        if not findings.epoch and watermark is not None:
            findings.epoch = watermark.epoch
        if not is_whole and self._watermark is not None:
            findings.commits = max(findings.commits, self._watermark.commits)
        if self._watermark is None and findings.commits:
            findings.notes.append(
                f"the watermark ({WATERMARK_FILE}) is missing or of another log: it is not known"
                " whether the newest messages are still there"
            )

    # -- the log -----------------------------------------------------------------------

    def _examine_log(self, archives: ArchiveExaminer) -> None:
        findings, watermark, copy = self._findings, self._watermark, self._copy
        # Archived messages have left the log, though an old watermark may say otherwise.
        archived_end = max((one.end for one in self._archives if one.is_open), default=0)
        begin = max(archived_end, 0 if watermark is None else watermark.begin)
        torn_at: int | None = None
        chained = (0, NO_DIGEST)  # the end of the chunk before, and its digest
        for piece in walk_log(self._reader, begin):
            if piece.end <= archived_end and piece.begin < archived_end:
                archives.restore_returned(piece)
                continue
            if piece.chunk is not None:
                findings.add_chunk(piece.begin, piece.end, len(piece.chunk))
                self._check_link(piece.begin, piece.chunk, chained)
                chained = piece.end, digest_of(piece.begin, piece.chunk)
                if copy is not None:
                    copy.put_chunk(piece.begin, piece.chunk)
            elif piece.end > piece.begin:
                for first, end in subtract_ranges(piece.begin, piece.end, findings.given_up):
                    self._report_lost(first, end, piece.damage)
            else:
                torn_at = piece.begin
                findings.add_problem(
                    f"the messages with the offsets {torn_at} and above: {piece.damage}"
                )
        self._check_begin_of_log(begin)
        findings.log_is_whole = (
            bool(watermark and findings.epoch)
            and torn_at is None
            and not findings.lost_ranges
            and not findings.broken_links
        )
        if watermark is None:
            return
        loss = Loss(findings.end, watermark.end, max(0, watermark.commits - findings.commits))
        if loss.messages:
            begins = max(findings.end, watermark.begin) if not findings.spans else findings.end
            findings.lost_ranges.append((begins, watermark.end))
        if loss.messages or loss.commits:
            findings.log_is_whole = False
            findings.loss = loss
            findings.add_problem(f"it has lost {loss}")

    def _check_link(self, begin: int, chunk: bytes, chained: tuple[int, bytes]) -> None:
        """Report a chunk that does not continue the chain (``store.chain``).

        Args:
            begin: first offset of the chunk.
            chunk: the chunk.
            chained: end and digest of the chunk before it.
        """
        end, digest = chained
        link = read_link(chunk)
        if begin != end or link in (None, digest) or begin in self._findings.seams:
            return
        self._findings.broken_links.append(begin)
        self._findings.add_problem(
            f"the messages from offset {begin} on do not continue those before it: files of two"
            " copies of the store were mixed, or the log was changed"
        )

    def _report_lost(self, begin: int, end: int, reason: str) -> None:
        self._findings.lost_ranges.append((begin, end))
        if end == begin + 1:
            self._findings.add_problem(f"the message with the offset {begin}: {reason}")
        else:
            self._findings.add_problem(
                f"the messages with the offsets {begin} to {end - 1}: {reason}"
            )

    def _check_begin_of_log(self, begin: int) -> None:
        """Report chunks that are missing at the beginning of the log.

        After a power cut the watermark may be older than the last removal by retention; the
        counters of bytes in ``meta`` tell removed chunks from lost ones.
        """
        findings = self._findings
        missing = None if self._log_bytes is None else self._log_bytes - findings.log_size_bytes
        if not findings.spans or (findings.lost_ranges and findings.lost_ranges[0][0] <= begin):
            return
        if self._watermark is None:
            if missing is not None and missing > 0 and not findings.lost_ranges:
                findings.add_problem(
                    f"{missing:,} bytes of messages are missing, before offset {findings.begin} or"
                    f" after offset {findings.end - 1}"
                )
            return
        if findings.begin > begin and (missing is None or missing > 0):
            ranges = subtract_ranges(begin, findings.begin, findings.given_up)
            for first, end in ranges:
                self._report_lost(first, end, "there is no chunk with them")
            findings.lost_ranges.sort()

    # -- sessions ----------------------------------------------------------------------

    def _examine_sessions(self) -> None:
        def take(key: bytes, value: bytes) -> None:
            session = records.decode_session(key.decode(), value)
            self._clients[session.number] = session.client_id
            if session.is_group_queue:
                self._clients[session.number] = "group " + session.client_id[1:]
                groups.append(session.number)
            if self._copy is not None:
                self._copy.put("sessions", key, value)

        groups: list[int] = []
        self._findings.sessions = self._values("sessions", take) - len(groups)

    def _examine_subscriptions(self) -> None:
        findings = self._findings

        def take(key: bytes, value: bytes) -> None:
            number = decode_key(key[:8])
            topic_filter = key[8:].decode()
            records.decode_subscription(number, topic_filter, value)
            if number not in self._clients:
                findings.lost_session_numbers.add(number)
                findings.add_problem(
                    f"a subscription to {topic_filter} belongs to no session ({number})"
                )
            elif self._copy is not None:
                self._copy.put("subscriptions", key, value)

        findings.subscriptions = self._values("subscriptions", take)

    def _report_lost_sessions(self) -> None:
        lost = len(self._findings.lost_session_numbers)
        if lost:
            self._findings.add_problem(
                f"{lost:,} session{'s are' if lost > 1 else ' is'} lost: parts are left, without"
                " a client identifier"
            )

    # -- any family --------------------------------------------------------------------

    def _values(self, family: str, take: Callable[[bytes, bytes], None]) -> int:
        """Pass each key and value of a column family to ``take``, and report values that it refuses
        and gaps; return the number of values."""
        count = 0
        findings = self._findings
        for item in self._reader.walk(family):
            if isinstance(item, Gap):
                findings.incomplete_families.add(family)
                findings.add_problem(f"{family}: {self._whereabouts(family, item)} {item.reason}")
                continue
            key, value = item
            count += 1
            try:
                take(key, value)
            except (StoreError, msgspec.MsgspecError, ValueError, IndexError) as error:
                if isinstance(error, StoreFormatError) and family == "meta":
                    raise
                findings.incomplete_families.add(family)
                findings.add_problem(
                    f"{family}: the value of {key!r} cannot be understood: {error}"
                )
        older = self._reader.stale_counts.get(family, 0)
        if older:
            findings.incomplete_families.add(family)
            findings.add_problem(
                f"{family}: {older:,} of the values left may be older than the last ones written"
            )
        return count

    def _whereabouts(self, family: str, gap: Gap) -> str:
        """Return the start of a sentence: between which two keys a ``gap`` lies."""
        by_number = family in ("subscriptions", "progress", "queue")
        ends = []
        for key in (gap.after, gap.before):
            if key is None:
                ends.append("")
            elif by_number:
                number = decode_key(key[:8])
                ends.append(f"session {self._clients.get(number, number)!r}")
            else:
                ends.append(repr(key.decode(errors="replace")))
        after, before = ends
        if after and before:
            return f"what lies between {after} and {before} cannot be read:"
        if after or before:
            where = f"after {after}" if after else f"before {before}"
            return f"what lies {where} cannot be read:"
        return "nothing can be read:"


def _read_number(values: dict[bytes, bytes], key: bytes) -> int:
    return decode_key(values[key]) if key in values else 0
