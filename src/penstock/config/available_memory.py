"""The memory that this process may use: the machine's, or less where a cgroup limits it.

A container sees the memory of the whole machine in ``/proc/meminfo`` but is killed at the limit of
its cgroup. The groups above its own may have lower limits, so the smallest of them counts::

      /proc/self/cgroup   0::/a/b          version 2: memory.max of /a/b, /a and /
                          4:memory:/a/b    version 1: memory.limit_in_bytes of the same groups
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_CONTROLLER = "memory"


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """The memory that this process may use, in bytes, and where the figure comes from, in words."""

    size_bytes: int
    source: str


def available_memory(root: Path = Path("/"), machine_bytes: int = 0) -> AvailableMemory:
    """Return the smaller of the machine's memory and the limits of this process's cgroups.

    Args:
        root: the directory with ``proc`` and ``sys``.
        machine_bytes: memory of the machine; 0 asks the system.
    """
    if machine_bytes == 0:
        machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [limit for limit in map(_read_limit, _limit_files(root)) if limit > 0]
    lowest = min(limits, default=machine_bytes)
    if lowest < machine_bytes:
        return AvailableMemory(lowest, "the limit of its cgroup")
    return AvailableMemory(machine_bytes, "the machine's memory")


def _limit_files(root: Path) -> list[Path]:
    """Return the paths of all files that may hold a limit for this process; a file need not
    exist."""
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
        if ".." in own.parts:  # the group is outside this process's cgroup namespace
            groups = [""]
        if not controllers:
            files += [mounted / group / "memory.max" for group in groups]
        elif _CONTROLLER in controllers.split(","):
            files += [mounted / _CONTROLLER / group / "memory.limit_in_bytes" for group in groups]
    return files


def _read_limit(file: Path) -> int:
    """Return the limit that ``file`` holds, in bytes; 0 without a limit or without the file."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max" means no limit
        return 0
