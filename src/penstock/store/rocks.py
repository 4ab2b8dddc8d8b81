"""The file store: RocksDB, one atomic synced write for each commit.

Column families and their keys (numbers are 8 bytes, big-endian, so that they sort):

============= ============================== ===================================
meta          format, epoch, created_at_us, and of the chunks in the log
              log_bytes_appended (by commit), log_bytes_removed (by retain)
log           base offset                    chunk (``store.chunk``)
sessions      client identifier              session (``store.records`` from here)
subscriptions session number, topic filter   subscription
queue         session number, sequence       segment of the message queue
progress      session number                 window, inbound packet ids, queue head
retained      topic                          message
wills         client identifier              will
============= ============================== ===================================

``WriteOptions.sync`` makes RocksDB fdatasync its write-ahead log before ``write``
returns. A batch is one record of that log: after a crash it is there whole or not at all.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from rocksdict import (
    AccessType,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteOptions,
)

from penstock.engine.effects import Commit
from penstock.engine.message import Message
from penstock.engine.records import Progress, Recovered
from penstock.errors import StoreError, StoreFailed, StoreFormatError, StoreLocked
from penstock.store import records
from penstock.store.chunk import decode_chunk, decode_key, encode_key, encode_watermark
from penstock.store.log import chunk_of, messages_of, rehearse

logger = logging.getLogger(__name__)

FORMAT: Final = b"1"
COLUMN_FAMILIES: Final = (
    "meta",
    "log",
    "sessions",
    "subscriptions",
    "queue",
    "progress",
    "retained",
    "wills",
)
STORE_DIRECTORY: Final = "store"
WATERMARK_FILE: Final = "committed"
_APPENDED: Final = b"log_bytes_appended"
_REMOVED: Final = b"log_bytes_removed"
_RETAIN_CHUNKS_MAX: Final = 10_000  # looked at in one call of retain
_WAL_BYTES_MAX: Final = 256 * 1024 * 1024
_DIAGNOSTIC_LOGS_MAX: Final = 4


def new_epoch() -> str:
    """A name for a new incarnation of the log: sortable by time, never given twice."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


@final
class RocksStore:
    """Durable log and state of one broker.

    Args:
        data_dir: created if missing; the database lies in ``store`` beneath it.

    Raises:
        StoreLocked: another process has it open.
        StoreFormatError: it is of another format.
        StoreError: it cannot be opened, for example for lack of permission.
    """

    acknowledged_when = "fsync"

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / STORE_DIRECTORY
        try:
            is_new = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            self._db = _open(path)
            if is_new:  # its name must survive a power cut too
                _sync_directory(data_dir)
                _sync_directory(data_dir.absolute().parent)
        except OSError as error:
            raise StoreError(
                f"the data directory {data_dir} cannot be used: {error.strerror}"
            ) from error
        self._families = {name: self._db.get_column_family(name) for name in COLUMN_FAMILIES}
        self._handles = {name: self._db.get_column_family_handle(name) for name in COLUMN_FAMILIES}
        self._synced = WriteOptions()
        self._synced.sync = True
        try:
            self._epoch = self._identify()
        except StoreError:
            self._close_database()
            raise
        self._end = self._find_end()
        # Sizes are counted, not asked of RocksDB: its estimate shrinks only when it compacts.
        self._log_bytes_appended = self._counter(_APPENDED)
        self._log_bytes_removed = self._counter(_REMOVED)
        self._watermark = _Watermark(data_dir / WATERMARK_FILE)
        self._watermark.set_begin(self._find_begin())
        self._watermark.set(self._end)
        rehearse()

    # -- recovery ----------------------------------------------------------------------

    def recover(self) -> Recovered:
        """Everything that was committed; see ``Store.recover``."""
        recovered = Recovered(self._epoch, self._end)
        for key, value in _items(self._families["sessions"]):
            recovered.sessions.append(records.decode_session(key.decode(), value))
        for key, value in _items(self._families["subscriptions"]):
            recovered.subscriptions.append(
                records.decode_subscription(decode_key(key[:8]), key[8:].decode(), value)
            )
        for key, value in _items(self._families["progress"]):
            number = decode_key(key)
            recovered.progress[number] = records.decode_progress(number, value)
        for key, value in _items(self._families["queue"]):
            number = decode_key(key[:8])
            segment = records.decode_segment(value)
            recovered.queues.setdefault(number, []).extend(segment)
            first, last = segment[0][0], segment[-1][0]
            recovered.segments.setdefault(number, []).append((first, last))
        for _, value in _items(self._families["retained"]):
            recovered.retained.append(records.decode_message(value))
        for key, value in _items(self._families["wills"]):
            recovered.wills[key.decode()] = records.decode_will(value)
        return recovered

    # -- writing -----------------------------------------------------------------------

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` in one atomic step; see ``Store.commit``."""
        batch = WriteBatch(raw_mode=True)
        handles = self._handles
        appended = self._log_bytes_appended
        if commit.messages:
            chunk = chunk_of(commit.messages)
            appended += len(chunk)
            batch.put(encode_key(commit.base_offset), chunk, handles["log"])
            batch.put(_APPENDED, encode_key(appended), handles["meta"])
        self._write_sessions(batch, commit)
        for progress in commit.progress:
            self._write_progress(batch, progress)
        for topic, message in commit.retained:
            if message is None:
                batch.delete(topic.encode(), handles["retained"])
            else:
                batch.put(topic.encode(), records.encode_message(message), handles["retained"])
        for client_id, will in commit.wills:
            if will is None:
                batch.delete(client_id.encode(), handles["wills"])
            else:
                batch.put(client_id.encode(), records.encode_will(will), handles["wills"])
        self._write(batch, self._synced)
        self._log_bytes_appended = appended
        self._end = max(self._end, commit.next_offset)
        self._watermark.set(self._end)

    def _write_sessions(self, batch: WriteBatch, commit: Commit) -> None:
        handles = self._handles
        for client_id, number in commit.ended:
            batch.delete(client_id.encode(), handles["sessions"])
            batch.delete(encode_key(number), handles["progress"])
            begin, end = encode_key(number), encode_key(number + 1)
            batch.delete_range(begin, end, handles["subscriptions"])
            batch.delete_range(begin, end, handles["queue"])
        for session in commit.sessions:
            batch.put(
                session.client_id.encode(), records.encode_session(session), handles["sessions"]
            )
        for kept in commit.subscriptions:
            key = encode_key(kept.number) + kept.topic_filter.encode()
            if kept.subscription is None:
                batch.delete(key, handles["subscriptions"])
            else:
                value = records.encode_subscription(kept.subscription, kept.identifier)
                batch.put(key, value, handles["subscriptions"])

    def _write_progress(self, batch: WriteBatch, progress: Progress) -> None:
        handles = self._handles
        number = encode_key(progress.number)
        batch.put(number, records.encode_progress(progress), handles["progress"])
        for first in progress.finished_segments:
            batch.delete(number + encode_key(first), handles["queue"])
        if progress.segment:
            key = number + encode_key(progress.segment[0][0])
            batch.put(key, records.encode_segment(progress.segment), handles["queue"])

    # -- reading -----------------------------------------------------------------------

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        """Messages by offset; see ``Store.read``."""
        found: dict[int, Message] = {}
        wanted = sorted(set(offsets))
        chunks = self._families["log"].iter()
        at = 0
        while at < len(wanted):
            chunks.seek_for_prev(encode_key(wanted[at]))
            if not chunks.valid():
                _check(chunks)
                at += 1
                continue
            base = decode_key(chunks.key())
            batch = decode_chunk(chunks.value())
            rows: list[int] = []
            while at < len(wanted) and wanted[at] < base + batch.num_rows:
                rows.append(wanted[at] - base)
                at += 1
            if not rows:
                at += 1
                continue
            for message in messages_of(batch, base, rows):
                found[message.offset] = message
        return found

    def retain(self, older_than_us: int, bytes_max: int, keep_from: int) -> int:
        """Remove old chunks; see ``Store.retain``."""
        log = self._families["log"]
        chunks = log.iter()
        chunks.seek_to_first()
        removed = self._log_bytes_removed
        excess_bytes = self._log_bytes_appended - removed - bytes_max
        earliest = first = decode_key(chunks.key()) if chunks.valid() else self._end
        for _ in range(_RETAIN_CHUNKS_MAX):
            if not chunks.valid():
                break
            value = chunks.value()
            batch = decode_chunk(value)
            end = decode_key(chunks.key()) + batch.num_rows
            newest_us = batch.column("received_at")[-1].as_py()
            chunks.next()  # the last chunk stays: it tells where the log ends
            too_old = newest_us < older_than_us
            if not chunks.valid() or end > keep_from or not (too_old or excess_bytes > 0):
                break
            earliest = end
            excess_bytes -= len(value)
            removed += len(value)
        if earliest > first:
            self._watermark.set_begin(earliest)  # first, so that no reader sees half of it gone
            batch_of_deletes = WriteBatch(raw_mode=True)
            handle = self._handles["log"]
            batch_of_deletes.delete_range(encode_key(first), encode_key(earliest), handle)
            batch_of_deletes.put(_REMOVED, encode_key(removed), self._handles["meta"])
            self._write(batch_of_deletes, WriteOptions())
            self._log_bytes_removed = removed
        return earliest

    def _write(self, batch: WriteBatch, options: WriteOptions) -> None:
        try:
            self._db.write(batch, options)
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise StoreFailed(f"the store could not write: {error}") from error

    def close(self) -> None:
        """Let go of the database."""
        self._watermark.close()
        self._close_database()

    def _close_database(self) -> None:
        self._handles.clear()  # each holds the database open, and locked
        for database in (*self._families.values(), self._db):
            try:
                database.close()
            except Exception as error:  # after a failed write RocksDB repeats it here
                logger.warning("the store could not be closed in order: %s", error)

    # -- opening -----------------------------------------------------------------------

    def _identify(self) -> str:
        meta = self._families["meta"]
        kept = meta.get(b"format")
        if kept is None:
            batch = WriteBatch(raw_mode=True)
            epoch: str = new_epoch()
            created_at_us = int(datetime.now(UTC).timestamp() * 1_000_000)
            batch.put(b"epoch", epoch.encode(), self._handles["meta"])
            batch.put(b"created_at_us", str(created_at_us).encode(), self._handles["meta"])
            batch.put(b"format", FORMAT, self._handles["meta"])
            self._db.write(batch, self._synced)
            return epoch
        if kept != FORMAT:
            raise StoreFormatError(
                f"the store has format {kept.decode(errors='replace')}, this version of "
                f"Penstock reads format {FORMAT.decode()}: use the version that wrote it"
            )
        named: bytes | None = meta.get(b"epoch")
        if named is None:
            raise StoreFormatError("the store has a format but no epoch: it is not a whole store")
        return named.decode()

    def _find_begin(self) -> int:
        chunks = self._families["log"].iter()
        chunks.seek_to_first()
        return decode_key(chunks.key()) if chunks.valid() else 0

    def _counter(self, key: bytes) -> int:
        value: bytes | None = self._families["meta"].get(key)
        return 0 if value is None else decode_key(value)

    def _find_end(self) -> int:
        chunks = self._families["log"].iter()
        chunks.seek_to_last()
        if not chunks.valid():
            _check(chunks)
            return 0
        rows: int = decode_chunk(chunks.value()).num_rows
        return decode_key(chunks.key()) + rows


@final
class _Watermark:
    """Where the synced log ends and begins, shared with the stream service by a mapped file.

    A reader of the database's files can see a write before it is synced, and lose it again
    in a power cut; what lies below the watermark cannot be lost. The file itself needs no
    sync: it is set anew at every start.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, 16)
            self._map = mmap.mmap(descriptor, 16)
        finally:
            os.close(descriptor)

    def set(self, end: int) -> None:
        self._map[:8] = encode_watermark(end)

    def set_begin(self, begin: int) -> None:
        self._map[8:] = encode_watermark(begin)

    def close(self) -> None:
        """Let go of the database."""
        self._map.close()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    options.set_keep_log_file_num(_DIAGNOSTIC_LOGS_MAX)
    options.set_compression_type(DBCompressionType.lz4())
    families = {}
    for name in COLUMN_FAMILIES:
        family = Options(raw_mode=True)
        family.set_compression_type(DBCompressionType.lz4())
        families[name] = family
    try:
        return Rdict(
            str(path), options, column_families=families, access_type=AccessType.read_write()
        )
    except Exception as error:  # rocksdict raises bare Exception for every error
        if "lock" in str(error).lower() and "LOCK" in str(error):
            raise StoreLocked(
                f"the store in {path.parent} is in use by another process: stop it, or use "
                "another --data-dir"
            ) from error
        raise StoreError(f"the store in {path.parent} cannot be opened: {error}") from error


def _items(family: Rdict) -> Iterator[tuple[bytes, bytes]]:
    entries = family.iter()
    entries.seek_to_first()
    while entries.valid():
        yield entries.key(), entries.value()
        entries.next()
    _check(entries)


def _check(entries: RdictIter) -> None:
    """An iterator that stopped is at the end, and not at something it could not read."""
    try:
        entries.status()
    except Exception as error:  # rocksdict raises bare Exception for every I/O error
        raise StoreFailed(f"the store could not be read: {error}") from error
