"""The watermark: how far the log is synced, in a small file beside the database.

The file is `<data_dir>/committed`, 48 bytes, little-endian; the broker maps it::

    0        8        16        24                        48
    ┌────────┬────────┬─────────┬─────────────────────────┐
    │ end    │ begin  │ commits │ epoch, ASCII            │
    └────────┴────────┴─────────┴─────────────────────────┘
    └ older versions: 8 or 16 ┘

`end` is the offset after the last synced message, `begin` the first that retention left,
`commits` the number of commits there ever were, those without messages too.

The stream service and the next start of the broker read it. The stream service shows nothing at or
above `end`: a secondary of the database also sees writes that are not synced yet, and those a power
cut may take back. At a start, RocksDB recovers its write-ahead log up to the first record it cannot
read, and drops all records behind a damaged one without a word. Where less is there than the
watermark says, the start is refused, instead of giving the same offsets to other messages.

It raises no false alarm. The file is made whole (written, synced, renamed) when the store is
opened, and from then on a number moves in it after the sync of what it counts, in one store of 8
aligned bytes. It is never ahead of the disk, at whatever moment the system stops and in whatever
order it wrote its pages: after a power cut the file may only be older. It is synced with each run
of retention, and when the store is closed. A log of another epoch is not compared.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from penstock.errors import StoreError, StoreFailed
from penstock.store.faults import is_machine_failure, with_remedy

WATERMARK_FILE: Final = "committed"
NUMBER_LENGTH_BYTES: Final = 8
LENGTH_BYTES: Final = 48

_END: Final = slice(0, 8)
_BEGIN: Final = slice(8, 16)
_COMMITS: Final = slice(16, 24)
_EPOCH: Final = slice(24, 48)


@dataclass(frozen=True, slots=True)
class Committed:
    """The content of a watermark. In an older version's, commits are 0 and the epoch is empty."""

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
    def decode(data: bytes) -> Committed:
        """Inverse of `encode`; missing bytes at the end of `data` count as zero."""
        return Committed(
            int.from_bytes(data[_END], "little"),
            int.from_bytes(data[_BEGIN], "little"),
            int.from_bytes(data[_COMMITS], "little"),
            data[_EPOCH].rstrip(b"\0").decode("ascii", "replace"),
        )


def read_watermark(data_dir: Path) -> Committed | None:
    """Return the watermark below `data_dir`; None where there is none.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        return Committed.decode((data_dir / WATERMARK_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(data_dir, error) from error


def write_watermark(data_dir: Path, committed: Committed) -> None:
    """Replace the watermark below `data_dir` atomically, synced.

    Raises:
        StoreError: the file cannot be written.
    """
    path = data_dir / WATERMARK_FILE
    unfinished = path.with_name(f"{WATERMARK_FILE}.new")
    try:
        with unfinished.open("wb") as file:
            file.write(committed.encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_directory(data_dir)
    except OSError as error:
        raise _unusable(data_dir, error) from error


@final
class Watermark:
    """The file, mapped by the broker that moves it.

    Args:
        data_dir: the directory of the file.
        committed: its content from now on.

    Raises:
        StoreError: the file cannot be written.
    """

    def __init__(self, data_dir: Path, committed: Committed) -> None:
        write_watermark(data_dir, committed)
        try:
            self._descriptor = os.open(data_dir / WATERMARK_FILE, os.O_RDWR)
            self._map = mmap.mmap(self._descriptor, LENGTH_BYTES)
        except OSError as error:
            raise _unusable(data_dir, error) from error

    def move(self, end: int, commits: int) -> None:
        """Record a commit that is synced."""
        self._map[_END] = end.to_bytes(NUMBER_LENGTH_BYTES, "little")
        self._map[_COMMITS] = commits.to_bytes(NUMBER_LENGTH_BYTES, "little")

    def set_begin(self, begin: int) -> None:
        """Record that retention removes the rows before `begin`."""
        self._map[_BEGIN] = begin.to_bytes(NUMBER_LENGTH_BYTES, "little")

    def sync(self) -> None:
        """Let the file outlast a power cut as it is now; may run beside `move`.

        Raises:
            StoreFailed: it could not be synced.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise StoreFailed(f"the watermark could not be synced: {error.strerror}") from error

    def close(self) -> None:
        """Sync the file and unmap it."""
        with contextlib.suppress(OSError):  # an older one does no harm
            os.fsync(self._descriptor)
        self._map.close()
        os.close(self._descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in `path` outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(data_dir: Path, error: OSError) -> StoreError:
    path = data_dir / WATERMARK_FILE
    if is_machine_failure(error):
        return StoreFailed(f"the watermark {path} cannot be used: {with_remedy(error, data_dir)}")
    return StoreError(
        f"the watermark {path} cannot be used: {error.strerror}; it must be a file that the broker"
        " may read and write"
    )
