"""Describes the machine on which a benchmark runs."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return a line with the number of cores, the processor, the memory and the system."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(": ")[2] for line in cpus if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return f"{os.cpu_count()} cores, {model}, {memory:.0f} GiB, {system}"
