"""One job at a time for a checkpoint."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

LOCK_NAME: Final = "penstock.lock"
"""Locked in the checkpoint while a job runs with it."""


class JobRunning(ConfigError):
    """Another job has the checkpoint."""


@contextmanager
def only_job(checkpoint: Path) -> Iterator[None]:
    """Keep a second job away from the checkpoint; the lock goes when this process does.

    Raises:
        JobRunning: there is one already.
    """
    with (checkpoint / LOCK_NAME).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JobRunning(
                f"another job is running with the checkpoint in {checkpoint}"
            ) from error
        yield
