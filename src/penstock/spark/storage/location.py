"""A place of a table or of one of its files, wherever it is.

A table needs the same few things of a disk and of an object store, and gets the same promises:

    open_output, create, write    what was written is durable, and whole, when the call (for
                                  `open_output` the file's `close`) returns
    create                        of several that create one name, one succeeds
    move                          the new name appears whole; a second call finds it done
    files, names                  what is there, in no order

A file is never changed, only replaced.
"""

from __future__ import annotations

import io
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Self

from penstock.errors import PenstockError


class ObjectStoreError(PenstockError, OSError):
    """Raised when an object store does not do what it was asked; no secret is in the words."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below a place.

    Attributes:
        path: its path relative to that place, with slashes.
        size_bytes: its length.
        modified_at_s: when it was written, in seconds since the Unix epoch.
    """

    path: str
    size_bytes: int
    modified_at_s: float


class OutputFile(io.BufferedIOBase, ABC):
    """A file that is being written: there once it is closed, and nowhere if it is discarded."""

    @abstractmethod
    def discard(self) -> None:
        """Forget what was written."""


class Location(ABC):
    """A directory or a file, which need not exist. Locations are values: equal, hashed, pickled.

    Operations raise OSError if the disk or the store refuses them, and FileNotFoundError if the
    file is not there.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def uri(self) -> str:
        """The absolute path or the URL by which other programs open it."""

    @property
    @abstractmethod
    def store(self) -> str:
        """The store that keeps it: the URL of a bucket, or "" for this machine."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.uri)

    @abstractmethod
    def __truediv__(self, path: str) -> Self:
        """Return a place below this one."""

    @abstractmethod
    def with_name(self, name: str) -> Self:
        """Return a place beside this one."""

    def __str__(self) -> str:
        """Return what messages call it."""
        return self.uri

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is such a file."""

    @abstractmethod
    def has_files(self) -> bool:
        """Return whether anything is in this directory, or below it."""

    @abstractmethod
    def stat(self) -> FoundFile:
        """Return the state of the file, whose `path` is empty."""

    @abstractmethod
    def read(self) -> bytes:
        """Return the content of the file."""

    @abstractmethod
    def open_input(self) -> IO[bytes]:
        """Open the file to be read, with seeks."""

    @abstractmethod
    def open_output(self) -> OutputFile:
        """Make a file with a new name; once closed it is there and durable."""

    @abstractmethod
    def create(self, content: bytes) -> bool:
        """Make a file with this content; return False if there is another one of this name.

        A call whose outcome was lost on its way is told from that of another writer by the content.
        """

    @abstractmethod
    def write(self, content: bytes) -> None:
        """Make or replace the file; whoever reads it meanwhile has the one or the other."""

    @abstractmethod
    def move(self, to: Self) -> None:
        """Give the file another name; do nothing if it is not there."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the file, if it is there."""

    @abstractmethod
    def sync(self) -> None:
        """Make durable what another process may have written to this file or directory."""

    @abstractmethod
    def files(self) -> Iterator[FoundFile]:
        """Yield the files below this directory, at any depth."""

    @abstractmethod
    def names(self) -> Iterator[str]:
        """Yield the names of the files in this directory."""
