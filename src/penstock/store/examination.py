"""Examining a store: what it holds, and whether all of it can be read and fits together.

Every block is read, and so every checksum compared. Nothing is changed. What is good can be copied
on the way: that is what a repair does (``store.repair``), so both say the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import msgspec

from penstock.errors import StoreError, StoreFormatError
from penstock.store import identity, records
from penstock.store.archive import ARCHIVE, ARCHIVES_MADE, Archive, decode_archive
from penstock.store.archive_examination import ArchiveExaminer
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
from penstock.store.identity import Loss
from penstock.store.log_walk import walk_log
from penstock.store.manifest import read_manifest
from penstock.store.paths import no_store
from penstock.store.queue_examination import QueueExaminer
from penstock.store.ranges import without
from penstock.store.salvage_reader import SalvageReader, open_salvage_reader
from penstock.store.walk import Gap
from penstock.store.watermark import WATERMARK_FILE, Committed, read_watermark


def examine(data_dir: Path) -> Examination:
    """Read all of the store, or of the backup, in ``data_dir``.

    Raises:
        StoreLocked: a broker has it open.
        StoreFormatError: it is of another format.
        StoreError: there is no store, or nothing of it can be read.
    """
    if not has_files(data_dir):
        raise no_store(data_dir)
    manifest = read_manifest(data_dir)
    claimed = read_watermark(data_dir) if manifest is None else manifest.committed
    with (
        lock_out_brokers(data_dir),
        tempfile.TemporaryDirectory(prefix="penstock-") as scratch,
        open_salvage_reader(data_dir, Path(scratch), claimed) as reader,
    ):
        return examine_readable(reader, claimed)


def has_files(data_dir: Path) -> bool:
    """Return whether there is a database below ``data_dir``, whole or not."""
    return has_database(data_dir) or lacks_current(data_dir / STORE_DIRECTORY)


def examine_readable(
    reader: SalvageReader, claimed: Committed | None, copy: Copy | None = None
) -> Examination:
    """Read all that ``reader`` finds.

    Args:
        reader: reads the readable part of a store.
        claimed: the watermark, if there is one.
        copy: takes all values that are good and fit together; None for none.

    Raises:
        StoreFormatError: it is of another format.
    """
    return _Examiner(reader, claimed, copy).examine()


@final
class _Examiner:
    """One examination."""

    def __init__(self, reader: SalvageReader, claimed: Committed | None, copy: Copy | None) -> None:
        self._reader = reader
        self._copy = copy
        self._claimed = claimed
        self._found = Examination()
        self._log_bytes: int | None = None  # what the log should hold
        self._clients: dict[int, str] = {}  # by session number
        self._archives: list[Archive] = []

    def examine(self) -> Examination:
        """Read one column family after the other."""
        found = self._found
        for problem in self._reader.problems:
            found.add_problem(problem)
        found.notes += self._reader.notes
        if self._reader.removed_may_be_back:
            found.add_problem("records removed shortly before the damage may be there again")
        self._examine_meta()
        archives = ArchiveExaminer(self._reader, found, self._archives, self._copy)
        archives.read()
        self._examine_log(archives)
        archives.conclude()
        self._examine_sessions()
        self._examine_subscriptions()
        QueueExaminer(found, self._clients, self._copy, self._values).examine()
        self._report_lost_sessions()
        found.retained = self._values(
            "retained",
            lambda key, value: self._check_and_copy(
                "retained",
                key,
                self._reader.full_value("retained", key, value),
                records.decode_message,
            ),
        )
        found.wills = self._values(
            "wills",
            lambda key, value: self._check_and_copy("wills", key, value, records.decode_will),
        )
        return found

    def _check_and_copy(
        self, family: str, key: bytes, value: bytes, decode: Callable[[bytes], Any]
    ) -> None:
        decode(value)
        key.decode()
        if self._copy is not None:
            self._copy.put(family, key, value)

    def _examine_meta(self) -> None:
        kept: dict[bytes, bytes] = {}

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
                kept[key] = value

        found, claimed = self._found, self._claimed
        before = len(found.problems)
        self._values("meta", take)
        is_whole = len(found.problems) == before
        if FORMAT_KEY in kept:
            identity.refuse_format(kept[FORMAT_KEY])
            found.format = kept[FORMAT_KEY].decode()
        found.epoch = kept.get(identity.EPOCH, b"").decode()
        found.created_at_us = int(kept.get(identity.CREATED_AT, b"0"))
        found.commits = _number(kept, identity.COMMITS)
        if identity.LINEAGE in kept:
            found.lineage = identity.decode_lineage(kept[identity.LINEAGE])
        if identity.GIVEN_UP in kept:
            found.given_up = identity.decode_given_up(kept[identity.GIVEN_UP])
        numbers = [archive.number for archive in self._archives]
        found.archives_made = max([_number(kept, ARCHIVES_MADE), *numbers])
        if is_whole and identity.LOG_BYTES_APPENDED in kept:
            removed = _number(kept, identity.LOG_BYTES_REMOVED)
            self._log_bytes = _number(kept, identity.LOG_BYTES_APPENDED) - removed
        if claimed is not None and not identity.is_comparable(claimed, found.epoch):
            self._claimed = None
        if not found.epoch and claimed is not None:
            found.epoch = claimed.epoch
        if not is_whole and self._claimed is not None:
            found.commits = max(found.commits, self._claimed.commits)
        if self._claimed is None and found.commits:
            found.notes.append(
                f"the watermark ({WATERMARK_FILE}) is missing or of another log: it is not known"
                " whether the newest messages are still there"
            )

    # -- the log -----------------------------------------------------------------------

    def _examine_log(self, archives: ArchiveExaminer) -> None:
        found, claimed, copy = self._found, self._claimed, self._copy
        # What an archive has got has left the log; the watermark may not know it yet.
        left = max((archive.end for archive in self._archives if archive.is_open), default=0)
        begin = max(left, 0 if claimed is None else claimed.begin)
        torn_at: int | None = None
        for piece in walk_log(self._reader, begin):
            if piece.end <= left and piece.begin < left:
                archives.take_from_log(piece)
                continue
            if piece.chunk is not None:
                found.add_chunk(piece.begin, piece.end, len(piece.chunk))
                if copy is not None:
                    copy.put_chunk(piece.begin, piece.chunk)
            elif piece.end > piece.begin:
                for first, end in without(piece.begin, piece.end, found.given_up):
                    self._report_lost(first, end, piece.damage)
            else:
                torn_at = piece.begin
                found.add_problem(
                    f"the messages with the offsets {torn_at} and above: {piece.damage}"
                )
        self._check_begin_of_log(begin)
        found.log_is_whole = bool(claimed and found.epoch) and torn_at is None and not found.lost
        if claimed is None:
            return
        loss = Loss(found.end, claimed.end, max(0, claimed.commits - found.commits))
        if loss.messages:
            begins = max(found.end, claimed.begin) if not found.spans else found.end
            found.lost.append((begins, claimed.end))
        if loss.messages or loss.commits:
            found.log_is_whole = False
            found.loss = loss
            found.add_problem(f"it has lost {loss}")

    def _report_lost(self, begin: int, end: int, reason: str) -> None:
        self._found.lost.append((begin, end))
        if end == begin + 1:
            self._found.add_problem(f"the message with the offset {begin}: {reason}")
        else:
            self._found.add_problem(f"the messages with the offsets {begin} to {end - 1}: {reason}")

    def _check_begin_of_log(self, begin: int) -> None:
        """Report chunks that are missing at the begin of the log.

        After a power cut the watermark may not know yet what retention has removed; the bytes in
        the log do.
        """
        found = self._found
        missing = None if self._log_bytes is None else self._log_bytes - found.log_size_bytes
        if not found.spans or (found.lost and found.lost[0][0] <= begin):
            return
        if self._claimed is None:
            if missing is not None and missing > 0 and not found.lost:
                found.add_problem(
                    f"{missing:,} bytes of messages are missing, before offset {found.begin} or"
                    f" after offset {found.end - 1}"
                )
            return
        if found.begin > begin and (missing is None or missing > 0):
            ranges = without(begin, found.begin, found.given_up)
            for first, end in ranges:
                self._report_lost(first, end, "there is no chunk with them")
            found.lost.sort()

    # -- sessions ----------------------------------------------------------------------

    def _examine_sessions(self) -> None:
        def take(key: bytes, value: bytes) -> None:
            session = records.decode_session(key.decode(), value)
            self._clients[session.number] = session.client_id
            if session.is_of_group:
                self._clients[session.number] = "group " + session.client_id[1:]
                groups.append(session.number)
            if self._copy is not None:
                self._copy.put("sessions", key, value)

        groups: list[int] = []
        self._found.sessions = self._values("sessions", take) - len(groups)

    def _examine_subscriptions(self) -> None:
        found = self._found

        def take(key: bytes, value: bytes) -> None:
            number = decode_key(key[:8])
            topic_filter = key[8:].decode()
            records.decode_subscription(number, topic_filter, value)
            if number not in self._clients:
                found.sessions_lost.add(number)
                found.add_problem(
                    f"a subscription to {topic_filter} belongs to no session ({number})"
                )
            elif self._copy is not None:
                self._copy.put("subscriptions", key, value)

        found.subscriptions = self._values("subscriptions", take)

    def _report_lost_sessions(self) -> None:
        lost = len(self._found.sessions_lost)
        if lost:
            self._found.add_problem(
                f"{lost:,} session{'s are' if lost > 1 else ' is'} lost: parts are left, without"
                " a client identifier"
            )

    # -- any family --------------------------------------------------------------------

    def _values(self, family: str, take: Callable[[bytes, bytes], None]) -> int:
        """Read all of a column family; return how many values it has."""
        count = 0
        found = self._found
        for item in self._reader.walk(family):
            if isinstance(item, Gap):
                found.incomplete.add(family)
                found.add_problem(f"{family}: {self._whereabouts(family, item)} {item.reason}")
                continue
            key, value = item
            count += 1
            try:
                take(key, value)
            except (StoreError, msgspec.MsgspecError, ValueError, IndexError) as error:
                if isinstance(error, StoreFormatError) and family == "meta":
                    raise
                found.incomplete.add(family)
                found.add_problem(f"{family}: the value of {key!r} cannot be understood: {error}")
        older = self._reader.older.get(family, 0)
        if older:
            found.incomplete.add(family)
            found.add_problem(
                f"{family}: {older:,} of the values left may be older than the last ones written"
            )
        return count

    def _whereabouts(self, family: str, gap: Gap) -> str:
        """Return in words between which two keys something cannot be read."""
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


def _number(kept: dict[bytes, bytes], key: bytes) -> int:
    return decode_key(kept[key]) if key in kept else 0
