"""Locks a checkpoint, so that only one job at a time uses it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError

LOCK_NAME: Final = "penstock.lock"
"""The file in the checkpoint that is locked while a job runs."""


class JobRunning(PenstockError):
    """Raised when another job uses the checkpoint; it may end, so this is no permanent error."""


@contextmanager
def job_lock(checkpoint: Path) -> Iterator[None]:
    """Lock the checkpoint against a second job; the lock is released when this process ends.

    Raises:
        JobRunning: another job has the lock.
    """
    with (checkpoint / LOCK_NAME).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JobRunning(
                f"another job is running with the checkpoint in {checkpoint}"
            ) from error
        yield
