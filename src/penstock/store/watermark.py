"""The watermark: records in a small file beside the database how far the log is synced.

The file is `<data_dir>/committed`, 48 bytes, little-endian; the broker maps it::

    0        8        16        24                        48
    ┌────────┬────────┬─────────┬─────────────────────────┐
    │ end    │ begin  │ commits │ epoch, ASCII            │
    └────────┴────────┴─────────┴─────────────────────────┘

`end` is the offset after the last synced message, `begin` the first offset that retention has not
removed, `commits` the number of all commits ever made, including those without messages.

The stream service and the next start of the broker read the file. The stream service shows no
offset at or above `end`: a secondary instance of the database also sees writes that are not synced
yet, and a power cut may take them back. At a start, RocksDB recovers its write-ahead log up to the
first record it cannot read, and silently drops all records behind a damaged one. If the log then
ends before the watermark, the start is refused, instead of assigning the same offsets to other
messages.

The watermark causes no false alarm. The file is written, synced and renamed when the store is
opened. From then on `end` and `commits` are increased after the sync of the commit that they count,
each in one store of 8 aligned bytes. So they are never ahead of the disk, whenever the system stops
and in whatever order it writes its pages: after a power cut they may only be older. The file is
synced after each run of retention, and when the store is closed. The watermark of another epoch is
not compared.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from penstock.errors import StoreError, StoreUnavailable
from penstock.store.faults import is_machine_failure, with_remedy

WATERMARK_FILE: Final = "committed"
NUMBER_LENGTH_BYTES: Final = 8
LENGTH_BYTES: Final = 48

_END: Final = slice(0, 8)
_BEGIN: Final = slice(8, 16)
_COMMITS: Final = slice(16, 24)
_EPOCH: Final = slice(24, 48)


@dataclass(frozen=True, slots=True)
class Watermark:
    """The content of the watermark file; what a file that was cut short lacks is zero."""

    end: int
    begin: int = 0
    commits: int = 0
    epoch: str = ""

    def encode(self) -> bytes:
        """Return the bytes of the file; `epoch` has at most 24 characters, all ASCII."""
        numbers = (self.end, self.begin, self.commits)
        epoch = self.epoch.encode("ascii").ljust(LENGTH_BYTES - 24, b"\0")
        return b"".join(number.to_bytes(8, "little") for number in numbers) + epoch

    @staticmethod
    def decode(data: bytes) -> Watermark:
        """Return the watermark that `encode` encoded; missing bytes at the end count as zero."""
        return Watermark(
            int.from_bytes(data[_END], "little"),
            int.from_bytes(data[_BEGIN], "little"),
            int.from_bytes(data[_COMMITS], "little"),
            data[_EPOCH].rstrip(b"\0").decode("ascii", "replace"),
        )


def read_watermark(data_dir: Path) -> Watermark | None:
    """Return the watermark in `data_dir`; None if there is none.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        return Watermark.decode((data_dir / WATERMARK_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(data_dir, error) from error


def write_watermark(data_dir: Path, watermark: Watermark) -> None:
    """Replace the watermark in `data_dir` atomically, with a sync.

    Raises:
        StoreError: the file cannot be written.
    """
    path = data_dir / WATERMARK_FILE
    unfinished = path.with_name(f"{WATERMARK_FILE}.new")
    try:
        with unfinished.open("wb") as file:
            file.write(watermark.encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_directory(data_dir)
    except OSError as error:
        raise _unusable(data_dir, error) from error


@final
class WatermarkFile:
    """The watermark file, which the broker maps into memory to change it.

    Args:
        data_dir: the directory of the file, which is replaced.
        watermark: its new content.

    Raises:
        StoreError: the file cannot be written.
    """

    def __init__(self, data_dir: Path, watermark: Watermark) -> None:
        write_watermark(data_dir, watermark)
        try:
            self._descriptor = os.open(data_dir / WATERMARK_FILE, os.O_RDWR)
            self._map = mmap.mmap(self._descriptor, LENGTH_BYTES)
        except OSError as error:
            raise _unusable(data_dir, error) from error

    def record_commit(self, end: int, commits: int) -> None:
        """Record that a commit is synced: the new end of the log, and the number of commits."""
        self._map[_END] = end.to_bytes(NUMBER_LENGTH_BYTES, "little")
        self._map[_COMMITS] = commits.to_bytes(NUMBER_LENGTH_BYTES, "little")

    def set_begin(self, begin: int) -> None:
        """Record that retention removes the messages before offset `begin`."""
        self._map[_BEGIN] = begin.to_bytes(NUMBER_LENGTH_BYTES, "little")

    def set_epoch(self, epoch: str) -> None:
        """Record that the log has a new epoch.

        A reader that meets half of it opens the log again, as for any other epoch.
        """
        self._map[_EPOCH] = epoch.encode("ascii").ljust(LENGTH_BYTES - 24, b"\0")

    def sync(self) -> None:
        """Sync the file; another thread may call `record_commit` meanwhile.

        Raises:
            StoreUnavailable: the file could not be synced.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise StoreUnavailable(
                f"the watermark could not be synced: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Sync the file and unmap it."""
        with contextlib.suppress(OSError):  # an older watermark on disk does no harm
            os.fsync(self._descriptor)
        self._map.close()
        os.close(self._descriptor)


def sync_directory(path: Path) -> None:
    """Sync the directory `path`, so that the names in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Sync the file `path`, so that its content survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(data_dir: Path, error: OSError) -> StoreError:
    path = data_dir / WATERMARK_FILE
    if is_machine_failure(error):
        return StoreUnavailable(
            f"the watermark {path} cannot be used: {with_remedy(error, data_dir)}"
        )
    return StoreError(
        f"the watermark {path} cannot be used: {error.strerror}; it must be a file that the broker"
        " may read and write"
    )
