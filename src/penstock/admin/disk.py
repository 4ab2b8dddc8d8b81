"""The disk under a data directory, which is looked at without asking the broker.

A file system that hangs holds up whoever looks at it, and so never the broker.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock.control.metric_requests import Metrics, Sample


def disk_bytes(data_dir: Path) -> tuple[int, int]:
    """Return the free bytes of the data directory's file system, and all its bytes.

    Raises:
        OSError: it cannot be looked at.
    """
    found = os.statvfs(data_dir)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def with_disk(metrics: Metrics, data_dir: Path) -> Metrics:
    """Return a broker's metrics with the metrics of its disk added, if the disk can be examined."""
    try:
        free_bytes, size_bytes = disk_bytes(data_dir)
    except OSError:
        return metrics
    samples = metrics.samples | {
        "disk_free_bytes": [Sample((), free_bytes)],
        "disk_size_bytes": [Sample((), size_bytes)],
    }
    return msgspec.structs.replace(metrics, samples=samples)
