"""Moves rows that leave the log into the archives of streams (`store.archive`), and trims archives.

A removal is one atomic, synced write: it removes chunks from the log and adds the messages that
streams keep longer to their archives, because these messages were acknowledged::

    chunk ─╮
    chunk ─┼▶ rows of "alarms", selected from many chunks at once ─▶ one write per 1 MiB of rows,
    chunk ─╯                                                          and one after the last chunk

A small last piece is rewritten together with later messages of the same hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec
import pyarrow as pa

from penstock.config.stream import StreamDefinition
from penstock.engine.values.steady_clock import Leads
from penstock.errors import StoreError, StoreFormatError
from penstock.store.archive import (
    ARCHIVE,
    LAST_ARCHIVE_NUMBER,
    Archive,
    ArchivePiece,
    decode_archive,
    decode_piece,
    decode_span,
    encode_archive,
    encode_piece,
    make_pieces,
    new_archive,
    select_rows,
    unix_hour,
)
from penstock.store.batch import StoreBatch
from penstock.store.chunk import decode_key, encode_key
from penstock.store.database import ARCHIVE_FAMILY, Database, raise_if_unreadable
from penstock.store.diagnosis import corrupt_store, damage_as_corruption
from penstock.store.parts import read_head, total_size_bytes
from penstock.store.ranges import join_ranges, range_in_words
from penstock.store.selection import TopicSelector
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

PIECE_BYTES: Final = 1_048_576
"""A removal is written once it has gathered this many bytes for the archives."""

_SMALL_PIECE_BYTES: Final = PIECE_BYTES // 4
_CHUNKS_AT_ONCE: Final = 256  # selected from together: each selection has a fixed cost
_BYTES_AT_ONCE: Final = 4 * 1_048_576
_VERDICTS_MAX: Final = 10_000  # topics cached for each stream, in the broker's memory
_TRIM_PIECES_MAX: Final = 10_000  # pieces examined in one call
_MICROSECONDS: Final = 1_000_000


def read_archives(database: Database) -> list[Archive]:
    """Return the records of all archives.

    Raises:
        StoreCorrupt: a record cannot be decoded.
        StoreFormatError: a later version of Penstock wrote a record.
    """
    with damage_as_corruption(database.data_dir):
        return [decode_archive(value) for _, value in database.items("meta", ARCHIVE)]


def remove_archive(batch: StoreBatch, database: Database, archive: Archive) -> None:
    """Add to `batch` the removal of an archive and its pieces."""
    first, end = encode_key(archive.number), encode_key(archive.number + 1)
    database.delete_range(batch, ARCHIVE_FAMILY, first, end)
    batch.delete(archive.key, database.handles["meta"])


@final
class Archives:
    """All archives of a store.

    Args:
        database: the database with the archives.
        streams: the configured streams; each stream with a retention of its own gets an open
            archive.
        log_begin: offset at which the log begins.
        log_end: offset at which the log ends, excluded.

    Raises:
        StoreCorrupt: records of archives cannot be read, or the log has messages that had moved to
            an archive.
        StoreError: records of archives cannot be written.
    """

    def __init__(
        self,
        database: Database,
        streams: Sequence[StreamDefinition],
        log_begin: int,
        log_end: int,
    ) -> None:
        self._database = database
        self._log_begin = log_begin
        self._log_end = log_end
        self._batch = self._database.new_batch()
        self._by_number = {archive.number: archive for archive in read_archives(database)}
        self._open_archives: list[tuple[Archive, TopicSelector]] = []
        for archive in self._by_number.values():
            if not archive.is_retired:
                self._compare_with_log(archive)
        for stream in streams:
            if stream.is_archived:
                archive = self._archive_for(stream)
                selector = TopicSelector([stream.topic_filters], _VERDICTS_MAX)
                self._open_archives.append((archive, selector))
        open_numbers = {archive.number for archive, _ in self._open_archives}
        for archive in list(self._by_number.values()):
            archive.is_open = archive.number in open_numbers
            self._put_record(archive)
        if not self._batch.is_empty():
            database.write(self._batch)
        for archive, _ in self._open_archives:
            self._remove_unused_parts(archive)

    def _remove_unused_parts(self, archive: Archive) -> None:
        """Remove parts of large pieces that an unfinished removal may have left at the end."""
        begin, end = encode_key(archive.number), encode_key(archive.number + 1)
        pieces = self._database.families[ARCHIVE_FAMILY].iter()
        pieces.seek_for_prev(end)
        if not pieces.valid():
            raise_if_unreadable(pieces)
        elif archive.owns_key(pieces.key()):
            is_large = read_head(pieces.value()) is not None
            begin = archive.piece_key(decode_key(pieces.key()[8:]) + is_large)
        self._database.remove_parts(ARCHIVE_FAMILY, begin, end)

    def _compare_with_log(self, archive: Archive) -> None:
        """Compare the end of an archive with the bounds of the log.

        Offsets between the two are recorded as given up, with an error in the log file. An archive
        that ends behind the log's end is retired, with an error in the log file.

        Raises:
            StoreCorrupt: messages that had moved to the archive are in the log again.
        """
        if archive.end > self._log_end:
            archive.is_open, archive.is_retired = False, True
            logger.error(
                "the stream %s has kept messages up to offset %d, and the log ends at %d: it was"
                " damaged. They are not read any more; 'penstock store forget %s' removes them",
                archive.stream,
                archive.end - 1,
                self._log_end,
                archive.stream,
            )
        elif archive.is_open and archive.end > self._log_begin:
            again = range_in_words(self._log_begin, archive.end)
            raise corrupt_store(
                self._database.data_dir,
                f"messages that had moved to archives are in its log again, {again}",
            )
        elif archive.is_open and archive.end < self._log_begin:
            hole = (archive.end, self._log_begin)
            logger.error(
                "the messages of the stream %s with the %s are lost, for the log was damaged",
                archive.stream,
                range_in_words(*hole),
            )
            archive.given_up = join_ranges([*archive.given_up, hole])
            archive.end = self._log_begin

    def _archive_for(self, stream: StreamDefinition) -> Archive:
        """Return the archive to which a stream's messages are added; create it if there is none."""
        found = [
            archive
            for archive in self._by_number.values()
            if archive.belongs_to(stream.name, stream.topic_filters)
            and not archive.is_retired
            and (archive.is_open or archive.end == self._log_begin)
        ]
        archive = max(found, key=lambda one: (one.is_open, one.number), default=None)
        if archive is None:
            archive = self._create(stream)
        archive.is_open = True
        archive.retention_s = stream.retention_s or 0
        archive.bytes_max = stream.retention_bytes_max
        return archive

    def _create(self, stream: StreamDefinition) -> Archive:
        value: bytes | None = self._database.families["meta"].get(LAST_ARCHIVE_NUMBER)
        number = max([0 if value is None else decode_key(value), *self._by_number]) + 1
        archive = new_archive(number, stream.name, stream.topic_filters, self._log_begin)
        self._by_number[number] = archive
        meta = self._database.handles["meta"]
        self._batch.put(LAST_ARCHIVE_NUMBER, encode_key(number), meta)
        remove_archive(self._batch, self._database, archive)  # leftovers under this number, if any
        return archive

    def _put_record(self, archive: Archive) -> None:
        """Add an archive's record to the pending batch if it has changed; remove an archive that is
        closed and empty."""
        meta = self._database.handles["meta"]
        if not archive.is_open and not archive.messages:
            remove_archive(self._batch, self._database, archive)
            del self._by_number[archive.number]
            return
        value = encode_archive(archive)
        if self._database.families["meta"].get(archive.key) != value:
            self._batch.put(archive.key, value, meta)

    @property
    def is_any_open(self) -> bool:
        """Return whether messages that leave the log are added to any archive."""
        return bool(self._open_archives)

    def closed_archives(self) -> list[Archive]:
        """Return the closed archives: no stream reads them, and no message is added to them."""
        return [archive for archive in self._by_number.values() if not archive.is_open]

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return by stream name how many messages and bytes its archives have."""
        found: dict[str, tuple[int, int]] = {}
        for archive in list(self._by_number.values()):
            messages, size_bytes = found.get(archive.stream, (0, 0))
            found[archive.stream] = messages + archive.messages, size_bytes + archive.size_bytes
        return found

    def begin_removal(self) -> ChunkRemoval:
        """Return a new removal, to which the caller adds the chunks that leave the log."""
        return ChunkRemoval(self._database, self._open_archives)

    def trim(self, now_us: int, leads: Leads) -> None:
        """Remove the oldest pieces of each archive that exceed its age or size limit.

        One call removes a bounded number of pieces from each archive.

        Args:
            now_us: the time, µs of the steady clock.
            leads: how far the dates of messages are ahead of that clock.

        Raises:
            StoreError: an archive could not be trimmed; the others were trimmed all the same.
        """
        failure: StoreError | None = None
        for archive in list(self._by_number.values()):
            older_than_us = now_us - archive.retention_s * _MICROSECONDS
            try:
                self._trim(archive, older_than_us if archive.retention_s else 0, leads)
            except StoreError as error:  # raised below, after the other archives were trimmed
                failure = error
        if failure is not None:
            raise failure

    def _trim(self, archive: Archive, older_than_us: int, leads: Leads) -> None:
        pieces = self._database.families[ARCHIVE_FAMILY].iter()
        pieces.seek(archive.piece_key(archive.begin))
        begin, messages, size_bytes = archive.begin, archive.messages, archive.size_bytes
        for _ in range(_TRIM_PIECES_MAX):
            if begin == archive.covered:
                break
            if not pieces.valid():
                raise_if_unreadable(pieces)
                break
            key, value = pieces.key(), pieces.value()
            end, newest_us = decode_span(value)
            exceeds_size_limit = bool(archive.bytes_max) and size_bytes > archive.bytes_max
            if not archive.owns_key(key) or not (
                newest_us - leads.at(end - 1) < older_than_us or exceeds_size_limit
            ):
                break
            value = self._database.full_value(ARCHIVE_FAMILY, key, value)
            messages -= int(decode_piece(key, value).batch.num_rows)
            size_bytes -= len(value)
            begin = end
            pieces.next()
        if begin == archive.begin:
            return
        batch = self._database.new_batch()
        first, last = archive.piece_key(archive.begin), archive.piece_key(begin)
        self._database.delete_range(batch, ARCHIVE_FAMILY, first, last)
        trimmed = msgspec.structs.replace(
            archive,
            begin=begin,
            messages=messages,
            size_bytes=size_bytes,
            given_up=[hole for hole in archive.given_up if hole[1] > begin],
        )
        batch.put(archive.key, encode_archive(trimmed), self._database.handles["meta"])
        self._database.write(batch, sync=False)
        archive.update_from(trimmed)
        logger.info("retention: stream %s starts at offset %d now", archive.stream, begin)


@final
class ChunkRemoval:
    """Removes chunks from the log and puts their messages into archives, in one write.

    Args:
        database: the database with the archives.
        archives: the open archives, each with the selector of its messages.
    """

    def __init__(
        self, database: Database, archives: Sequence[tuple[Archive, TopicSelector]]
    ) -> None:
        self._database = database
        self._collected = [(archive, selector, list[pa.Table]()) for archive, selector in archives]
        self._collected_bytes = 0
        self._pending_batches: list[pa.RecordBatch] = []
        self._pending_offsets: list[pa.Array] = []
        self._pending_bytes = 0
        self._holes: list[tuple[int, int]] = []
        self._updates: list[tuple[Archive, Archive]] = []

    @property
    def is_large(self) -> bool:
        """Return whether the removal should be written before more is added."""
        return self._collected_bytes >= PIECE_BYTES

    def add(self, base: int, batch: pa.RecordBatch, size_bytes: int) -> None:
        """Add the next chunk of the log.

        Args:
            base: offset of its first row.
            batch: its rows, with the columns of `LOG_SCHEMA`.
            size_bytes: its size in the log.
        """
        if not self._collected:
            return
        self._pending_batches.append(batch)
        self._pending_offsets.append(pa.arange(base, base + batch.num_rows))
        self._pending_bytes += size_bytes
        if len(self._pending_batches) >= _CHUNKS_AT_ONCE or self._pending_bytes >= _BYTES_AT_ONCE:
            self._select_pending()

    def add_hole(self, begin: int, end: int) -> None:
        """Record that the log has no messages with the offsets from `begin` up to `end`."""
        self._holes.append((begin, end))

    def _select_pending(self) -> None:
        if not self._pending_batches:
            return
        chunks = pa.Table.from_batches(self._pending_batches)
        column = pa.chunked_array(self._pending_offsets, pa.int64())
        for _, selector, tables in self._collected:
            rows = select_rows(chunks, column, selector)
            if rows.num_rows:
                tables.append(rows)
                self._collected_bytes += rows.nbytes
        self._pending_batches, self._pending_offsets, self._pending_bytes = [], [], 0

    def write_to(self, batch: StoreBatch, end: int) -> None:
        """Add the rows for the archives to `batch`.

        Args:
            batch: the batch that also removes the chunks from the log.
            end: offset at which the log begins afterwards; the archives end there.

        Raises:
            CommitUnknown: the parts of a large piece could not be written.
        """
        self._select_pending()
        for archive, _, tables in self._collected:
            assert archive.is_open, "what leaves the log goes into open archives only"
            assert archive.end < end, "an archive grows as the log shrinks"
            given_up = join_ranges([*archive.given_up, *self._holes])
            after = msgspec.structs.replace(archive, end=end, given_up=given_up)
            if tables:
                self._append(batch, after, pa.concat_tables(tables))
            batch.put(after.key, encode_archive(after), self._database.handles["meta"])
            self._updates.append((archive, after))

    def _append(self, batch: StoreBatch, archive: Archive, rows: pa.Table) -> None:
        archive.messages += rows.num_rows
        base = archive.covered
        last = self._small_last_piece(archive, rows.column("received_at")[0].as_py())
        if last is not None:
            piece, size_bytes = last
            base = piece.base
            rows = pa.concat_tables([pa.Table.from_batches([piece.batch]), rows])
            archive.size_bytes -= size_bytes
        for piece in make_pieces(base, archive.end, rows):
            pieces = encode_piece(piece)
            key = archive.piece_key(piece.base)
            self._database.put(batch, ARCHIVE_FAMILY, key, pieces, bytes(pieces[0]))
            archive.size_bytes += total_size_bytes(pieces)
        archive.covered = archive.end

    def _small_last_piece(self, archive: Archive, next_us: int) -> tuple[ArchivePiece, int] | None:
        """Return the last piece and its size in bytes; None unless it is small and a message
        received at `next_us` belongs to the same hour.

        None is also returned for a piece that cannot be read: it stays for a repair to report.
        """
        if archive.covered == archive.begin:
            return None
        pieces = self._database.families[ARCHIVE_FAMILY].iter()
        pieces.seek_for_prev(archive.piece_key(archive.covered))
        if not pieces.valid():
            return None
        key, value = pieces.key(), pieces.value()
        is_large = len(value) >= _SMALL_PIECE_BYTES or read_head(value) is not None
        if not archive.owns_key(key) or is_large:
            return None
        try:
            piece = decode_piece(key, value)
        except StoreFormatError:
            return None
        is_last = piece.base >= archive.begin and piece.end == archive.covered
        is_same_hour = unix_hour(piece.newest_us) == unix_hour(next_us)
        return (piece, len(value)) if is_last and is_same_hour else None

    def mark_written(self) -> None:
        """Update the archives in memory; call this once the batch is written."""
        for archive, after in self._updates:
            archive.update_from(after)
