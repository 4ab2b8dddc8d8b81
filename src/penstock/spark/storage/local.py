"""A place on a file system of this machine: what it wrote is on disk when a call returns.

A file is durable when it is synced and so is each directory above it, up to that of the table:
another task may have made one of these a moment ago, and be killed before it syncs it.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, final

from penstock.spark.storage.location import FoundFile, Location, OutputFile


@final
class LocalLocation(Location):
    """A directory or file of this machine, which Python's own functions take as a path.

    Args:
        path: the place; a relative one starts at the working directory.
        table: the directory up to which a new file is made durable; None for the place itself.
    """

    __slots__ = ("_path", "_table")

    def __init__(self, path: Path | str, table: Path | None = None) -> None:
        self._path = Path(path).absolute()
        self._table = table or self._path

    @property
    def path(self) -> Path:
        """The place as a path."""
        return self._path

    @property
    def uri(self) -> str:
        """The absolute path."""
        return str(self._path)

    @property
    def store(self) -> str:
        """Nothing: this machine."""
        return ""

    def __fspath__(self) -> str:
        """Return the absolute path."""
        return str(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalLocation) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return f"LocalLocation({str(self._path)!r})"

    def __truediv__(self, path: str) -> Self:
        return type(self)(self._path / path, self._table)

    def with_name(self, name: str) -> Self:
        """Return a place beside this one; see `Location`."""
        is_table = self._path == self._table
        return type(self)(self._path.with_name(name), None if is_table else self._table)

    def exists(self) -> bool:
        """Return whether there is such a file, or a directory."""
        return self._path.exists()

    def has_files(self) -> bool:
        """Return whether anything is in this directory."""
        try:
            return next(self._path.iterdir(), None) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False

    def stat(self) -> FoundFile:
        """Return the state of the file."""
        return _found("", self._path.stat())

    def read(self) -> bytes:
        """Return the content of the file."""
        return self._path.read_bytes()

    def open_input(self) -> IO[bytes]:
        """Open the file to be read."""
        return self._path.open("rb")

    def open_output(self) -> OutputFile:
        """Make a file with a new name; closing syncs it and the directories above it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return _SyncedFile(self, self._path)

    def create(self, content: bytes) -> bool:
        """Make a file with this content; return False if there is one of this name."""
        unfinished = self._write_beside(content)
        try:
            os.link(unfinished, self._path)
        except FileExistsError:
            return False
        finally:
            unfinished.unlink()
        self._sync_to_the_table()
        return True

    def write(self, content: bytes) -> None:
        """Make or replace the file."""
        self._write_beside(content).replace(self._path)
        self._sync_to_the_table()

    def _write_beside(self, content: bytes) -> Path:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_name(f".{uuid.uuid4().hex}")
        unfinished.write_bytes(content)
        sync(unfinished)
        return unfinished

    def move(self, to: Self) -> None:
        """Give the file another name; do nothing if it is not there."""
        with suppress(FileNotFoundError):
            self._path.replace(to._path)
            sync(to._path.parent)

    def remove(self) -> None:
        """Remove the file, if it is there."""
        self._path.unlink(missing_ok=True)

    def touch(self) -> None:
        """Set the file's time of modification to now, if it is there."""
        with suppress(FileNotFoundError):
            os.utime(self._path)

    def sync(self) -> None:
        """Sync the file, or the names in the directory, to disk."""
        sync(self._path)

    def sync_names(self) -> None:
        """Sync the directories above the file, up to that of the table."""
        last = self._path.parent if self._path == self._table else self._table
        for directory in self._path.parents:
            sync(directory)
            if directory == last:
                break

    def _sync_to_the_table(self) -> None:
        """Sync the directories above the file, and the one in which the table is: a commit may be
        the first file of a table."""
        self.sync_names()
        sync(self._table.parent)

    def files(self) -> Iterator[FoundFile]:
        """Yield the files below this directory, at any depth."""
        for directory, _, names in os.walk(self._path):
            for name in names:
                path = Path(directory, name)
                with suppress(FileNotFoundError):  # removed just now
                    yield _found(str(path.relative_to(self._path)), path.stat())

    def names(self) -> Iterator[str]:
        """Yield the names of the files in this directory."""
        with suppress(FileNotFoundError), os.scandir(self._path) as entries:
            yield from (entry.name for entry in entries)


@final
class _SyncedFile(io.BufferedWriter, OutputFile):
    """A file that is synced together with the directories above it when it is closed."""

    def __init__(self, location: LocalLocation, path: Path) -> None:
        super().__init__(io.FileIO(path, "xb"))
        self._location = location

    def close(self) -> None:
        """Sync and close the file."""
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            self._location.sync_names()

    def discard(self) -> None:
        """Close the file and remove it."""
        with suppress(OSError):
            super().close()
        self._location.remove()


def _found(path: str, stat: os.stat_result) -> FoundFile:
    return FoundFile(path, stat.st_size, stat.st_mtime)


def sync(path: Path) -> None:
    """Sync a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
