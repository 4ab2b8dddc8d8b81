"""Reading the log from another process, without holding up the one that writes it.

`LogFollower` opens the broker's RocksDB as a *secondary*: it reads the same files,
takes no lock, and the broker never waits for it. `catch_up` lets it see later writes.

A secondary also reads bytes the broker has written but not yet synced; a power cut would take them
back. So nothing at or above the *committed watermark* is ever shown (`store.watermark`): it is the
exclusive end of the messages that are known to be on disk, and the broker moves it after each
synced commit::

    0 ... earliest ─────────────── chunks ───────────────▶ end │ written, not yet synced
          (retention deletes whole chunks in front)            └ committed watermark

After retention a secondary may go on showing chunks that are deleted: it keeps what it read from
the write-ahead log, and does not let a deletion that has meanwhile reached a table file hide it.
Therefore the broker writes the begin of the log beside the watermark, and nothing below is shown. A
follower that still meets a gap opens the log anew, which mends its view.

A stream that is kept longer than the log (`store.archive`) begins where its archive begins, and is
read there first. A message that moves from the log to the archive meanwhile is in either, or in
both; where a secondary with an old view of one and a new view of the other finds it in none, the
files are opened anew and looked at once more.

The offsets that a repair has given up (`store.repair`) are written down beside the log. A reader is
told that they are lost, and never passes over them.

After a power cut a write-ahead log may have records that a secondary would read for ever
(`store.recyclable`). The broker mends them when it starts; until then the log is not opened. Later
there are none: a secondary reads the beginning of a write that is under way.

States::

    closed ──open works──▶ open ──catching up fails, or a gap──▶ closed (the next call opens)

The file is read anew each time rather than mapped: a broker that replaces it, or a data directory
that appears later, needs no special case, and one read costs 10 µs.

Threads may use iterators and `catch_up` in parallel; opening and catching up hold a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import AccessType, Options, Rdict, RdictIter

from penstock.config.stream import StreamDefinition
from penstock.errors import OffsetOutOfRange, StoreError, StoreFailed, StoreFormatError
from penstock.store.archive import ARCHIVE, Archive, decode_archive, decode_piece, decode_span
from penstock.store.chunk import LOG_SCHEMA, decode_chunk, decode_key, encode_key, summary_of
from penstock.store.database import ARCHIVE_FAMILY, FORMAT_KEY, PARTS_KEY, check
from penstock.store.faults import with_remedy
from penstock.store.identity import GIVEN_UP, decode_given_up, refuse_format
from penstock.store.parts import PARTS_FAMILY, full_value, read_head
from penstock.store.ranges import join_ranges
from penstock.store.recyclable import find_recyclable
from penstock.store.watermark import NUMBER_LENGTH_BYTES, WATERMARK_FILE, Committed

CATCH_UP_AGE_S_MAX: Final = 1.0
"""An idle follower looks for chunks removed by retention at least this often."""

ROWS_MAX: Final = 16_384
"""Rows after which a batch that is read takes no further chunk."""

BYTES_MAX: Final = 8 * 1_048_576
"""Bytes of chunks after which a batch that is read takes no further one."""

_COLUMN_FAMILIES: Final = ("meta", "log")

_Holes: TypeAlias = tuple[tuple[int, int], ...]


class StoreNotReady(StoreError):
    """The log is not there yet, or is being opened by the broker: try again soon."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The committed part of a log or stream: offsets from `earliest` up to and without `end`."""

    epoch: str
    earliest: int
    end: int
    given_up: tuple[tuple[int, int], ...] = ()
    """Offsets in between that a repair has given up, each without its end; ascending."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a span of offsets; in order."""

    begin: int
    end: int
    batch: pa.RecordBatch
    """With the columns of `LOG_SCHEMA`."""
    offsets: pa.Array
    """The offsets of the rows, int64."""


@dataclass(frozen=True, slots=True)
class _OpenDatabase:
    """The open database and its column families; an older store has no archives."""

    database: Rdict
    meta: Rdict
    log: Rdict
    archive: Rdict | None
    parts: Rdict | None


class LogFollower:
    """A read-only view of the log below `data_dir`, bounded by the committed watermark."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._store = data_dir / "store"
        self._watermark = data_dir / WATERMARK_FILE
        self._scratch = data_dir / "secondary"
        self._lock = threading.Lock()
        self._opened: _OpenDatabase | None = None
        self._archives: tuple[Archive, ...] = ()
        self._epoch = ""
        self._given_up: tuple[tuple[int, int], ...] = ()
        self._seen_end = 0
        self._caught_up_at = 0.0  # monotonic seconds

    def extent(self, stream: StreamDefinition | None = None) -> Extent:
        """Return the committed extent; catch up with the broker if the watermark moved.

        Args:
            stream: its archive counts, too; None for the log alone.

        Raises:
            StoreNotReady: no log to read yet.
            StoreFailed: the log cannot be read.
        """
        committed = self._read_watermark()
        watermark, begin = committed.end, committed.begin
        with self._lock:
            if committed.epoch not in ("", self._epoch):
                self._close()  # another log was put in its place: by a repair, or a restore
            opened = self._open_log()
            stale = time.monotonic() - self._caught_up_at > CATCH_UP_AGE_S_MAX
            if watermark > self._seen_end or stale:
                self._catch_up(opened)
                if _lacks_parts(opened):
                    self._close()
                    opened = self._open_log()
            end = min(watermark, self._seen_end) if self._seen_end else 0
            earliest = _first_offset(opened.log)
            epoch, holes = self._epoch, self._given_up
            archive = self._archive_of(stream)
        if earliest is None:  # retention took everything there was
            return Extent(epoch, watermark, watermark)
        earliest = min(max(earliest, begin), end)
        assert earliest <= end <= watermark, "a reader sees a part of what is committed"
        if archive is not None:
            earliest = min(earliest, archive.begin)
            holes = _holes_of(archive, holes)
        lost = ((max(first, earliest), min(last, end)) for first, last in holes)
        return Extent(epoch, earliest, end, tuple(hole for hole in lost if hole[0] < hole[1]))

    def rows(self, start: int, end: int, stream: StreamDefinition | None = None) -> Iterator[Rows]:
        """Yield the rows from `start` up to and without `end`, piece by piece, in order of offset.

        `end` must not exceed the `end` of an `extent` seen before. One RocksDB iterator lives
        as long as the generator, and keeps the files it reads from: do not hold it for long.

        Args:
            start: first offset.
            end: offset after the last.
            stream: the stream whose rows are wanted; rows that have left the log come from its
                archive, which has no rows of other streams. None: the log alone.

        Raises:
            OffsetOutOfRange: retention has removed rows of the range, or a repair gave them up.
            StoreFailed: they are there and cannot be read.
        """
        position, missed = start, -1
        while position < end:
            with self._lock:
                opened = self._open_log()
                archive = self._archive_of(stream)
            found = end  # where there is something again
            if archive is not None and archive.begin <= position < archive.end:
                self._refuse_hole(position, archive)
                holes = [begin for begin, _ in archive.given_up if begin > position]
                stop = min(end, archive.end, *holes)
                for rows in self._archived(opened, archive, position, stop):
                    position = rows.end
                    yield rows
                if position == stop:
                    continue
            for rows in self._logged(opened, position, end):
                if rows.begin > position:
                    found = rows.begin
                    break
                position = rows.end
                yield rows
            if position < end:
                self._refuse_hole(position, archive)
                if stream is None or position == missed:
                    raise self._gap(position, found, archive)
                missed = position
                with self._lock:
                    self._close()

    def _logged(self, opened: _OpenDatabase, start: int, end: int) -> Iterator[Rows]:
        """Yield the rows from `start` to `end`, small chunks joined; after a gap a piece begins
        above the end of the one before it, and the caller stops there."""
        chunks = opened.log.iter()
        chunks.seek_for_prev(encode_key(start))
        if not chunks.valid():
            self._refuse_unreadable(chunks)
            chunks.seek(encode_key(start))
        begin = position = start
        gathered: list[pa.RecordBatch] = []
        size_bytes = 0
        while position < end and chunks.valid():
            key, value = chunks.key(), chunks.value()
            base, summary = decode_key(key), summary_of(value)
            chunks.next()
            if base + summary.rows <= position:
                continue
            batch = summary.batch
            if batch is None:
                chunk = self._full_value(opened, "log", key, value)
                if chunk is None:
                    break
                batch = decode_chunk(chunk)
            first = max(0, position - base)
            if base > position:
                if gathered:
                    yield _joined(begin, position, gathered)
                gathered, size_bytes = [], 0
                begin = position = base
            last = max(first, min(batch.num_rows, end - base))
            if last - first < batch.num_rows:
                batch = batch.slice(first, last - first)
            gathered.append(batch)
            position += last - first
            size_bytes += summary.size_bytes
            if position - begin >= ROWS_MAX or size_bytes >= BYTES_MAX:
                yield _joined(begin, position, gathered)
                gathered, size_bytes, begin = [], 0, position
        if gathered:
            yield _joined(begin, position, gathered)
        if position < end:
            self._refuse_unreadable(chunks)

    def _full_value(
        self, opened: _OpenDatabase, family: str, key: bytes, value: bytes
    ) -> bytes | None:
        """Return the value under `key`, of which `value` was found there; None if it was just
        removed.

        Raises:
            StoreNotReady: it is the first large one, and the log was opened before it.
            StoreFailed: it cannot be read.
        """
        if _lacks_parts(opened) and read_head(value) is not None:
            with self._lock:
                self._close()
            raise StoreNotReady("the first large value came after the log was opened")
        try:
            return full_value(family, key, value, opened.parts)
        except (StoreFormatError, StoreFailed) as error:
            if decode_key(key[-8:]) < self.extent().earliest:
                return None
            raise StoreFailed(f"the log cannot be read: {error}") from error

    def _archived(
        self, opened: _OpenDatabase, archive: Archive, start: int, end: int
    ) -> Iterator[Rows]:
        """Yield the rows of an archive up to the first gap."""
        position = start
        if opened.archive is not None and position < archive.covered:
            pieces = opened.archive.iter()
            pieces.seek_for_prev(archive.piece_key(position))
            if not pieces.valid():
                self._refuse_unreadable(pieces)
            while position < end and pieces.valid():
                key, value = pieces.key(), pieces.value()
                pieces.next()
                if not archive.has(key) or decode_key(key[8:]) > position:
                    break
                if decode_span(value)[0] <= position:
                    continue
                found = self._full_value(opened, ARCHIVE_FAMILY, key, value)
                if found is None:
                    break
                piece = decode_piece(key, found)
                chosen = _between(piece.batch, position, end)
                offsets = chosen.column(0)
                begin, position = position, min(piece.end, end)
                yield Rows(begin, position, chosen.select(LOG_SCHEMA.names), offsets)
            if position < min(end, archive.covered):
                self._refuse_unreadable(pieces)
        if archive.covered <= position < end:
            nothing = pa.RecordBatch.from_pylist([], schema=LOG_SCHEMA)
            yield Rows(position, end, nothing, pa.array([], pa.int64()))

    def close(self) -> None:
        """Close the files; the next call opens them again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        """Drop the handles; the files are closed when the last iterator over them is gone."""
        self._opened = None
        self._seen_end = 0

    def _refuse_unreadable(self, chunks: RdictIter) -> None:
        """Raise if an iterator stopped at something that it could not read, and not at the end."""
        try:
            check(chunks)
        except StoreFailed as error:
            with self._lock:
                self._close()
            why = with_remedy(error.__cause__ or error, self._store.parent)
            raise StoreFailed(f"the log cannot be read: {why}") from error

    def _gap(self, position: int, found: int, archive: Archive | None) -> StoreError:
        """Return the error for rows from `position` up to `found` that are missing."""
        with self._lock:
            self._close()
        if archive is not None and archive.begin <= position < archive.end:
            return StoreFailed(
                f"what the stream {archive.stream} keeps from offset {position} on is missing: the"
                f" store in {self._store.parent} is damaged; see with 'penstock store check"
                f" --data-dir {self._store.parent}' what is lost"
            )
        return OffsetOutOfRange(
            f"the offsets {position} to {found - 1} are no longer in the log:"
            " retention has removed them"
        )

    def _refuse_hole(self, position: int, archive: Archive | None) -> None:
        """Raise if a repair has given up the messages at `position`."""
        holes = self._given_up if archive is None else _holes_of(archive, self._given_up)
        for begin, end in holes:
            if begin <= position < end:
                raise given_up_error(begin, end)

    def _archive_of(self, stream: StreamDefinition | None) -> Archive | None:
        if stream is not None:
            for archive in self._archives:
                if archive.is_open and archive.is_of(stream.name, stream.topic_filters):
                    return archive
        return None

    def _read_watermark(self) -> Committed:
        """Return the bounds of the committed rows, and the epoch of their log."""
        try:
            data = self._watermark.read_bytes()
        except FileNotFoundError as error:
            raise StoreNotReady(f"there is no log in {self._store.parent} yet") from error
        except OSError as error:
            raise StoreFailed(f"{self._watermark} cannot be read: {error.strerror}") from error
        if len(data) < NUMBER_LENGTH_BYTES:
            raise StoreNotReady(f"the broker is just setting up {self._store.parent}")
        return Committed.decode(data)

    def _open_log(self) -> _OpenDatabase:
        if self._opened is not None:
            return self._opened
        if not (self._store / "CURRENT").exists():
            raise StoreNotReady(f"there is no log in {self._store.parent} yet")
        found = find_recyclable(self._store)
        if found:
            raise StoreNotReady(f"the log in {self._store} is mended by its broker: {found[0]}")
        options = Options(raw_mode=True)
        options.set_max_open_files(-1)  # a file the broker deletes stays readable while open
        try:
            there = set(Rdict.list_cf(str(self._store)))
            names = [*_COLUMN_FAMILIES, *({ARCHIVE_FAMILY, PARTS_FAMILY} & there)]
            database = Rdict(
                str(self._store),
                options,
                column_families={name: Options(raw_mode=True) for name in names},
                access_type=AccessType.secondary(str(self._scratch)),
            )
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreNotReady(f"the log in {self._store} cannot be opened: {error}") from error
        opened = _OpenDatabase(
            database,
            database.get_column_family("meta"),
            database.get_column_family("log"),
            database.get_column_family(ARCHIVE_FAMILY) if ARCHIVE_FAMILY in names else None,
            database.get_column_family(PARTS_FAMILY) if PARTS_FAMILY in names else None,
        )
        self._epoch = _read_epoch(opened.meta, self._store)
        self._given_up = _read_given_up(opened.meta)
        self._opened = opened
        self._catch_up(opened)
        return opened

    def _catch_up(self, opened: _OpenDatabase) -> None:
        try:
            opened.database.try_catch_up_with_primary()
            self._seen_end = _end_offset(opened.log)
            self._archives = _read_archives(opened)
        except Exception as error:  # rocksdict raises plain Exception
            self._close()
            raise StoreNotReady(f"the log in {self._store} cannot be followed: {error}") from error
        self._caught_up_at = time.monotonic()


def _lacks_parts(opened: _OpenDatabase) -> bool:
    """Return whether the first large value was written after the log was opened."""
    return opened.parts is None and opened.meta.get(PARTS_KEY) is not None


def _read_epoch(meta: Rdict, store: Path) -> str:
    version, epoch = meta.get(FORMAT_KEY), meta.get(b"epoch")
    if epoch is None or version is None:
        raise StoreNotReady(f"the broker is just setting up {store}")
    refuse_format(version)
    return str(epoch.decode("ascii"))


def _read_given_up(meta: Rdict) -> tuple[tuple[int, int], ...]:
    kept: bytes | None = meta.get(GIVEN_UP)
    return () if kept is None else tuple(decode_given_up(kept))


def _read_archives(opened: _OpenDatabase) -> tuple[Archive, ...]:
    found = []
    entries = opened.meta.iter()
    entries.seek(ARCHIVE)
    while entries.valid() and entries.key().startswith(ARCHIVE):
        found.append(decode_archive(entries.value()))
        entries.next()
    check(entries)
    if found and opened.archive is None:
        raise StoreNotReady("the archives were made after the log was opened")
    return tuple(found)


def _holes_of(archive: Archive, of_the_log: Iterable[tuple[int, int]]) -> _Holes:
    """Return the offsets that a stream has lost: in its archive, and behind it in the log."""
    behind = ((max(begin, archive.end), end) for begin, end in of_the_log if end > archive.end)
    return tuple(join_ranges([*archive.given_up, *behind]))


def _joined(begin: int, end: int, batches: list[pa.RecordBatch]) -> Rows:
    """Return rows that follow each other as one batch."""
    rows = pa.concat_batches(batches)
    assert rows.num_rows == end - begin, "rows of the log follow each other without a gap"
    return Rows(begin, end, rows, pa.arange(begin, end))


def _between(batch: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
    """Return the rows of a piece whose offsets are from `begin` up to `end`."""
    offsets = batch.column(0)
    if len(offsets) and begin <= offsets[0].as_py() and offsets[-1].as_py() < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(offsets, begin), pc.less(offsets, end)))


def given_up_error(begin: int, end: int) -> OffsetOutOfRange:
    """Return the error for offsets from `begin` up to `end` that a repair has given up."""
    return OffsetOutOfRange(
        f"the offsets {begin} to {end - 1} are lost, a repair of the damaged store has given them"
        f" up: the log goes on at offset {end}"
    )


def _first_offset(log: Rdict) -> int | None:
    chunks = log.iter()
    chunks.seek_to_first()
    return decode_key(chunks.key()) if chunks.valid() else None


def _end_offset(log: Rdict) -> int:
    chunks = log.iter()
    chunks.seek_to_last()
    if not chunks.valid():
        return 0
    return decode_key(chunks.key()) + summary_of(chunks.value()).rows
