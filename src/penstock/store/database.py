"""Opens RocksDB with Penstock's column families, writes to it, and converts its errors.

Column families and their keys (numbers are 8 bytes, big-endian, so that they sort):

============= ============================== ===================================
meta          format, epoch, lineage,        (``store.identity``)
              created_at_us, commits,
              given_up (by a repair), clock,
              parts (a large value was
              written)
              runs                           (``store.history``)
              log_bytes_appended,            total size of all chunks that commits wrote
              log_bytes_removed              total size of all chunks that ``trim_log`` removed
              "producer/" user 0 name        latest message of a producer (``store.records``)
              "archive/" number              record of an archive (``store.archive``)
              "state/" name                  state of a service, in a cluster
              "cluster/position"             position in the cluster's log (``cluster.view``)
              "cluster/former",              what a recovered store contains, and that it is to
              "cluster/begins"               begin a new history (``cluster.histories``)
log           base offset                    chunk (``store.chunk``)
sessions      client identifier              session (``store.records`` from here)
subscriptions session number, topic filter   subscription
queue         session number, sequence       segment of the message queue
progress      session number                 queue head, next sequence, lanes
              session number, page           page of the window (``engine.session.window``), or of
                                             inbound packet ids (``engine.session.inbound``)
retained      topic                          message
wills         client identifier              will
archive       archive number, base offset    piece (``store.archive``)
parts         family and key of the value,   part of a large value (``store.parts``); a store
              write id, part number          without large values has none
============= ============================== ===================================

A write is durable when RocksDB has synced its write-ahead log (fdatasync), which is requested in a
second call: rocksdict holds the interpreter's lock during a write, with ``WriteOptions.sync`` also
while the disk works, but releases it in ``flush_wal``. So other threads run while the disk works. A
batch is one record of the write-ahead log: after a crash it is there whole or not at all.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

from rocksdict import (
    AccessType,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from penstock.errors import CommitUnknown, StoreError, StoreLocked, StoreUnavailable
from penstock.store.batch import StoreBatch
from penstock.store.diagnosis import corrupt_store, damaged_part
from penstock.store.faults import ReadWriteLock, is_machine_failure, with_remedy
from penstock.store.parts import (
    FAMILIES,
    LARGE_BYTES,
    PARTS_FAMILY,
    Fragments,
    LargeValue,
    full_value,
    new_write_id,
    part_key_prefix,
    total_size_bytes,
)
from penstock.store.paths import path_exists
from penstock.store.recyclable import find_recyclable_records, mend
from penstock.store.watermark import sync_directory
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

STORE_DIRECTORY: Final = "store"
COLUMN_FAMILIES: Final = (
    "meta",
    "log",
    "sessions",
    "subscriptions",
    "queue",
    "progress",
    "retained",
    "wills",
    "archive",
)
ARCHIVE_FAMILY: Final = "archive"

FORMAT: Final = b"3"
"""The format of all released versions."""
FORMAT_KEY: Final = b"format"
CLUSTER_POSITION_KEY: Final = b"cluster/position"
"""The key of the position in the cluster's log in a store that is a view of it. The log's records
never contain the key."""
PARTS_KEY: Final = b"parts"
"""The key in ``meta`` that exists from the first large value on, so that other processes that read
the store (``store.secondary``) know to open the column family of parts."""

PRODUCERS: Final = b"producer/"
"""Prefix of the keys of producers in ``meta``, a column family that every store has."""

_WAL_BYTES_MAX: Final = 256 * 1024 * 1024
_DIAGNOSTIC_LOGS_MAX: Final = 4
_PAUSE_S: Final = 0.0002  # after each part, for other threads to take the interpreter's lock
_FULL_PAUSE_S: Final = 0.005  # between attempts while RocksDB flushes memtables to make room
_FULL_S_MAX: Final = 30.0  # without room for this long the write of a part fails
_ROOM_BYTES: Final = 262_144  # larger batches wait for room first: they fill RocksDB's memory
_ROOM_S_MAX: Final = 2.0
_UNUSED_KEY: Final = b"\x00"
_WRITE_STALL: Final = "incomplete"  # in rocksdict's error where a write would have to wait
_TABLES_OF_A_THREAD: Final = 64
_OPENING_THREADS_MAX: Final = 16


class Database:
    """An open RocksDB database.

    Attributes:
        rocks: rocksdict's object of the database.
        data_dir: the data directory; the database is in ``store`` in it.
        is_closed: whether ``close`` was called.
        families: the column families by name, for reading.
        handles: handles of the column families by name, for batches.
        is_replicated: whether each write is in the replicated log of a cluster, too.
    """

    is_replicated = False

    def __init__(self, database: Rdict, data_dir: Path, names: Iterable[str]) -> None:
        self.rocks = database
        self.data_dir = data_dir
        self.is_closed = False
        self.families: dict[str, Rdict] = {}
        self.handles: dict[str, ColumnFamily] = {}
        for name in names:
            self._use_family(name)
        self.usage_lock = ReadWriteLock()
        """Other threads acquire it for reading while they use the database; ``close`` acquires it
        for writing. An object of rocksdict cannot be closed while a thread uses it, and the
        database would stay locked."""
        self._making_parts = threading.Lock()  # the committer and retention write them
        self._options = WriteOptions()
        self._no_wait_options = WriteOptions()
        self._no_wait_options.no_slowdown = True

    def rocks_batch(self) -> WriteBatch:
        """Return an empty batch of RocksDB, for ``write_here``."""
        return WriteBatch(raw_mode=True)

    def new_batch(self) -> StoreBatch:
        """Return an empty batch."""
        return self.rocks_batch()

    def write(self, batch: StoreBatch, sync: bool = True) -> None:
        """Write ``batch`` in one atomic step.

        Args:
            batch: a batch that ``new_batch`` of this database made.
            sync: whether the write is synced before this returns.

        Raises:
            CommitUnknown: the write failed; the batch may be in the write-ahead log and come back
                when the database is opened again.
        """
        assert isinstance(batch, WriteBatch), "new_batch of this database made it"
        self.write_here(batch, sync)

    def settle(self) -> None:
        """Resolve earlier writes whose outcome is unknown; a database outside a cluster has none.

        In a cluster, records that such writes appended to the replicated log are applied here.

        Raises:
            CommitUnknown: the replicated log does not answer now.
        """

    def write_here(self, batch: WriteBatch, sync: bool) -> None:
        """Write ``batch`` to this RocksDB only, and not to a replicated log; otherwise as
        ``write``."""
        try:
            if batch.size_in_bytes() > _ROOM_BYTES:
                self._wait_for_room(_ROOM_S_MAX)
            self.rocks.write(batch, self._options)
            if sync:
                self.rocks.flush_wal(True)
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise self._not_written(error) from None

    def sync(self) -> bool:
        """Sync earlier writes that were made without a sync. Safe from any thread.

        Returns:
            False if the database is closed.

        Raises:
            CommitUnknown: the writes could not be synced.
        """
        with self.usage_lock.shared():
            if self.is_closed:
                return False
            try:
                self.rocks.flush_wal(True)
            except Exception as error:  # rocksdict raises bare Exception for every I/O error
                raise self._not_written(error) from None
        return True

    def write_parts(self, large: LargeValue) -> None:
        """Write the parts of a large value without a sync; the batch with its head syncs them.

        RocksDB gets one part at a time, and this method never waits for it while holding the
        interpreter's lock, so other threads run meanwhile. At the end it waits until RocksDB has
        room for the batch with the head, so that writing that batch does not block either.

        Raises:
            CommitUnknown: not all parts could be written; without a head they stay invisible.
        """
        try:
            parts = self._parts_handle()
            for key, part in large.parts():
                refusal = self._wait_for_room(_FULL_S_MAX, key, part, parts)
                if refusal is not None:
                    raise refusal
                time.sleep(_PAUSE_S)
            self._wait_for_room(_ROOM_S_MAX)
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise self._not_written(error) from None

    def _wait_for_room(
        self,
        wait_s: float,
        key: bytes = _UNUSED_KEY,
        part: bytes | None = None,
        family: ColumnFamily | None = None,
    ) -> Exception | None:
        """Wait, without the interpreter's lock, until RocksDB has room in memory; write a part.

        RocksDB stops writes while too many full memtables wait to be flushed. A write with
        ``no_slowdown`` is refused then, and makes RocksDB flush. While RocksDB only slows writes
        down, a write as small as this one is seldom refused.

        Args:
            wait_s: the longest wait, in seconds.
            key: the key of the part.
            part: the bytes of the part; None to only delete an unused key.
            family: the column family of the part; None for ``meta``.

        Returns:
            None once the write succeeded, or RocksDB's error if there was no room in that time.
        """
        ends_s = time.monotonic() + wait_s
        while True:
            batch = WriteBatch(raw_mode=True)
            if part is None:
                batch.delete(key, family or self.handles["meta"])
            else:
                batch.put(key, part, family or self.handles["meta"])
            try:
                self.rocks.write(batch, self._no_wait_options)
            except Exception as error:  # rocksdict raises bare Exception for every error
                if _WRITE_STALL not in str(error).lower():
                    raise
                if time.monotonic() > ends_s:
                    return error
                time.sleep(_FULL_PAUSE_S)
            else:
                return None

    def _parts_handle(self) -> ColumnFamily:
        """Return the handle of the column family of parts; create it first if there is none, and
        record that under ``PARTS_KEY``."""
        with self._making_parts:
            self.make_parts_family()
            if self.families["meta"].get(PARTS_KEY) is None:
                batch = self.new_batch()
                batch.put(PARTS_KEY, b"1", self.handles["meta"])
                self.write(batch)
        return self.handles[PARTS_FAMILY]

    def make_parts_family(self) -> None:
        """Create the column family of parts if there is none."""
        if not self.has_parts:
            self.rocks.create_column_family(PARTS_FAMILY, _family_options())
            self._use_family(PARTS_FAMILY)

    @property
    def has_parts(self) -> bool:
        """Return whether the column family of parts exists: a large value was written once."""
        return PARTS_FAMILY in self.families

    def _use_family(self, name: str) -> None:
        self.handles[name] = self.rocks.get_column_family_handle(name)
        self.families[name] = self.rocks.get_column_family(name)

    def _not_written(self, error: Exception) -> CommitUnknown:
        logger.debug("RocksDB could not write: %s", error)
        return CommitUnknown(f"the store could not write: {with_remedy(error, self.data_dir)}")

    def put(
        self, batch: StoreBatch, family: str, key: bytes, fragments: Fragments, note: bytes = b""
    ) -> None:
        """Add a value to ``batch``; if it is large, write its parts now and add its head.

        Args:
            batch: the batch that writes the value or its head.
            family: name of the column family.
            key: key of the value.
            fragments: the bytes of the value.
            note: the note for the head of a large value.

        Raises:
            CommitUnknown: the parts could not be written.
        """
        if total_size_bytes(fragments) < LARGE_BYTES or family not in FAMILIES:
            batch.put(key, b"".join(fragments), self.handles[family])
            return
        large = LargeValue(family, key, fragments, new_write_id(), note)
        self.write_parts(large)
        batch.put(key, large.head, self.handles[family])

    def delete_range(self, batch: StoreBatch, family: str, begin: bytes, end: bytes) -> None:
        """Add to ``batch`` the deletion of a range of keys and of the parts of large values there.

        Args:
            batch: the batch that deletes the range.
            family: name of a column family that may have large values.
            begin: the first key; all keys of the family have its length.
            end: the end of the range, excluded.
        """
        batch.delete_range(begin, end, self.handles[family])
        if self.has_parts:
            parts = self.handles[PARTS_FAMILY]
            batch.delete_range(part_key_prefix(family, begin), part_key_prefix(family, end), parts)

    def remove_parts(self, family: str, begin: bytes, end: bytes) -> None:
        """Remove parts that a crash or a failed write has left without a head.

        Args:
            family: column family of the values.
            begin: the first key of a range in which no value has parts.
            end: the end of the range, excluded.

        Raises:
            StoreUnavailable: the parts cannot be read.
            CommitUnknown: the parts could not be removed.
        """
        if not self.has_parts:
            return
        first, last = part_key_prefix(family, begin), part_key_prefix(family, end)
        parts = self.families[PARTS_FAMILY].iter()
        parts.seek(first)
        if not parts.valid():
            raise_if_unreadable(parts)
        elif parts.key() < last:
            batch = self.new_batch()
            batch.delete_range(first, last, self.handles[PARTS_FAMILY])
            self.write(batch)

    def full_value(self, family: str, key: bytes, value: bytes) -> bytes:
        """Return the whole value under ``key``.

        Args:
            family: column family of the key.
            key: the key.
            value: the bytes stored under it: the whole value, or the head of a large one.

        Raises:
            StoreFormatError: parts of the value are missing.
            StoreUnavailable: parts cannot be read.
        """
        return full_value(family, key, value, self.families.get(PARTS_FAMILY))

    def items(self, family: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with ``prefix`` and their values, in the order of the keys.

        Keys that are added at the end meanwhile may be among them. The values are not put in
        RocksDB's cache, because a whole family is read only once.

        Args:
            family: name of the column family; one that does not exist yields nothing.
            prefix: a prefix of keys; empty for all keys.

        Raises:
            StoreUnavailable: not all of the values can be read.
        """
        if family not in self.families:
            return
        once = ReadOptions()
        once.fill_cache(False)  # type: ignore[call-arg]  # rocksdict declares it without
        seek = prefix
        found = self.families[family].items(from_key=prefix or None, read_opt=once)
        item: tuple[bytes, bytes] | None = None
        for item in cast("Iterator[tuple[bytes, bytes]]", found):
            if prefix and not item[0].startswith(prefix):
                return
            yield item
        if item is not None:
            seek = item[0] + b"\x00"
        # rocksdict's fast iterator ends silently at a read error; a second one reports the error.
        entries = self.families[family].iter(once)
        entries.seek(seek)
        while entries.valid():
            key = entries.key()
            if not key.startswith(prefix):
                return
            yield key, entries.value()
            entries.next()
        raise_if_unreadable(entries)

    def close(self) -> None:
        """Close the database and release its lock, after a running sync or checkpoint has ended."""
        with self.usage_lock.exclusive():
            self._close()

    def _close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.handles.clear()  # each holds the database open, and locked
        logged_error = ""
        for database in (*self.families.values(), self.rocks):
            try:
                database.close()
            except Exception as error:  # after a failed write RocksDB repeats it here
                if str(error) != logged_error:
                    logged_error = str(error)
                    logger.warning("the store could not be closed in order: %s", error)


def open_database(data_dir: Path) -> Database:
    """Open the database below ``data_dir`` for writing, or create it, and lock it.

    Raises:
        StoreError: it cannot be opened; ``open_database_as`` names the cases.
    """
    return open_database_as(Database, data_dir)


_Kind = TypeVar("_Kind", bound=Database)


def open_database_as(kind: type[_Kind], data_dir: Path) -> _Kind:
    """Open the database below ``data_dir`` for writing, or create it, and lock it.

    Args:
        kind: the class of the returned object.
        data_dir: the data directory, which is created if missing.

    Raises:
        StoreLocked: another process has the database open.
        StoreUnavailable: the database cannot be opened now: the disk is full, or fails.
        StoreCorrupt: a file of the database is damaged or missing.
        StoreError: the database cannot be opened, for example for lack of permission.
    """
    path = data_dir / STORE_DIRECTORY
    try:
        make_directory(path.absolute())
        _mend(data_dir)
        names = [*COLUMN_FAMILIES, *({PARTS_FAMILY} & _existing_families(path))]
        database = _open(path, AccessType.read_write(), names)
    except OSError as error:
        if is_machine_failure(error):
            raise _not_opened(path, error) from error
        raise StoreError(
            f"the directory {data_dir} cannot be used: {error.strerror}; choose one that this user"
            " may write, or make"
        ) from error
    return kind(database, data_dir, names)


def make_directory(path: Path) -> None:
    """Create ``path`` and its missing parents, and sync each name before the next is created.

    The name of an existing directory is synced too: a start that created it may have been killed
    before the sync.
    """
    exists = path.is_dir()
    if not exists:
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
    try:
        sync_directory(path.parent)
    except PermissionError:
        if not exists:
            raise


def open_for_reading(data_dir: Path) -> Database:
    """Open the database below ``data_dir`` read-only: without a lock, and without changing files.

    The records of the write-ahead log are read into memory and not written to tables. Only records
    that RocksDB would read endlessly are overwritten before (``store.recyclable``).

    Raises:
        StoreError: the database cannot be opened, or another process is changing it.
    """
    path = data_dir / STORE_DIRECTORY
    _mend(data_dir)
    there = _existing_families(path)
    names = [*COLUMN_FAMILIES, *({PARTS_FAMILY} & there)]
    return Database(_open(path, AccessType.read_only(), names), data_dir, names)


def has_database(data_dir: Path) -> bool:
    """Return whether there is a database below ``data_dir``.

    Raises:
        StoreError: the directory may not be entered.
    """
    return path_exists(data_dir / STORE_DIRECTORY / "CURRENT")


@contextmanager
def lock_out_brokers(data_dir: Path) -> Iterator[None]:
    """Lock the database below ``data_dir`` for the ``with`` block, so that no broker opens it.

    Raises:
        StoreLocked: another process has the database open.
    """
    try:
        lock = (data_dir / STORE_DIRECTORY / "LOCK").open("r+b")
    except OSError:  # no broker can have it open: a backup, or a read-only file system
        yield
        return
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind that RocksDB takes
        except OSError as error:
            raise _in_use(data_dir) from error
        yield


def raise_if_unreadable(entries: RdictIter) -> None:
    """Raise if an iterator stopped at a read error, and not at the end of its keys.

    Raises:
        StoreUnavailable: the iterator could not read a block.
    """
    try:
        entries.status()
    except Exception as error:  # rocksdict raises bare Exception for every I/O error
        raise StoreUnavailable(f"the store could not be read: {error}") from error


def _mend(data_dir: Path) -> None:
    """Overwrite the records that RocksDB would read endlessly (``store.recyclable``).

    The lock is taken only where there is such a record. If this process has the database open,
    taking and releasing its lock here would lose the lock (POSIX locks belong to the process).

    Raises:
        StoreLocked: another process has the database open.
        StoreUnavailable: the records cannot be overwritten.
    """
    store = data_dir / STORE_DIRECTORY
    if not find_recyclable_records(store):
        return
    with lock_out_brokers(data_dir):
        found = find_recyclable_records(store)
        try:
            mend(found)
        except OSError as error:
            raise StoreUnavailable(
                f"the store in {data_dir} cannot be mended: {with_remedy(error, data_dir)}"
            ) from error
    for each in found:
        logger.warning("the store in %s is mended: %s; it is %d now", data_dir, each, each.twin)


def _existing_families(path: Path) -> set[str]:
    if not path_exists(path / "CURRENT"):
        return set()
    try:
        return set(Rdict.list_cf(str(path)))
    except Exception as error:  # rocksdict raises bare Exception for every error
        raise _not_opened(path, error) from error


def _family_options() -> Options:
    family = Options(raw_mode=True)
    family.set_compression_type(DBCompressionType.lz4())
    return family


def _open(path: Path, access: AccessType, names: Iterable[str]) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    options.set_recycle_log_file_num(0)  # ``store.recyclable`` relies on it
    options.set_keep_log_file_num(_DIAGNOSTIC_LOGS_MAX)
    options.set_max_file_opening_threads(_opening_threads(path))
    options.set_compression_type(DBCompressionType.lz4())
    families = {name: _family_options() for name in names}
    try:
        return Rdict(str(path), options, column_families=families, access_type=access)
    except Exception as error:  # rocksdict raises bare Exception for every error
        raise _not_opened(path, error) from error


def _opening_threads(path: Path) -> int:
    """Return the number of threads with which RocksDB opens the tables in ``path``.

    RocksDB starts them for every column family, 16 by default, however few tables there are:
    starting these 135 threads took half of the time that opening a small store takes.
    """
    tables = sum(1 for _ in path.glob("*.sst"))
    return min(1 + tables // _TABLES_OF_A_THREAD, _OPENING_THREADS_MAX)


def _not_opened(path: Path, error: Exception) -> StoreError:
    if "lock" in str(error).lower() and "LOCK" in str(error):
        return _in_use(path.parent)
    part = damaged_part(error)
    if part is not None:
        return corrupt_store(path.parent, part)
    failed = StoreUnavailable if is_machine_failure(error) else StoreError
    return failed(f"the store in {path.parent} cannot be opened: {with_remedy(error, path.parent)}")


def _in_use(data_dir: Path) -> StoreLocked:
    return StoreLocked(
        f"the store in {data_dir} is in use by another process: stop it, or use another directory"
    )
