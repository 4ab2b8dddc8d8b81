"""Chooses files of a table to merge: by tiers of row counts, so that no row is rewritten often.

With ten files a tier:

    rows of a file   1 to 9     10 to 99     100 to 999    …    half of file_bytes or more
    tier                0           1             2        …    full: stays as it is
                   ten files ──▶ one ─┐
                                 ten files ──▶ one ─┐
                                                ten files ──▶ …

Ten files of a tier have ten times as many rows as its smallest: their merged file is in a higher
tier, always. So a row is written once for each tier, and there are as many tiers as the row count
of a file has digits; a partition has at most nine files of each, beside full ones. A tier by bytes
would not work: of tiny files most bytes are Parquet's own, and ten of them may make one that is not
much larger.

A partition that was not written to for an hour is idle: there two files of a tier are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MERGED_FILES_MAX: Final = 200
"""Most files of one merge, or `merge_files` if that is more: the reads of one step have a
bound even in a table without earlier upkeep."""

IDLE_S: Final = 3600.0
"""A partition whose newest file is older than this, in seconds, is idle."""

_IDLE_FILES: Final = 2


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A present file of the table.

    Attributes:
        path: its path in the table.
        partition: the value of each partition column.
        rows: the number of its rows.
        size_bytes: its length.
        first: epoch and offset of its first row, if the table knows them.
        written_at_s: when it was written, in seconds since the Unix epoch.
    """

    path: str
    partition: tuple[object, ...]
    rows: int
    size_bytes: int
    first: tuple[str, int]
    written_at_s: float


def due_groups(
    files: Iterable[LiveFile], merge_files: int, file_bytes: int, now_s: float
) -> list[list[LiveFile]]:
    """Return the groups of files to be merged, small files first.

    Args:
        files: all files of the table.
        merge_files: merge when a tier has so many.
        file_bytes: the target size of a file.
        now_s: seconds since the Unix epoch.
    """
    partitions: dict[tuple[object, ...], list[LiveFile]] = {}
    for file in files:
        partitions.setdefault(file.partition, []).append(file)
    groups: list[list[LiveFile]] = []
    for members in partitions.values():
        newest_s = max(file.written_at_s for file in members)
        enough = _IDLE_FILES if newest_s < now_s - IDLE_S else merge_files
        tiers: dict[int, list[LiveFile]] = {}
        for file in members:
            if file.size_bytes < file_bytes / 2:
                tiers.setdefault(tier_of(file.rows, merge_files), []).append(file)
        for tier in tiers.values():
            tier.sort(key=lambda file: (file.first, file.path))
            files_max = max(merge_files, MERGED_FILES_MAX)
            groups += _packed(tier, enough, files_max, file_bytes)
    return sorted(groups, key=lambda group: sum(file.rows for file in group))


def tier_of(rows: int, merge_files: int) -> int:
    """Return how often `rows` can be divided by `merge_files`."""
    tier = 0
    while rows >= merge_files:
        rows //= merge_files
        tier += 1
    return tier


def _packed(
    tier: Sequence[LiveFile], enough: int, files_max: int, file_bytes: int
) -> Iterator[list[LiveFile]]:
    """Yield groups of neighbours by offset, each for one file; too few wait for more."""
    group: list[LiveFile] = []
    size = 0
    for file in tier:
        if group and (size + file.size_bytes > file_bytes or len(group) == files_max):
            yield group  # two or more: each is shorter than half of file_bytes
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    if len(group) >= enough:
        yield group
