"""Ranges of offsets: present in a log, and missing from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Ranges: TypeAlias = list[tuple[int, int]]
"""Offsets, each from the first up to and without the second; ascending."""


def without(begin: int, end: int, taken: Iterable[tuple[int, int]]) -> Ranges:
    """Return the offsets from ``begin`` up to ``end`` that are not in ``taken``, which ascends."""
    left: Ranges = []
    for first, last in taken:
        if first > begin:
            left.append((begin, min(first, end)))
        begin = max(begin, last)
        if begin >= end:
            break
    else:
        left.append((begin, end))
    return [(first, last) for first, last in left if first < last]


def join_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the same offsets in order, with adjacent ranges made one."""
    joined: Ranges = []
    for begin, end in sorted(ranges):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def in_words(begin: int, end: int) -> str:
    """Return the offsets from ``begin`` up to and without ``end`` in words."""
    return f"offset {begin}" if end == begin + 1 else f"offsets {begin} to {end - 1}"
