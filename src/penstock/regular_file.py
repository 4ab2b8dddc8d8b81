"""Read files that settings and commands name, and tell whether they have changed.

A name may be that of a FIFO, which nobody may ever write to, or of a device without an end. Neither
may hang or fill the process that reads it, least of all a broker that reloads its files.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 64 * 1024 * 1024

FileVersion = tuple[int, int, int]
"""Inode, modification time in nanoseconds, and size in bytes."""


def read_regular(path: str | Path, bytes_max: int = BYTES_MAX) -> bytes:
    """Return the contents of a regular file, of ``bytes_max`` at most.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is larger; ``strerror`` says
            which.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        _refuse_irregular(path, os.fstat(fd).st_mode)
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"it is larger than {bytes_max:,} bytes", str(path))
    return content


def regular(path: str | Path) -> str:
    """Return the name of a regular file, for a library that opens files by their names.

    Raises:
        OSError: the file cannot be examined, or is not a regular file.
    """
    _refuse_irregular(path, Path(path).stat().st_mode)
    return str(path)


def _refuse_irregular(path: str | Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


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
