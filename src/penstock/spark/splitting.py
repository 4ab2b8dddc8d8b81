"""How much of each log a batch takes, and how its ranges are split into tasks.

Both as Spark's Kafka source does it, with a log in place of a partition of Kafka.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence


def shares(backlogs: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """How many offsets of each log come next, in proportion to what waits in it.

    Args:
        backlogs: offsets that wait, by log.
        limit: most of them, or None for all. A log where something waits gives one at least, so
            there may be more by as many as there are logs.
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
    """Into how many parts each range is to be split.

    Args:
        sizes: of the ranges, in offsets, 1 or more.
        parts_min: all parts together, about; a range has one at least.
        size_max: of each part, or None for no limit.
        size_min: a part that would be smaller is not made; it goes before `parts_min`.
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
    """Ranges that together cover `start` to `end` (excluded), as even as can be."""
    bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))
