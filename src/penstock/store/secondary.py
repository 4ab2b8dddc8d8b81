"""Reading the log from another process, without holding up the one that writes it.

What it is. `LogFollower` opens the broker's RocksDB as a *secondary*: it reads the same files,
takes no lock, and is never waited for. `catch_up` lets it see what was written since.

What is visible. A secondary reads bytes the broker has written but not yet synced; a power cut
would take them back. So nothing at or above the *committed watermark* is ever shown
(`store.watermark`), the exclusive end of what is known to be on disk, moved by the broker after
each synced commit::

    0 ... earliest ─────────────── chunks ───────────────▶ end │ written, not yet synced
          (retention deletes whole chunks in front)            └ committed watermark

Where the log begins. After retention a secondary may go on showing chunks that are deleted: it
keeps what it read from the write-ahead log and does not let a deletion that has meanwhile reached a
table file hide it. So the broker says beside the watermark where the log begins, and nothing below
is shown. A follower that still meets a gap opens the log anew, which mends its view.

Holes. What a repair has given up (`store.repair`) is written down beside the log. Such offsets are
told as lost, and never passed over.

States::

    closed ──open works──▶ open ──catching up fails, or a gap──▶ closed (the next call opens)

The file is read anew each time rather than mapped: a broker that replaces it, or a data directory
that appears later, needs no special case, and one read costs 10 µs.

Threads. Iterators and `catch_up` may run in parallel; opening and catching up hold a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict, RdictIter

from penstock.errors import OffsetOutOfRange, StoreError, StoreFailed, StoreFormatError
from penstock.store.chunk import decode_chunk, decode_key, encode_key
from penstock.store.database import check
from penstock.store.faults import with_remedy
from penstock.store.identity import GIVEN_UP, decode_given_up
from penstock.store.watermark import NUMBER_LENGTH_BYTES, WATERMARK_FILE, Committed

FORMAT: Final = "1"
"""Format of the log that this module reads (`meta`: `format`)."""

CATCH_UP_AGE_S_MAX: Final = 1.0
"""An idle follower looks for chunks removed by retention at least this often."""

_COLUMN_FAMILIES: Final = ("meta", "log")


class StoreNotReady(StoreError):
    """The log is not there yet, or is being opened by the broker: try again soon."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What the log holds, committed: offsets from `earliest` up to and without `end`."""

    epoch: str
    earliest: int
    end: int
    given_up: tuple[tuple[int, int], ...] = ()
    """Offsets in between that a repair has given up, each without its end; ascending."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of the log; the first has the offset `base`."""

    base: int
    batch: pa.RecordBatch

    @property
    def end(self) -> int:
        """Offset after the last row."""
        return self.base + int(self.batch.num_rows)


class LogFollower:
    """A read-only view of the log below `data_dir`, bounded by the committed watermark."""

    def __init__(self, data_dir: Path) -> None:
        self._store = data_dir / "store"
        self._watermark = data_dir / WATERMARK_FILE
        self._scratch = data_dir / "secondary"
        self._lock = threading.Lock()
        self._database: Rdict | None = None
        self._log: Rdict | None = None
        self._epoch = ""
        self._given_up: tuple[tuple[int, int], ...] = ()
        self._seen_end = 0
        self._caught_up_at = 0.0  # monotonic seconds

    def extent(self) -> Extent:
        """What is committed now. Catches up with the broker only when there is something new.

        Raises:
            StoreNotReady: no log to read yet.
            StoreFailed: the log cannot be read.
        """
        committed = self._read_watermark()
        watermark, begin = committed.end, committed.begin
        with self._lock:
            if committed.epoch not in ("", self._epoch):
                self._close()  # another log was put in its place: by a repair, or a restore
            log = self._open_log()
            stale = time.monotonic() - self._caught_up_at > CATCH_UP_AGE_S_MAX
            if watermark > self._seen_end or stale:
                self._catch_up(log)
            end = min(watermark, self._seen_end) if self._seen_end else 0
            earliest = _first_offset(log)
            epoch, holes = self._epoch, self._given_up
        if earliest is None:  # retention took everything there was
            return Extent(epoch, watermark, watermark)
        earliest = min(max(earliest, begin), end)
        lost = tuple(hole for hole in holes if earliest <= hole[0] and hole[1] <= end)
        return Extent(epoch, earliest, end, lost)

    def rows(self, start: int, end: int) -> Iterator[Rows]:
        """The rows from `start` up to and without `end`, chunk by chunk, in order of offset.

        `end` must not exceed the `end` of an `extent` seen before. One RocksDB iterator lives
        as long as the generator, and keeps the files it reads from: do not hold it for long.

        Raises:
            OffsetOutOfRange: retention has removed rows of the range, or a repair gave them up.
            StoreFailed: they are there and cannot be read.
        """
        with self._lock:
            log = self._open_log()
        chunks = log.iter()
        chunks.seek_for_prev(encode_key(start))
        if not chunks.valid():
            self._refuse_unreadable(chunks)
            chunks.seek(encode_key(start))
        position = start
        while position < end and chunks.valid():
            base = decode_key(chunks.key())
            batch = decode_chunk(chunks.value())
            chunks.next()
            if base + batch.num_rows <= position:
                continue
            if base > position:
                raise self._gap(position, base)
            first = position - base
            rows = batch.slice(first, min(batch.num_rows, end - base) - first)
            position += rows.num_rows
            yield Rows(base + first, rows)
        if position < end:
            self._refuse_unreadable(chunks)
            raise self._gap(position, end)

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        """Drop the handles; the files are closed when the last iterator over them is gone."""
        self._log = self._database = None
        self._seen_end = 0

    def _refuse_unreadable(self, chunks: RdictIter) -> None:
        """An iterator that stopped is at the end, and not at something it could not read."""
        try:
            check(chunks)
        except StoreFailed as error:
            with self._lock:
                self._close()
            why = with_remedy(error.__cause__ or error, self._store.parent)
            raise StoreFailed(f"the log cannot be read: {why}") from error

    def _gap(self, position: int, found: int) -> StoreError:
        """What to raise when the rows from `position` up to `found` are not there."""
        for begin, end in self._given_up:
            if begin <= position < end:
                return given_up(begin, end)
        with self._lock:
            self._close()
        return OffsetOutOfRange(
            f"the offsets {position} to {found - 1} are no longer in the log:"
            " retention has removed them"
        )

    def _read_watermark(self) -> Committed:
        """Where what may be shown begins and ends, and of which log."""
        try:
            data = self._watermark.read_bytes()
        except FileNotFoundError as error:
            raise StoreNotReady(f"there is no log in {self._store.parent} yet") from error
        except OSError as error:
            raise StoreFailed(f"{self._watermark} cannot be read: {error.strerror}") from error
        if len(data) < NUMBER_LENGTH_BYTES:
            raise StoreNotReady(f"the broker is just setting up {self._store.parent}")
        return Committed.decode(data)

    def _open_log(self) -> Rdict:
        if self._log is not None:
            return self._log
        if not (self._store / "CURRENT").exists():
            raise StoreNotReady(f"there is no log in {self._store.parent} yet")
        options = Options(raw_mode=True)
        options.set_max_open_files(-1)  # a file the broker deletes stays readable while open
        try:
            database = Rdict(
                str(self._store),
                options,
                column_families={name: Options(raw_mode=True) for name in _COLUMN_FAMILIES},
                access_type=AccessType.secondary(str(self._scratch)),
            )
        except Exception as error:  # rocksdict raises plain Exception
            raise StoreNotReady(f"the log in {self._store} cannot be opened: {error}") from error
        self._database = database
        self._epoch = _read_epoch(database, self._store)
        self._given_up = _read_given_up(database)
        self._log = database.get_column_family("log")
        self._catch_up(self._log)
        return self._log

    def _catch_up(self, log: Rdict) -> None:
        assert self._database is not None
        try:
            self._database.try_catch_up_with_primary()
            self._seen_end = _end_offset(log)
        except Exception as error:  # rocksdict raises plain Exception
            self._close()
            raise StoreNotReady(f"the log in {self._store} cannot be followed: {error}") from error
        self._caught_up_at = time.monotonic()


def _read_epoch(database: Rdict, store: Path) -> str:
    meta = database.get_column_family("meta")
    version, epoch = meta.get(b"format"), meta.get(b"epoch")
    if epoch is None or version is None:
        raise StoreNotReady(f"the broker is just setting up {store}")
    if version.decode() != FORMAT:
        raise StoreFormatError(
            f"the log in {store} has format {version.decode()!r}; this version reads {FORMAT!r}"
        )
    return str(epoch.decode("ascii"))


def _read_given_up(database: Rdict) -> tuple[tuple[int, int], ...]:
    kept: bytes | None = database.get_column_family("meta").get(GIVEN_UP)
    return () if kept is None else tuple(decode_given_up(kept))


def given_up(begin: int, end: int) -> OffsetOutOfRange:
    """What to raise where a repair has given up the offsets from `begin` up to `end`."""
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
    return decode_key(chunks.key()) + int(decode_chunk(chunks.value()).num_rows)
