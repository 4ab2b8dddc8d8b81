"""Which files of a table become one: by tiers of as many rows, so that no row is written often.

With ten files a tier:

    rows of a file   1 to 9     10 to 99     100 to 999    …    half of file_bytes or more
    tier                0           1             2        …    full: stays as it is
                   ten files ──▶ one ─┐
                                 ten files ──▶ one ─┐
                                                ten files ──▶ …

Ten files of a tier have ten times as many rows as its smallest: what becomes of them is in a higher
tier, always. So a row is written once for each tier, which are as many as the number of rows in a
file has digits, and a partition has at most nine files of each, beside full ones. A tier by bytes
would not do: of tiny files most bytes are Parquet's own, and ten of them may make one that is not
much larger.

A partition that nobody has written to for a while is at rest: there two files of a tier are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MERGED_FILES_MAX: Final = 200
"""Files that become one at most, or `merge_files` where that is more: what one step reads has a
bound also in a table that nobody has looked after before."""

REST_S: Final = 3600.0
"""A partition whose newest file is so old, in seconds, is at rest."""

_AT_REST_FILES: Final = 2


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of the table as it is now.

    Attributes:
        path: as the table names it.
        partition: the value of each partition column.
        rows: how many it holds.
        size_bytes: its length.
        first: epoch and offset of its first row, as far as the table knows.
        written_at_s: when, in seconds since the Unix epoch.
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
    """The groups of files that are to become one each, small files first.

    Args:
        files: all of the table.
        merge_files: so many of a tier are enough.
        file_bytes: the size to reach for.
        now_s: seconds since the Unix epoch.
    """
    partitions: dict[tuple[object, ...], list[LiveFile]] = {}
    for file in files:
        partitions.setdefault(file.partition, []).append(file)
    groups: list[list[LiveFile]] = []
    for members in partitions.values():
        newest_s = max(file.written_at_s for file in members)
        enough = _AT_REST_FILES if newest_s < now_s - REST_S else merge_files
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
    """How often `rows` can be divided by `merge_files`."""
    tier = 0
    while rows >= merge_files:
        rows //= merge_files
        tier += 1
    return tier


def _packed(
    tier: Sequence[LiveFile], enough: int, files_max: int, file_bytes: int
) -> Iterator[list[LiveFile]]:
    """Neighbours by offset, as many as make one file; too few of them wait for more."""
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
