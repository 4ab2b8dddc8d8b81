"""The broker whose disk is recorded: ``penstock serve`` with small tables and telling maps.

What differs from the product, so that little load shows much: RocksDB's memory tables and logs are
small, so that it writes tables, compacts and changes its write-ahead log every few commits;
retention runs every fifth of a second. What is large is small, too: a chunk of two messages and
retained messages are kept in parts (``store.parts``). The stream service, which only reads, is not
started, though everything is in a stream that is kept for ever. And each write to a mapped page is
announced by a system call to a shadow file, just before, for strace sees none in it
(``tests/support/disk_calls.py``).

``RECORDED_FAULT`` breaks it in one way, so that a test can show that the power cut finds it:

===================== ==================================================
``unsynced``          commits are not synced
``watermark-first``   the watermark moves before the commit it counts
===================== ==================================================
"""

import mmap
import os
from pathlib import Path
from typing import Any, Final, SupportsIndex

from rocksdict import Options

from penstock.cli.main import main
from penstock.engine.batch.commit import Commit
from penstock.services import retention
from penstock.services.child_process import ChildProcess
from penstock.store import database, large_retained, parts, rocks, watermark
from penstock.store.batch import StoreBatch
from penstock.store.database import Database
from penstock.store.rocks import RocksStore

MAPPED_SUFFIX: Final = ".mapped"  # that of tests/support/disk_calls.py
_TABLE_BYTES: Final = 64 * 1024
_LOGS_BYTES_MAX: Final = 256 * 1024
_RETENTION_INTERVAL_S: Final = 0.2
_LARGE_BYTES: Final = 30  # of topics, payloads and client identifiers
_PART_BYTES: Final = 128
_LARGE_PAYLOAD_BYTES: Final = 1


class TellingMap(mmap.mmap):
    """A map that says by a system call what is about to be written where."""

    shadow = -1

    def __setitem__(self, key: SupportsIndex | slice, value: Any) -> None:
        """Announce, then write."""
        assert isinstance(key, slice), key
        os.pwrite(self.shadow, value, key.start)
        super().__setitem__(key, value)


def _map(descriptor: int, length: int) -> TellingMap:
    told = TellingMap(descriptor, length)
    path = f"{Path(f'/proc/self/fd/{descriptor}').readlink()}{MAPPED_SUFFIX}"
    told.shadow = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    return told


class _Mapping:
    mmap = staticmethod(_map)


def _small(**arguments: Any) -> Options:
    options = Options(**arguments)
    options.set_write_buffer_size(_TABLE_BYTES)
    options.set_max_background_jobs(2)
    return options


def _unsynced(self: Database, batch: StoreBatch, sync: bool = True) -> None:
    del sync
    _write(self, batch, False)


def _watermark_first(self: RocksStore, commit: Commit) -> None:
    self._watermark.record_commit(max(self._end, commit.next_offset), self._commits + 1)
    _commit(self, commit)


async def _stop(_self: ChildProcess) -> None:
    pass


_write = Database.write
_commit = RocksStore.commit

if __name__ == "__main__":
    setattr(watermark, "mmap", _Mapping)  # noqa: B010 - a name the module does not export
    setattr(database, "Options", _small)  # noqa: B010
    database._WAL_BYTES_MAX = _LOGS_BYTES_MAX  # type: ignore[misc]
    for module, name, size_bytes in (
        (rocks, "LARGE_BYTES", _LARGE_BYTES),
        (database, "LARGE_BYTES", _LARGE_BYTES),
        (large_retained, "LARGE_BYTES", _LARGE_PAYLOAD_BYTES),
        (parts, "PART_BYTES", _PART_BYTES),
    ):
        setattr(module, name, size_bytes)
    setattr(ChildProcess, "start", lambda _: None)  # noqa: B010
    setattr(ChildProcess, "stop", _stop)  # noqa: B010
    retention.INTERVAL_S = _RETENTION_INTERVAL_S  # type: ignore[misc]
    fault = os.environ.get("RECORDED_FAULT", "")
    if fault == "unsynced":
        Database.write = _unsynced  # type: ignore[method-assign]
    elif fault == "watermark-first":
        RocksStore.commit = _watermark_first  # type: ignore[method-assign]
    main()
