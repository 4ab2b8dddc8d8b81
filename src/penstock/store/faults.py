"""Faults of the disk below a running broker: explains them, and finds out when they are over.

RocksDB's errors are texts. Here a remedy is added to each, so that one line of the log says what
happened and what to do::

    No space left on device: free space on the file system of /var/lib/penstock

After a failed write RocksDB refuses every further one until it is opened anew. Opening it writes
what its write-ahead logs hold to tables, and an attempt that fails leaves files behind and a
database that cannot be read meanwhile. So ``probe`` tries first whether there is room for all of
that, by a file that is really allocated and synced: a quota, a limit on file sizes and a disk that
is read-only fail there, too, while the free space that the system reports would hide them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from penstock.errors import StoreFailed

PROBE_FILE: Final = "probe"
SPARE_BYTES: Final = 1_048_576  # beside the write-ahead logs: for what opening writes, and a commit

_REMEDIES: Final = (
    ("No space left on device", "free space on the file system of {data_dir}"),
    ("Disk quota exceeded", "raise the disk quota of the broker's user or remove files of theirs"),
    ("Read-only file system", "mount the file system of {data_dir} for writing"),
    ("Too many open files", "raise the limit of open files (LimitNOFILE=, ulimit -n)"),
    ("File too large", "raise the limit on the size of files (LimitFSIZE=, ulimit -f)"),
    ("Permission denied", "let the broker's user write to {data_dir}"),
    ("Input/output error", "look into the kernel's log for what is wrong with the disk"),
    ("in use by another process", "stop that process"),
    ("Corruption", "stop the broker and run 'penstock store check --data-dir {data_dir}'"),
)
_BY_SETTINGS: Final = ("Permission denied", "in use by another process")
"""Errors that other settings avoid; all others are the machine's, and may end by themselves."""
_UNKNOWN: Final = "look at the disk and the permissions of {data_dir}"


def with_remedy(error: object, data_dir: Path) -> str:
    """Return ``error`` in short, and what the operator can do about it."""
    text = str(error)
    for symptom, remedy in _REMEDIES:
        if symptom in text:
            return f"{symptom}: {remedy.format(data_dir=data_dir)}"
    return f"{text}: {_UNKNOWN.format(data_dir=data_dir)}"


def is_machine_failure(error: object) -> bool:
    """Return whether ``error`` is the machine's fault (its disk is full), and not a setting's.

    What failed because of the machine may work later; a service manager tells the two apart by the
    exit code.
    """
    text = str(error)
    is_known = any(symptom in text for symptom, _ in _REMEDIES)
    return is_known and not any(symptom in text for symptom in _BY_SETTINGS)


def probe(data_dir: Path, database: Path) -> None:
    """Raise unless the ``database`` below ``data_dir`` could be opened and written to now.

    Raises:
        StoreFailed: not now; it says why, and what to do.
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
        raise StoreFailed(
            f"the store cannot write: {with_remedy(error.strerror, data_dir)}; it goes on by itself"
            f" when it can write {-(-needed_bytes // 1_048_576)} MiB"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


@final
class ReadWriteLock:
    """A readers-writer lock: many threads may use what it guards, or one may replace it.

    A writer waits until all readers have finished; new readers wait for the writer.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._replacing = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Acquire the lock for reading, together with other readers."""
        with self._changed:
            while self._replacing:
                self._changed.wait()
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Acquire the lock for writing, alone."""
        with self._changed:
            while self._replacing:
                self._changed.wait()
            self._replacing = True
            while self._users:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                assert self._users == 0, "nobody uses the thing while it is replaced"
                self._replacing = False
                self._changed.notify_all()
