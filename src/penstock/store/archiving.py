"""Moving what leaves the log into the archives of streams (`store.archive`), and trimming them.

A departure is one write: chunks out of the log, the messages that streams keep longer into their
archives, all at once and synced, for these messages are acknowledged::

    chunk ─▶ rows of "alarms" ─╮
    chunk ─▶ rows of "alarms" ─┴▶ enough of them, or no more chunks ─▶ one piece, one write

A small last piece is written anew together with what comes, unless it spans more than an hour: a
stream of a message an hour would otherwise have a piece for each.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, final

import msgspec
import pyarrow as pa
from rocksdict import WriteBatch

from penstock.config import StreamDefinition
from penstock.store.archive import (
    ARCHIVE,
    ARCHIVE_SCHEMA,
    Archive,
    Piece,
    decode_archive,
    decode_piece,
    decode_span,
    encode_archive,
    encode_piece,
    make_piece,
    new_archive,
)
from penstock.store.chunk import decode_key
from penstock.store.database import ARCHIVE_FAMILY, Database, check
from penstock.store.selection import TopicSelector

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 1_048_576
"""A departure that has gathered as much for one stream is written."""

_SMALL_PIECE_BYTES: Final = PIECE_BYTES // 4
_SPAN_US_MAX: Final = 3_600_000_000
_TRIM_PIECES_MAX: Final = 10_000  # looked at in one call
_MICROSECONDS: Final = 1_000_000


@final
class Archives:
    """All archives of a store.

    Args:
        database: where they lie.
        streams: as configured; those with a retention of their own have an open archive.
        log_begin: where the log begins.

    Raises:
        StoreError: they cannot be read or written.
    """

    def __init__(
        self, database: Database, streams: Sequence[StreamDefinition], log_begin: int
    ) -> None:
        self._database = database
        self._all = {
            archive.number: archive
            for archive in (decode_archive(value) for _, value in database.items("meta", ARCHIVE))
        }
        self._open: list[tuple[Archive, TopicSelector]] = []
        changed = []
        for stream in streams:
            if stream.is_archived:
                archive = self._for(stream, log_begin)
                changed.append(archive)
                self._open.append((archive, TopicSelector([stream.topic_filters])))
        wanted = {archive.number for archive, _ in self._open}
        for archive in self._all.values():
            if archive.number not in wanted:
                archive.is_open = False
                changed.append(archive)
        self._write_down(changed)
        self._all.update((archive.number, archive) for archive in changed)

    def _for(self, stream: StreamDefinition, log_begin: int) -> Archive:
        for archive in self._all.values():
            if archive.is_of(stream.name, stream.topic_filters) and archive.end == log_begin:
                break
        else:
            number = max(self._all, default=0) + 1
            archive = new_archive(number, stream.name, stream.topic_filters, log_begin)
            self._all[number] = archive
        archive.is_open = True
        archive.retention_s = stream.retention_s or 0
        archive.bytes_max = stream.retention_bytes_max
        return archive

    def _write_down(self, changed: Sequence[Archive]) -> None:
        batch = WriteBatch(raw_mode=True)
        meta = self._database.handles["meta"]
        for archive in changed:
            value = encode_archive(archive)
            if self._database.families["meta"].get(archive.key) != value:
                batch.put(archive.key, value, meta)
        if not batch.is_empty():
            self._database.write(batch)

    @property
    def is_any_open(self) -> bool:
        """Whether something of what leaves the log is kept."""
        return bool(self._open)

    def closed(self) -> list[Archive]:
        """Those that nothing is added to, and that no stream reads."""
        return [archive for archive in self._all.values() if not archive.is_open]

    def depart(self) -> Departure:
        """Begin to take chunks out of the log."""
        return Departure(self._database, self._open)

    def trim(self, now_us: int) -> None:
        """Remove what is too old or too much, in whole pieces; a bounded number of them.

        Args:
            now_us: µs since the Unix epoch.

        Raises:
            StoreError: it could not be done.
        """
        for archive in list(self._all.values()):
            older_than_us = now_us - archive.retention_s * _MICROSECONDS
            self._trim(archive, older_than_us if archive.retention_s else 0)

    def _trim(self, archive: Archive, older_than_us: int) -> None:
        pieces = self._database.families[ARCHIVE_FAMILY].iter()
        pieces.seek(archive.piece_key(archive.begin))
        begin, messages, size_bytes = archive.begin, archive.messages, archive.size_bytes
        for _ in range(_TRIM_PIECES_MAX):
            if begin == archive.covered:
                break
            if not pieces.valid():
                check(pieces)
                break
            key, value = pieces.key(), pieces.value()
            end, newest_us = decode_span(value)
            is_too_much = bool(archive.bytes_max) and size_bytes > archive.bytes_max
            if key[:8] != archive.key[-8:] or not (newest_us < older_than_us or is_too_much):
                break
            messages -= int(decode_piece(key, value).batch.num_rows)
            size_bytes -= len(value)
            begin = end
            pieces.next()
        if begin == archive.begin:
            return
        batch = WriteBatch(raw_mode=True)
        first, last = archive.piece_key(archive.begin), archive.piece_key(begin)
        batch.delete_range(first, last, self._database.handles[ARCHIVE_FAMILY])
        trimmed = msgspec.structs.replace(
            archive, begin=begin, messages=messages, size_bytes=size_bytes
        )
        batch.put(archive.key, encode_archive(trimmed), self._database.handles["meta"])
        self._database.write(batch, sync=False)
        archive.begin, archive.messages, archive.size_bytes = begin, messages, size_bytes
        logger.info("retention: stream %s starts at offset %d now", archive.stream, begin)


@final
class Departure:
    """Chunks that leave the log in one write.

    Args:
        database: where the archives lie.
        archives: the open ones, each with what chooses its messages.
    """

    def __init__(
        self, database: Database, archives: Sequence[tuple[Archive, TopicSelector]]
    ) -> None:
        self._database = database
        self._kept = [(archive, selector, list[pa.Table]()) for archive, selector in archives]
        self._after: list[tuple[Archive, Archive]] = []
        self.size_bytes = 0

    def add(self, base: int, batch: pa.RecordBatch) -> None:
        """The next chunk, with its first offset. `size_bytes` is what one archive gets, at most."""
        chunk = pa.Table.from_batches([batch])
        offsets = pa.array(range(base, base + batch.num_rows), pa.int64())
        for _, selector, tables in self._kept:
            mask = selector.mask(chunk)
            rows = chunk.add_column(0, ARCHIVE_SCHEMA.field("offset"), [offsets])
            if mask is not None:
                rows = rows.filter(mask)
            if rows.num_rows:
                tables.append(rows)
                self.size_bytes = max(self.size_bytes, sum(table.nbytes for table in tables))

    def write_to(self, batch: WriteBatch, end: int) -> None:
        """Add to `batch` what the archives get; the log begins at offset `end` then."""
        for archive, _, tables in self._kept:
            after = msgspec.structs.replace(archive, end=end)
            if tables:
                self._append(batch, after, pa.concat_tables(tables))
            batch.put(after.key, encode_archive(after), self._database.handles["meta"])
            self._after.append((archive, after))

    def _append(self, batch: WriteBatch, archive: Archive, rows: pa.Table) -> None:
        archive.messages += rows.num_rows
        base = archive.covered
        last = self._small_last_piece(archive)
        if last is not None:
            piece, size_bytes = last
            base = piece.base
            rows = pa.concat_tables([pa.Table.from_batches([piece.batch]), rows])
            archive.size_bytes -= size_bytes
        value = encode_piece(make_piece(base, archive.end, rows))
        batch.put(archive.piece_key(base), value, self._database.handles[ARCHIVE_FAMILY])
        archive.size_bytes += len(value)
        archive.covered = archive.end

    def _small_last_piece(self, archive: Archive) -> tuple[Piece, int] | None:
        """The last piece, if it may grow, and its size in bytes."""
        if archive.covered == archive.begin:
            return None
        pieces = self._database.families[ARCHIVE_FAMILY].iter()
        pieces.seek_for_prev(archive.piece_key(archive.covered))
        if not pieces.valid():
            check(pieces)
            return None
        key, value = pieces.key(), pieces.value()
        if len(value) >= _SMALL_PIECE_BYTES or key[:8] != archive.key[-8:]:
            return None
        if decode_key(key[8:]) < archive.begin:
            return None
        piece = decode_piece(key, value)
        oldest_us = piece.batch.column("received_at")[0].as_py()
        return (piece, len(value)) if piece.newest_us - oldest_us < _SPAN_US_MAX else None

    def done(self) -> None:
        """The write is done."""
        for archive, after in self._after:
            for name in ("begin", "covered", "end", "messages", "size_bytes"):
                setattr(archive, name, getattr(after, name))
