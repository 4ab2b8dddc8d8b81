"""Which files become one: few are left, and no row is written often."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.tables.tiers import IDLE_S, LiveFile, groups_to_merge, tier_of
from tests.support.budget import budget

MIB = 2**20
NOW_S = 1_000_000.0


def file(number: int, rows: int, size_bytes: int = 1000, partition: str = "a") -> LiveFile:
    return LiveFile(f"{number}.parquet", (partition,), rows, size_bytes, ("e", number), NOW_S)


def numbers(groups: list[list[LiveFile]]) -> list[list[int]]:
    return [[one.first[1] for one in group] for group in groups]


def test_ten_files_of_a_size_become_one_and_nine_wait() -> None:
    assert groups_to_merge([file(n, 5) for n in range(9)], 10, MIB, NOW_S) == []
    found = groups_to_merge([file(9 - n, 5) for n in range(10)], 10, MIB, NOW_S)
    assert numbers(found) == [list(range(10))], "in the order of their rows"


def test_files_of_other_sizes_and_partitions_are_left_alone() -> None:
    files = [file(n, 5, partition="ab"[n % 2]) for n in range(19)] + [file(20, 500)]
    assert numbers(groups_to_merge(files, 10, MIB, NOW_S)) == [list(range(0, 19, 2))]


def test_a_full_file_is_not_written_again() -> None:
    files = [file(n, 5, size_bytes=MIB // 2) for n in range(30)]
    assert groups_to_merge(files, 10, MIB, NOW_S) == []


def test_a_group_longer_than_a_file_becomes_several() -> None:
    found = groups_to_merge([file(n, 5, size_bytes=MIB // 3) for n in range(10)], 10, MIB, NOW_S)
    assert numbers(found) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]], "the last one waits"


def test_a_step_has_a_bound_also_in_a_table_nobody_has_looked_after() -> None:
    found = groups_to_merge([file(n, 5, size_bytes=1) for n in range(1000)], 10, MIB, NOW_S)
    assert [len(group) for group in found] == [200] * 5


def test_a_partition_at_rest_keeps_one_file_of_a_size() -> None:
    old = [replace(file(n, 5), written_at_s=NOW_S - IDLE_S - 1) for n in range(3)]
    busy = [file(n, 5, partition="b") for n in range(3, 6)]
    assert numbers(groups_to_merge([*old, *busy], 10, MIB, NOW_S)) == [[0, 1, 2]]
    assert groups_to_merge(old[:1], 10, MIB, NOW_S) == []


@pytest.mark.parametrize(("rows", "tier"), [(0, 0), (1, 0), (9, 0), (10, 1), (99, 1), (1000, 3)])
def test_the_tier_of_a_file_is_the_number_of_its_digits(rows: int, tier: int) -> None:
    assert tier_of(rows, 10) == tier


@settings(max_examples=budget(50), deadline=None)
@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=400),
    st.sampled_from([2, 3, 10]),
    st.integers(1, 40),
)
def test_however_messages_come_files_stay_few_and_no_row_is_written_often(
    landed: list[int], merge_files: int, overhead_bytes: int
) -> None:
    """A file of n rows has `overhead_bytes` thousand bytes and 10 for each row; 1 MiB is full."""
    files: list[LiveFile] = []
    ages: dict[str, int] = {}  # how often the rows of a file were written, at most
    for number, rows in enumerate(landed):
        fresh = file(number, rows, 1000 * overhead_bytes + 10 * rows)
        ages[fresh.path] = 1
        files.append(fresh)
        while groups := groups_to_merge(files, merge_files, MIB, NOW_S):
            for group in groups:
                assert len(group) >= 2
                whole = sum(one.rows for one in group)
                merge_partials = LiveFile(
                    f"{len(ages)}-merged", ("a",), whole,
                    1000 * overhead_bytes + 10 * whole, group[0].first, NOW_S,
                )  # fmt: skip
                ages[merge_partials.path] = 1 + max(ages[one.path] for one in group)
                files = [one for one in files if one not in group] + [merge_partials]
    assert sum(one.rows for one in files) == sum(landed)
    rows = sum(landed)
    tiers = 1 + math.floor(math.log(max(rows, 1), merge_files) + 1e-9)
    small = [one for one in files if one.size_bytes < MIB / 2]
    assert len(small) <= (merge_files - 1) * tiers
    assert max(ages.values(), default=1) <= tiers + 1
