"""The processor time of each process in a run, and of the whole machine: which of them fill it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ALL: Final = "all of the machine"
"""The name of the sum of all processes, the kernel's own work included."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = (3, 4)  # idle, and idle while a disk works: fields of the line "cpu"
_GUEST: Final = 8  # from there on fields count time again that earlier ones have


class Share(NamedTuple):
    """The processor time of one process.

    Attributes:
        cpu_us_per_message: its processor time by messages, microseconds.
        of_cores: its part of all that the cores had to give, 0 to 1.
    """

    cpu_us_per_message: float
    of_cores: float


def cpu_s_of(pid: int) -> float:
    """Return the user and system time of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class Shares:
    """Measures processes from its creation on.

    Args:
        processes: their process numbers, by name.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._began_s = time.monotonic()
        self._before = self._times()

    def until_now(self, messages: int) -> dict[str, Share]:
        """Return the share of each process, and of ``ALL``, for so many messages."""
        cores_s = (time.monotonic() - self._began_s) * (os.cpu_count() or 1)
        shares: dict[str, Share] = {}
        for name, cpu_s in self._times().items():
            spent_s = cpu_s - self._before[name]
            shares[name] = Share(spent_s / max(1, messages) * 1e6, spent_s / cores_s)
        return shares

    def _times(self) -> dict[str, float]:
        times = {name: cpu_s_of(pid) for name, pid in self._processes.items()}
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        busy = [int(field) for at, field in enumerate(fields[:_GUEST]) if at not in _IDLE]
        times[ALL] = sum(busy) / _TICKS_PER_S
        return times
