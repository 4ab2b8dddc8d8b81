"""Tell whether a file has changed since it was read."""

from __future__ import annotations

from pathlib import Path

FileVersion = tuple[int, int, int]
"""Inode, modification time in nanoseconds, and size in bytes."""


def file_version(name: str) -> FileVersion | None:
    """Return the version of a file; None if no name is set, or the file cannot be examined.

    A name that is not set is no file: as a path, it would be the working directory.
    """
    if not name:
        return None
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
