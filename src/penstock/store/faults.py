"""Explains faults of the disk below a running broker, and finds out when they are over.

RocksDB's errors are texts. A remedy is added to each, so that one line of the log says what
happened and what to do::

    No space left on device: free space on the file system of /var/lib/penstock

After a failed write RocksDB refuses further writes until it is opened again. Opening writes the
content of the write-ahead logs to tables; an attempt that fails leaves files behind, and nothing
can be read meanwhile. So ``probe`` first tests whether there is room for these tables, with a file
that is allocated and synced: that fails on a quota, a limit on file sizes or a read-only disk, too,
which the free space that the system reports would hide.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from penstock.errors import StoreUnavailable

PROBE_FILE: Final = "probe"
SPARE_BYTES: Final = 1_048_576
"""Room that ``probe`` demands beside the size of the write-ahead logs: for other files that opening
writes, and for a commit."""

DISK_FIRST: Final = (
    "look into the kernel's log for what is wrong with the disk, and copy the data directory to"
    " one that works"
)
"""The remedy for a disk that fails, before any repair."""

_DISK_FAILURE: Final = "Input/output error"
_REMEDIES: Final = (
    ("No space left on device", "free space on the file system of {data_dir}"),
    ("Disk quota exceeded", "raise the disk quota of the broker's user or remove files of theirs"),
    ("Read-only file system", "mount the file system of {data_dir} for writing"),
    ("Too many open files", "raise the limit of open files (LimitNOFILE=, ulimit -n)"),
    ("File too large", "raise the limit on the size of files (LimitFSIZE=, ulimit -f)"),
    ("Permission denied", "let the broker's user write to {data_dir}"),
    (_DISK_FAILURE, "look into the kernel's log for what is wrong with the disk"),
    ("in use by another process", "stop that process"),
    ("Corruption", "stop the broker and run 'penstock store check --data-dir {data_dir}'"),
)
_BY_SETTINGS: Final = ("Permission denied", "in use by another process")
"""Errors that a change of settings solves; all others are faults of the machine, and may pass."""
_UNKNOWN: Final = "look at the disk and the permissions of {data_dir}"


def with_remedy(error: object, data_dir: Path) -> str:
    """Return a short text of ``error``, a colon and what the operator can do about it."""
    text = str(error)
    for symptom, remedy in _REMEDIES:
        if symptom in text:
            return f"{symptom}: {remedy.format(data_dir=data_dir)}"
    return f"{text}: {_UNKNOWN.format(data_dir=data_dir)}"


def is_disk_failure(error: object) -> bool:
    """Return whether the disk itself failed a call (EIO)."""
    return _DISK_FAILURE in str(error)


def is_machine_failure(error: object) -> bool:
    """Return whether ``error`` is a fault of the machine, such as a full disk, and not of a
    setting.

    After a fault of the machine a later attempt may succeed; a service manager tells the two apart
    by the exit code.
    """
    text = str(error)
    is_known = any(symptom in text for symptom, _ in _REMEDIES)
    return is_known and not any(symptom in text for symptom in _BY_SETTINGS)


def probe(data_dir: Path, database: Path) -> None:
    """Raise unless the disk has room to open the database again and write to it.

    Args:
        data_dir: the data directory; a temporary file is written to it.
        database: the directory of the database in it.

    Raises:
        StoreUnavailable: a write would fail now; the message says why, and what to do.
    """
    path = data_dir / PROBE_FILE
    needed_bytes = SPARE_BYTES
    try:
        for log in database.glob("*.log"):
            needed_bytes += log.stat().st_size
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, needed_bytes)
            os.write(descriptor, bytes(4096))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreUnavailable(
            f"the store cannot write: {with_remedy(error.strerror, data_dir)}; it goes on by itself"
            f" when it can write {-(-needed_bytes // 1_048_576)} MiB"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


@final
class ReadWriteLock:
    """A readers-writer lock: held by many threads that use an object, or by one that replaces it.

    A writer waits until all readers have finished; new readers wait for the writer.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._has_writer = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Acquire the lock for reading, together with other readers."""
        with self._changed:
            while self._has_writer:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Acquire the lock for writing, alone."""
        with self._changed:
            while self._has_writer:
                self._changed.wait()
            self._has_writer = True
            while self._readers:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                assert self._readers == 0, "a writer holds the lock alone"
                self._has_writer = False
                self._changed.notify_all()
