"""Free space and size of the file system under a data directory.

The admin process reads them itself: a file system that hangs would block the broker.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock.control.metric_requests import Metrics, Sample


def disk_bytes(data_dir: Path) -> tuple[int, int]:
    """Return the free bytes and the size in bytes of the data directory's file system.

    Raises:
        OSError: the file system cannot be examined.
    """
    found = os.statvfs(data_dir)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def with_disk(metrics: Metrics, data_dir: Path) -> Metrics:
    """Return a broker's metrics with those of its disk added; unchanged if that is not readable."""
    try:
        free_bytes, size_bytes = disk_bytes(data_dir)
    except OSError:
        return metrics
    samples = metrics.samples | {
        "disk_free_bytes": [Sample((), free_bytes)],
        "disk_size_bytes": [Sample((), size_bytes)],
    }
    return msgspec.structs.replace(metrics, samples=samples)
