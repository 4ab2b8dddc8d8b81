"""Locks a checkpoint, so that only one job at a time uses it.

A job takes the lock before it starts Spark, and has it until it ends, also while it waits after a
failure: a job that is refused must not have the cores of a Spark cluster for which the other waits.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, Final, Self

from penstock.errors import PenstockError

LOCK_NAME: Final = "penstock.lock"
"""The file in the checkpoint that is locked while a job runs."""


class JobRunning(PenstockError):
    """Raised when another job uses the checkpoint; it may end, so this is no permanent error."""


class JobLock:
    """The lock of one checkpoint; it is released at the end of a `with` block, or of the process.

    Args:
        checkpoint: the directory of the checkpoint, created if missing.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._file: IO[bytes] | None = None

    def take(self) -> None:
        """Lock the checkpoint, unless this holds its lock already.

        Raises:
            JobRunning: another job has the lock.
            OSError: the file of the lock cannot be made.
        """
        if self._file is not None and self._is_in_place(self._file):
            return
        self.release()
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        file = (self._checkpoint / LOCK_NAME).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise JobRunning(
                f"another job is running with the checkpoint in {self._checkpoint}"
            ) from error
        self._file = file

    def release(self) -> None:
        """Let another job take the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_in_place(self, file: IO[bytes]) -> bool:
        """Return whether ``file`` is the one that other jobs find: a checkpoint may be deleted."""
        try:
            found = (self._checkpoint / LOCK_NAME).stat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(file.fileno()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
