"""A log file that rotates, and survives a full disk, a lost directory and an external
``logrotate``.

::

      a line ─▶ file moved or removed? ─ open again ─▶ file too long? ─ rotate ─▶ written
                                                                            │ fails
            a warning and the line ─▶ standard error, until a line is written ◀╯

The full disk is often the disk with the log file: just then its lines must not be lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path
from typing import Final, final

from penstock.telemetry.background import UnlockedHandler

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@final
class LogFileHandler(UnlockedHandler):
    """Appends lines to a file.

    Args:
        path: the path of the file.
        bytes_max: size in bytes above which the file is renamed to PATH.1, PATH.1 to PATH.2 and so
            on.
        files_max: the number of renamed files that are kept, at least 1.
        fallback: the handler for lines that cannot be written to the file.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self, path: str, bytes_max: int, files_max: int, fallback: logging.Handler
    ) -> None:
        super().__init__()
        self._path = Path(path).absolute()
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._fallback = fallback
        self._diverted_lines = 0  # written to ``fallback`` since the last line in the file
        self._file = os.open(self._path, _FLAGS, 0o666)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line to the file, or to ``fallback`` if that fails."""
        try:
            if self._diverted_lines:
                text = f"{self._diverted_lines} lines went to standard error"
                self._append(_warning(text, record))
                self._diverted_lines = 0
            self._append(record)
        except OSError as error:
            if not self._diverted_lines:
                failure = f"log.file {self._path} cannot be written: {error.strerror or error};"
                self._fallback.emit(
                    _warning(f"{failure} until it can, its lines come here", record)
                )
            self._diverted_lines += 1
            self._fallback.emit(record)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        super().close()

    def _append(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        size_bytes = self._reopen_if_moved()
        if size_bytes and size_bytes + len(line) > self._bytes_max:
            self._rotate()
            size_bytes = 0
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size_bytes)  # removes a partial line
            raise

    def _reopen_if_moved(self) -> int:
        """Open the path again if it names another file now; return the file's size in bytes."""
        opened = os.fstat(self._file)
        try:
            named = self._path.stat()
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
            self._open()
            opened = os.fstat(self._file)
        return opened.st_size if stat.S_ISREG(opened.st_mode) else 0

    def _rotate(self) -> None:
        for number in range(self._files_max - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._rotated_path(number).replace(self._rotated_path(number + 1))
        self._path.replace(self._rotated_path(1))
        self._open()

    def _rotated_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _open(self) -> None:
        file = os.open(self._path, _FLAGS, 0o666)
        os.close(self._file)
        self._file = file


def _warning(message: str, record: logging.LogRecord) -> logging.LogRecord:
    """Return a warning about the log file, with the logger's name of ``record``."""
    return logging.LogRecord(record.name, logging.WARNING, "", 0, message, None, None)
