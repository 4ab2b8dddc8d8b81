"""Reads the log of a running broker from another process, without delaying the broker.

`LogFollower` opens the broker's RocksDB as a *secondary instance*: it reads the same files, takes
no lock, and the broker never waits for it. `LogFollower.extent` makes later writes visible.

A secondary also reads bytes that the broker has written and not yet synced; a power cut would take
them back. So offsets at or above the *committed watermark* are never shown (`store.watermark`). The
watermark is the exclusive end of the messages that are known to be on disk; the broker moves it
after each synced commit::

    0 ... earliest ─────────────── chunks ───────────────▶ end │ written, not yet synced
          (retention deletes whole chunks in front)            └ committed watermark

A secondary may show chunks that retention has deleted: it keeps the records that it read from the
write-ahead log, and does not notice a deletion that has meanwhile reached a table file. Therefore
the broker also writes the beginning of the log to the watermark file, and offsets below it are not
shown. A follower that still meets a gap opens the log again, which corrects its view.

A stream that is kept longer than the log (`store.archive`) begins where its archive begins, and its
archive is read first. A message that moves from the log to the archive meanwhile is in one of them
or in both. A secondary with an old view of one and a new view of the other may find it in neither;
then it opens the files again and looks once more.

The offsets that a repair has given up (`store.repair`) are recorded beside the log. A request for
them raises an error; they are never skipped silently.

After a power cut a write-ahead log may have records that a secondary would read endlessly
(`store.recyclable`). The broker mends them when it starts; until then the log is not opened. A
running broker never writes such records.

States::

    closed ──open works──▶ open ──catching up fails, or a gap──▶ closed (the next call opens)

The watermark file is read each time rather than mapped: so a broker that replaces it, or a data
directory that appears later, needs no special case, and one read costs 10 µs.

Several threads may use a `LogFollower`; opening the files and catching up are done under a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import AccessType, Options, Rdict, RdictIter

from penstock.config.stream import StreamDefinition
from penstock.errors import OffsetOutOfRange, StoreError, StoreFormatError, StoreUnavailable
from penstock.store.archive import ARCHIVE, Archive, decode_archive, decode_piece, decode_span
from penstock.store.chunk import LOG_SCHEMA, decode_chunk, decode_key, summarize_chunk
from penstock.store.database import ARCHIVE_FAMILY, FORMAT_KEY, PARTS_KEY, raise_if_unreadable
from penstock.store.faults import with_remedy
from penstock.store.history import RUNS, History, decode_runs, find_digest
from penstock.store.history import judge as judge_position
from penstock.store.history import mark_at as mark_of
from penstock.store.identity import (
    GIVEN_UP,
    LINEAGE,
    decode_given_up,
    decode_lineage,
    refuse_format,
)
from penstock.store.log_damage import LogDamaged, find_hidden, is_damage, seek_chunk
from penstock.store.mark import Mark, Run, Verdict
from penstock.store.parts import PARTS_FAMILY, full_value, read_head
from penstock.store.ranges import join_ranges
from penstock.store.recyclable import find_recyclable_records
from penstock.store.watermark import NUMBER_LENGTH_BYTES, WATERMARK_FILE, Watermark

CATCH_UP_AGE_S_MAX: Final = 1.0
"""`extent` catches up with the broker if the last time is longer ago, even if no message was
added, to see which chunks retention has removed."""

ROWS_MAX: Final = 16_384
"""A batch of rows ends after the chunk with which it has this many rows."""

BYTES_MAX: Final = 8 * 1_048_576
"""A batch of rows ends after the chunk with which its chunks have this size."""

_COLUMN_FAMILIES: Final = ("meta", "log", ARCHIVE_FAMILY)

_Holes: TypeAlias = tuple[tuple[int, int], ...]


class StoreNotReady(StoreError):
    """The log does not exist yet, or the broker is just opening it: the caller may retry soon."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The committed part of a log or stream: offsets from `earliest` up to `end`, excluded."""

    epoch: str
    earliest: int
    end: int
    given_up: tuple[tuple[int, int], ...] = ()
    """Ascending ranges of offsets in between that a repair has given up: first and end,
    excluded."""
    damaged: tuple[tuple[int, int], ...] = ()
    """Ascending ranges of offsets in between that readers have found unreadable (`LogDamaged`)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of the offsets from `begin` up to `end`, excluded, in order."""

    begin: int
    end: int
    batch: pa.RecordBatch
    """The rows, with the columns of `LOG_SCHEMA`."""
    offsets: pa.Array
    """The offsets of the rows, int64."""


@dataclass(frozen=True, slots=True)
class _OpenDatabase:
    """The open database and its column families; `parts` may not exist yet."""

    database: Rdict
    meta: Rdict
    log: Rdict
    archive: Rdict
    parts: Rdict | None


class LogFollower:
    """A read-only view of the log below `data_dir`, bounded by the committed watermark.

    Args:
        data_dir: the broker's data directory.
        on_damage: called once for each damaged block that a reader finds, in its thread.
    """

    def __init__(
        self, data_dir: Path, on_damage: Callable[[LogDamaged], None] = lambda _: None
    ) -> None:
        self.data_dir = data_dir
        self._on_damage = on_damage
        self._damaged: tuple[str, dict[int, int]] = "", {}  # epoch; end by begin
        self._store = data_dir / "store"
        self._watermark = data_dir / WATERMARK_FILE
        self._scratch = data_dir / "secondary"
        self._lock = threading.Lock()
        self._handles: _OpenDatabase | None = None
        self._archives: tuple[Archive, ...] = ()
        self._epoch = ""
        self._given_up: tuple[tuple[int, int], ...] = ()
        self._lineage: Sequence[tuple[str, int]] = ()
        self._runs: Sequence[Run] = ()
        self._newest_digest: tuple[object, bytes] = None, b""  # with where it is
        self._seen_end = 0
        self._caught_up_at = 0.0  # monotonic seconds

    def extent(self, stream: StreamDefinition | None = None) -> Extent:
        """Return the committed extent; catch up with the broker first if the watermark moved.

        Args:
            stream: the stream whose archive belongs to the extent; None for the log alone.

        Raises:
            StoreNotReady: there is no log to read yet.
            StoreUnavailable: the log cannot be read.
        """
        watermark = self._read_watermark()
        committed_end = watermark.end
        with self._lock:
            if watermark.epoch not in ("", self._epoch):
                self._close()  # a repair or a restore has replaced the log
            handles = self._open_log()
            is_stale = time.monotonic() - self._caught_up_at > CATCH_UP_AGE_S_MAX
            if committed_end > self._seen_end or is_stale:
                self._catch_up(handles)
                if _lacks_parts(handles):
                    self._close()
                    handles = self._open_log()
            end = min(committed_end, self._seen_end) if self._seen_end else 0
            earliest = _first_offset(handles.log, watermark.begin)
            epoch, holes = self._epoch, self._given_up
            archive = self._archive_of(stream)
        if earliest is None:  # the log has no chunk
            return Extent(epoch, committed_end, committed_end)
        earliest = min(max(earliest, watermark.begin), end)
        assert earliest <= end <= committed_end, "only committed rows are shown"
        if archive is not None:
            earliest = min(earliest, archive.begin)
            holes = _holes_of(archive, holes)
        known_epoch, ends = self._damaged
        hidden = ((begin, ends[begin]) for begin in sorted(ends) if known_epoch == epoch)
        given_up, damaged = (_within(earliest, end, ranges) for ranges in (holes, hidden))
        return Extent(epoch, earliest, end, given_up, damaged)

    def history(self) -> History:
        """Return the history of the log, up to the end of its committed extent.

        Raises:
            StoreNotReady: there is no log to read yet.
            StoreUnavailable: the log cannot be read.
        """
        end = self.extent().end
        with self._lock:
            self._open_log()
            return History(self._epoch, self._lineage, self._runs, end)

    def mark_at(self, offset: int) -> Mark:
        """Return the mark of an offset, which is at most the end of the committed extent.

        Raises:
            StoreNotReady: there is no log to read yet.
            StoreUnavailable: the log cannot be read.
        """
        return mark_of(self.history(), self._find_digest, offset)

    def judge(self, epoch: str, offset: int, mark: Mark) -> Verdict:
        """Return whether a position belongs to the log's history (`store.history`).

        Raises:
            StoreNotReady: there is no log to read yet.
            StoreUnavailable: the log cannot be read.
        """
        return judge_position(self.history(), self._find_digest, epoch, offset, mark)

    def _find_digest(self, offset: int) -> bytes | None:
        with self._lock:
            handles = self._open_log()
            place = self._epoch, self._runs[-1:], offset
        if self._newest_digest[0] == place:  # of the log's end, which readers ask for repeatedly
            return self._newest_digest[1]

        def whole(key: bytes, value: bytes) -> bytes | None:
            return self._full_value(handles, "log", key, value)

        try:
            found = find_digest(handles.log, whole, offset)
        except StoreUnavailable as error:
            if is_damage(error):
                return None  # of a damaged chunk nothing is known, as of one that was removed
            raise
        except StoreFormatError as error:
            raise StoreUnavailable(f"the log cannot be read: {error}") from error
        if found is None:
            return None
        self._newest_digest = place, found.digest
        return found.digest

    def rows(self, start: int, end: int, stream: StreamDefinition | None = None) -> Iterator[Rows]:
        """Yield the rows from `start` up to `end`, in batches in the order of offsets.

        A RocksDB iterator lives as long as the generator, and the files that it reads cannot be
        removed meanwhile: consume the generator soon.

        Args:
            start: first offset.
            end: offset after the last; at most the `end` of an extent that `extent` returned.
            stream: rows that have left the log are read from this stream's archive, which has no
                rows of other streams; None reads the log alone.

        Raises:
            OffsetOutOfRange: retention has removed rows of the range, or a repair gave them up.
            LogDamaged: rows of the range cannot be read, because a block of the log is damaged; all
                rows before it were yielded.
            StoreUnavailable: rows of the range cannot be read, for another reason.
        """
        position, retried_at = start, -1
        while position < end:
            with self._lock:
                handles = self._open_log()
                archive = self._archive_of(stream)
            gap_end = end
            if archive is not None and archive.begin <= position < archive.end:
                self._refuse_hole(position, archive)
                holes = [begin for begin, _ in archive.given_up if begin > position]
                stop = min(end, archive.end, *holes)
                for rows in self._archived(handles, archive, position, stop):
                    position = rows.end
                    yield rows
                if position == stop:
                    continue
            for rows in self._logged(handles, position, end):
                if rows.begin > position:
                    gap_end = rows.begin
                    break
                position = rows.end
                yield rows
            if position < end:
                self._refuse_hole(position, archive)
                if stream is None or position == retried_at:
                    raise self._gap(position, gap_end, archive)
                retried_at = position
                with self._lock:
                    self._close()

    def rows_around(
        self, start: int, end: int, stream: StreamDefinition | None = None
    ) -> Iterator[Rows]:
        """Yield the rows as `rows` does, without those that a damaged block hides."""
        position = start
        while position < end:
            try:
                for rows in self.rows(position, end, stream):
                    position = rows.end
                    yield rows
            except LogDamaged as damage:
                position = damage.end

    def _logged(self, handles: _OpenDatabase, start: int, end: int) -> Iterator[Rows]:
        """Yield the rows of the log from `start` up to `end`, with small chunks joined.

        After a gap the next batch begins above the end of the batch before; the caller stops there.
        """
        try:
            chunks = seek_chunk(handles.log, start)
        except StoreUnavailable as error:
            raise self._unreadable(error, handles, start) from error
        begin = position = start
        gathered: list[pa.RecordBatch] = []
        size_bytes = 0
        while position < end and chunks.valid():
            key, value = chunks.key(), chunks.value()
            base, summary = decode_key(key), summarize_chunk(value)
            chunks.next()
            if base + summary.rows <= position:
                continue
            batch = summary.batch
            if batch is None:
                try:
                    chunk = self._full_value(handles, "log", key, value)
                except StoreUnavailable as error:
                    if not is_damage(error):
                        raise
                    if gathered:
                        yield _joined(begin, position, gathered)
                    raise self._damage(base, base + summary.rows, error) from error
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
            try:
                raise_if_unreadable(chunks)
            except StoreUnavailable as error:
                raise self._unreadable(error, handles, position) from error

    def _full_value(
        self, handles: _OpenDatabase, family: str, key: bytes, value: bytes
    ) -> bytes | None:
        """Return the whole value under `key`; None if retention has just removed it.

        Args:
            handles: the open database.
            family: column family of the key.
            key: the key.
            value: the bytes stored under it: the whole value, or the head of a large one.

        Raises:
            StoreNotReady: the store got its first large value after the database was opened.
            StoreUnavailable: the value cannot be read.
        """
        if _lacks_parts(handles) and read_head(value) is not None:
            with self._lock:
                self._close()
            raise StoreNotReady("the first large value was written after the log was opened")
        try:
            return full_value(family, key, value, handles.parts)
        except (StoreFormatError, StoreUnavailable) as error:
            if decode_key(key[-8:]) < self.extent().earliest:
                return None
            raise StoreUnavailable(f"the log cannot be read: {error}") from error

    def _archived(
        self, handles: _OpenDatabase, archive: Archive, start: int, end: int
    ) -> Iterator[Rows]:
        """Yield the rows of an archive from `start` up to `end`, or up to the first gap."""
        position = start
        if position < archive.covered:
            pieces = handles.archive.iter()
            pieces.seek_for_prev(archive.piece_key(position))
            if not pieces.valid():
                self._refuse_unreadable(pieces)
            while position < end and pieces.valid():
                key, value = pieces.key(), pieces.value()
                pieces.next()
                if not archive.owns_key(key) or decode_key(key[8:]) > position:
                    break
                if decode_span(value)[0] <= position:
                    continue
                found = self._full_value(handles, ARCHIVE_FAMILY, key, value)
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
        self._handles = None
        self._seen_end = 0

    def _refuse_unreadable(self, chunks: RdictIter) -> None:
        """Raise StoreUnavailable if an iterator stopped at a read error, and not at the end."""
        try:
            raise_if_unreadable(chunks)
        except StoreUnavailable as error:
            raise self._unreadable(error) from error

    def _unreadable(
        self, error: StoreUnavailable, handles: _OpenDatabase | None = None, position: int = 0
    ) -> StoreUnavailable:
        """Return the error for a failed read; LogDamaged where a block of the log is damaged.

        Args:
            error: the failure.
            handles: the open database, if the log was read, and not an archive.
            position: the offset whose chunk cannot be read.
        """
        if handles is not None and is_damage(error):
            extent = self.extent()
            hidden = find_hidden(handles.log, position, extent.earliest, extent.end)
            return self._damage(*hidden, error)
        with self._lock:
            self._close()
        why = with_remedy(error.__cause__ or error, self._store.parent)
        return StoreUnavailable(f"the log cannot be read: {why}")

    def _damage(self, begin: int, end: int, cause: StoreUnavailable) -> LogDamaged:
        """Return the error for a damaged block, and report the block if it is new."""
        damage = LogDamaged(begin, end, self._store.parent, cause)
        with self._lock:
            if self._damaged[0] != self._epoch:
                self._damaged = self._epoch, {}
            is_new = begin not in self._damaged[1]
            self._damaged[1][begin] = end
        if is_new:
            self._on_damage(damage)
        return damage

    def _gap(self, position: int, gap_end: int, archive: Archive | None) -> StoreError:
        """Return the error for missing rows from `position` up to `gap_end`, and close the
        files."""
        with self._lock:
            self._close()
        if archive is not None and archive.begin <= position < archive.end:
            return StoreUnavailable(
                f"what the stream {archive.stream} keeps from offset {position} on is missing: the"
                f" store in {self._store.parent} is damaged; see with 'penstock store check"
                f" --data-dir {self._store.parent}' what is lost"
            )
        return OffsetOutOfRange(
            f"the offsets {position} to {gap_end - 1} are no longer in the log:"
            " retention has removed them"
        )

    def _refuse_hole(self, position: int, archive: Archive | None) -> None:
        """Raise OffsetOutOfRange if a repair has given up the offset `position`."""
        holes = self._given_up if archive is None else _holes_of(archive, self._given_up)
        for begin, end in holes:
            if begin <= position < end:
                raise given_up_error(begin, end)

    def _archive_of(self, stream: StreamDefinition | None) -> Archive | None:
        if stream is not None:
            for archive in self._archives:
                if archive.is_open and archive.belongs_to(stream.name, stream.topic_filters):
                    return archive
        return None

    def _read_watermark(self) -> Watermark:
        """Read the watermark file.

        Raises:
            StoreNotReady: there is none yet, or it is being written.
            StoreUnavailable: it cannot be read.
        """
        try:
            data = self._watermark.read_bytes()
        except FileNotFoundError as error:
            raise StoreNotReady(f"there is no log in {self._store.parent} yet") from error
        except OSError as error:
            raise StoreUnavailable(f"{self._watermark} cannot be read: {error.strerror}") from error
        if len(data) < NUMBER_LENGTH_BYTES:
            raise StoreNotReady(f"the broker is just setting up {self._store.parent}")
        return Watermark.decode(data)

    def _open_log(self) -> _OpenDatabase:
        if self._handles is not None:
            return self._handles
        if not (self._store / "CURRENT").exists():
            raise StoreNotReady(f"there is no log in {self._store.parent} yet")
        found = find_recyclable_records(self._store)
        if found:
            raise StoreNotReady(f"the log in {self._store} is mended by its broker: {found[0]}")
        options = Options(raw_mode=True)
        options.set_max_open_files(-1)  # a file the broker deletes stays readable while open
        try:
            there = set(Rdict.list_cf(str(self._store)))
            names = [*_COLUMN_FAMILIES, *({PARTS_FAMILY} & there)]
            database = Rdict(
                str(self._store),
                options,
                column_families={name: Options(raw_mode=True) for name in names},
                access_type=AccessType.secondary(str(self._scratch)),
            )
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreNotReady(f"the log in {self._store} cannot be opened: {error}") from error
        handles = _OpenDatabase(
            database,
            database.get_column_family("meta"),
            database.get_column_family("log"),
            database.get_column_family(ARCHIVE_FAMILY),
            database.get_column_family(PARTS_FAMILY) if PARTS_FAMILY in names else None,
        )
        self._epoch = _read_epoch(handles.meta, self._store)
        self._given_up = _read_given_up(handles.meta)
        self._handles = handles
        self._catch_up(handles)
        return handles

    def _catch_up(self, handles: _OpenDatabase) -> None:
        committed_end = self._read_watermark().end
        try:
            handles.database.try_catch_up_with_primary()
            self._seen_end = _end_offset(handles.log, committed_end)
            self._archives = _read_archives(handles)
            lineage = handles.meta.get(LINEAGE)
            self._lineage = () if lineage is None else decode_lineage(lineage)
            self._runs = decode_runs(handles.meta.get(RUNS))
        except Exception as error:  # rocksdict raises plain Exception
            self._close()
            raise StoreNotReady(f"the log in {self._store} cannot be followed: {error}") from error
        self._caught_up_at = time.monotonic()


def _lacks_parts(handles: _OpenDatabase) -> bool:
    """Return whether the store got its first large value after the database was opened."""
    return handles.parts is None and handles.meta.get(PARTS_KEY) is not None


def _read_epoch(meta: Rdict, store: Path) -> str:
    version, epoch = meta.get(FORMAT_KEY), meta.get(b"epoch")
    if epoch is None or version is None:
        raise StoreNotReady(f"the broker is just setting up {store}")
    refuse_format(version)
    return str(epoch.decode("ascii"))


def _read_given_up(meta: Rdict) -> tuple[tuple[int, int], ...]:
    kept: bytes | None = meta.get(GIVEN_UP)
    return () if kept is None else tuple(decode_given_up(kept))


def _read_archives(handles: _OpenDatabase) -> tuple[Archive, ...]:
    found = []
    entries = handles.meta.iter()
    entries.seek(ARCHIVE)
    while entries.valid() and entries.key().startswith(ARCHIVE):
        found.append(decode_archive(entries.value()))
        entries.next()
    raise_if_unreadable(entries)
    return tuple(found)


def _holes_of(archive: Archive, of_the_log: Iterable[tuple[int, int]]) -> _Holes:
    """Return the ranges of offsets that a stream has lost, in its archive and behind it in the
    log."""
    behind = ((max(begin, archive.end), end) for begin, end in of_the_log if end > archive.end)
    return tuple(join_ranges([*archive.given_up, *behind]))


def _within(
    earliest: int, end: int, ranges: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Return the parts of ranges that are between two offsets."""
    cut = ((max(first, earliest), min(last, end)) for first, last in ranges)
    return tuple((first, last) for first, last in cut if first < last)


def _joined(begin: int, end: int, batches: list[pa.RecordBatch]) -> Rows:
    """Return the rows of adjacent batches as one batch."""
    rows = pa.concat_batches(batches)
    assert rows.num_rows == end - begin, "rows of the log follow each other without a gap"
    return Rows(begin, end, rows, pa.arange(begin, end))


def _between(batch: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
    """Return the rows of an archive piece with offsets from `begin` up to `end`, excluded."""
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


def _first_offset(log: Rdict, begin: int) -> int | None:
    """Return the first offset of the log, `begin` if damage hides it; None if it has no chunk."""
    chunks = log.iter()
    chunks.seek_to_first()
    if chunks.valid():
        return decode_key(chunks.key())
    return begin if _is_hidden(chunks) else None


def _end_offset(log: Rdict, committed_end: int) -> int:
    """Return the end of the log; `committed_end`, which is caught up with, if damage hides it."""
    chunks = log.iter()
    chunks.seek_to_last()
    if not chunks.valid():
        return committed_end if _is_hidden(chunks) else 0
    return decode_key(chunks.key()) + summarize_chunk(chunks.value()).rows


def _is_hidden(chunks: RdictIter) -> bool:
    """Return whether an iterator is not valid because of a damaged block.

    Raises:
        StoreUnavailable: the block cannot be read for another reason.
    """
    try:
        raise_if_unreadable(chunks)
    except StoreUnavailable as error:
        if is_damage(error):
            return True
        raise
    return False
