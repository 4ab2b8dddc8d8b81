"""The pace of a landing job, written to its directory for other processes.

    <checkpoint>/penstock-pace.json    offsets a second, and when that was

The file is for people: no job bases a decision on it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

PACE_NAME: Final = "penstock-pace.json"

PERIOD_S: Final = 5.0
"""Shortest time over which a pace is measured, in seconds."""

AGE_S_MAX: Final = 60.0
"""Seconds after which a pace no longer says anything."""


class _Pace(msgspec.Struct, frozen=True):
    at_s: float
    per_second: float


class PaceWriter:
    """Measures the pace of one job, and writes it to the job's directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / PACE_NAME
        self._from: tuple[float, int] | None = None  # monotonic seconds, offset

    def report(self, offset: int) -> None:
        """Report that the job has passed all offsets before this one.

        Raises:
            OSError: the file cannot be written.
        """
        now_s = time.monotonic()
        if self._from is None:
            self._from = now_s, offset
            return
        since_s, first = self._from
        if now_s - since_s < PERIOD_S:
            return
        self._from = now_s, offset
        if offset <= first:
            return
        pace = _Pace(time.time(), (offset - first) / (now_s - since_s))
        unfinished = self._path.with_name(f"{PACE_NAME}.new")
        unfinished.write_bytes(msgspec.json.encode(pace))
        unfinished.replace(self._path)


def read_pace(directory: Path, now_s: float) -> float | None:
    """Return the recent pace of a job in offsets a second; None while it is idle or does not run.

    Args:
        directory: the job's directory.
        now_s: the present time, in seconds since the Unix epoch.
    """
    try:
        pace = msgspec.json.decode((directory / PACE_NAME).read_bytes(), type=_Pace)
    except (OSError, msgspec.MsgspecError):
        return None
    return pace.per_second if now_s - pace.at_s <= AGE_S_MAX else None
