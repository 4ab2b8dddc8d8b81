"""Divides a batch: the number of offsets of each log, and the ranges of its tasks.

Both are computed as in Spark's Kafka source, with a log in place of a partition of Kafka.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence


def divide_limit(backlogs: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Return the number of offsets of each log in the next batch, in proportion to its backlog.

    Args:
        backlogs: the number of unread offsets, by log.
        limit: the most offsets of the batch, or None for all. Each log with a backlog gets at least
            one, so the sum may exceed the limit by the number of logs.
    """
    waiting = sum(backlogs.values())
    if limit is None or waiting <= limit:
        return dict(backlogs)
    return {
        log: max(1, limit * backlog // waiting) if backlog else 0
        for log, backlog in backlogs.items()
    }


def count_parts(
    sizes: Sequence[int], parts_min: int, size_max: int | None, size_min: int = 1
) -> list[int]:
    """Return the number of parts into which each range is split.

    Args:
        sizes: the sizes of the ranges, in offsets, 1 or more.
        parts_min: the approximate number of all parts; a range has at least one.
        size_max: the largest size of a part, in offsets; None for no limit.
        size_min: the smallest size of a part, even if there are then fewer than `parts_min`.
    """
    total = sum(sizes)
    return [
        min(
            -(-size // size_min),
            max(
                1, round(parts_min * size / total), 0 if size_max is None else -(-size // size_max)
            ),
        )
        for size in sizes
    ]


def split_range(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Return ranges that together cover `start` to `end` (excluded), as even as possible."""
    bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))
