"""Chooses files of a table to merge, by tiers of row counts, so that each row is rewritten rarely.

With ten files a tier:

    rows of a file   1 to 9     10 to 99     100 to 999    …    half of file_bytes or more
    tier                0           1             2        …    full: stays as it is
                   ten files ──▶ one ─┐
                                 ten files ──▶ one ─┐
                                                ten files ──▶ …

Ten files of a tier have at least ten times as many rows as its smallest, so their merged file is
always in a higher tier. So a row is written once for each tier, and there are as many tiers as the
row count of a file has digits; a partition has at most nine files of each tier, besides full ones.
Tiers by bytes would not work: most bytes of tiny files are Parquet's own, and ten of them may make
one that is not much larger.

A partition that was not written to for an hour is idle: in it two files of a tier are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MERGED_FILES_MAX: Final = 200
"""Most files of one merge, or `merge_files` if that is more: it limits the reads of a merge in a
table without earlier upkeep."""

IDLE_S: Final = 3600.0
"""A partition whose newest file is older than this, in seconds, is idle."""

_IDLE_FILES: Final = 2


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of the newest version of a table.

    Attributes:
        path: the path of the file, as the table names it.
        partition: the value of each partition column.
        rows: the number of rows.
        size_bytes: the length of the file.
        first: epoch and offset of the first row; ("", 0) if the table has no statistics of them.
        written_at_s: the time when the file was written, in seconds since the Unix epoch.
    """

    path: str
    partition: tuple[object, ...]
    rows: int
    size_bytes: int
    first: tuple[str, int]
    written_at_s: float


def groups_to_merge(
    files: Iterable[LiveFile], merge_files: int, file_bytes: int, now_s: float
) -> list[list[LiveFile]]:
    """Return the groups of files to be merged, those with fewest rows first.

    Args:
        files: all files of the table.
        merge_files: the number of files of a tier that are merged.
        file_bytes: the target size of a file.
        now_s: the present time, in seconds since the Unix epoch.
    """
    partitions: dict[tuple[object, ...], list[LiveFile]] = {}
    for file in files:
        partitions.setdefault(file.partition, []).append(file)
    groups: list[list[LiveFile]] = []
    for members in partitions.values():
        newest_s = max(file.written_at_s for file in members)
        files_min = _IDLE_FILES if newest_s < now_s - IDLE_S else merge_files
        tiers: dict[int, list[LiveFile]] = {}
        for file in members:
            if file.size_bytes < file_bytes / 2:
                tiers.setdefault(tier_of(file.rows, merge_files), []).append(file)
        for tier in tiers.values():
            tier.sort(key=lambda file: (file.first, file.path))
            files_max = max(merge_files, MERGED_FILES_MAX)
            groups += _pack(tier, files_min, files_max, file_bytes)
    return sorted(groups, key=lambda group: sum(file.rows for file in group))


def tier_of(rows: int, merge_files: int) -> int:
    """Return the tier of a file: how often its rows can be divided by `merge_files`."""
    tier = 0
    while rows >= merge_files:
        rows //= merge_files
        tier += 1
    return tier


def _pack(
    tier: Sequence[LiveFile], files_min: int, files_max: int, file_bytes: int
) -> Iterator[list[LiveFile]]:
    """Yield groups of files with neighbouring offsets, each of which fits one file.

    Fewer files than `files_min` at the end are left for a later merge.
    """
    group: list[LiveFile] = []
    size = 0
    for file in tier:
        if group and (size + file.size_bytes > file_bytes or len(group) == files_max):
            yield group  # two or more: each is shorter than half of file_bytes
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    if len(group) >= files_min:
        yield group
