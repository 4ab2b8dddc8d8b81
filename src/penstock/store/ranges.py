"""Ranges of offsets: present in a log, and missing from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Ranges: TypeAlias = list[tuple[int, int]]
"""Ascending ranges of offsets: pairs of first and end, excluded."""


def subtract_ranges(begin: int, end: int, removed: Iterable[tuple[int, int]]) -> Ranges:
    """Return the offsets from ``begin`` up to ``end``, excluded, that are not in ``removed``.

    The ranges in ``removed`` must be in ascending order.
    """
    remaining: Ranges = []
    for first, last in removed:
        if first > begin:
            remaining.append((begin, min(first, end)))
        begin = max(begin, last)
        if begin >= end:
            break
    else:
        remaining.append((begin, end))
    return [(first, last) for first, last in remaining if first < last]


def join_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the offsets of ``ranges``, sorted, with overlapping and adjacent ranges joined."""
    joined: Ranges = []
    for begin, end in sorted(ranges):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def range_in_words(begin: int, end: int) -> str:
    """Return "offset N" or "offsets N to M" for the offsets from ``begin`` up to ``end``,
    excluded."""
    return f"offset {begin}" if end == begin + 1 else f"offsets {begin} to {end - 1}"
