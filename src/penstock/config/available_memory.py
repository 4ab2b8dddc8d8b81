"""The memory that this process may use: the machine's, or less where a cgroup says so.

A container sees the whole machine in ``/proc/meminfo`` and is killed at the limit of its cgroup.
Every cgroup above it may have a lower one::

      /proc/self/cgroup   0::/a/b          version 2: memory.max of /a/b, /a and /
                          4:memory:/a/b    version 1: memory.limit_in_bytes of them
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_CONTROLLER = "memory"


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """Memory that this process may use, in bytes, and the limit that says so."""

    size_bytes: int
    by: str


def available(root: Path = Path("/"), machine_bytes: int = 0) -> AvailableMemory:
    """Return the smaller of the machine's memory and the limits of this process's cgroups.

    Args:
        root: the directory with ``proc`` and ``sys``.
        machine_bytes: memory of the machine; 0 asks the system.
    """
    if machine_bytes == 0:
        machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [limit for limit in map(_limit, _limit_files(root)) if limit > 0]
    lowest = min(limits, default=machine_bytes)
    if lowest < machine_bytes:
        return AvailableMemory(lowest, "the limit of its cgroup")
    return AvailableMemory(machine_bytes, "the machine's memory")


def _limit_files(root: Path) -> list[Path]:
    """Return every file that may hold a limit for this process; it need not exist."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    mounted = root / "sys/fs/cgroup"
    files: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own = PurePosixPath("/" + path.lstrip("/"))
        groups = [str(group).lstrip("/") for group in (own, *own.parents)]
        if ".." in own.parts:  # of a namespace that this process is not in
            groups = [""]
        if not controllers:
            files += [mounted / group / "memory.max" for group in groups]
        elif _CONTROLLER in controllers.split(","):
            files += [mounted / _CONTROLLER / group / "memory.limit_in_bytes" for group in groups]
    return files


def _limit(file: Path) -> int:
    """Return the limit in ``file``, bytes; 0 where there is none."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max" is none
        return 0
