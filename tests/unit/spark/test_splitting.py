"""How much of each log a batch takes, and into how many tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.splitting import count_parts, divide_limit, split_range


@pytest.mark.parametrize(
    ("backlogs", "limit", "expected"),
    [
        ({"a": 10, "b": 30}, None, {"a": 10, "b": 30}),
        ({"a": 10, "b": 30}, 40, {"a": 10, "b": 30}),
        ({"a": 10, "b": 30}, 20, {"a": 5, "b": 15}),
        ({"a": 1, "b": 1000}, 100, {"a": 1, "b": 99}),
        ({"a": 0, "b": 1000}, 100, {"a": 0, "b": 100}),
        ({"a": 1, "b": 1000}, 1, {"a": 1, "b": 1}),
        ({}, 5, {}),
    ],
)
def test_a_batch_takes_of_each_log_in_proportion_to_what_waits(
    backlogs: dict[str, int], limit: int | None, expected: dict[str, int]
) -> None:
    assert divide_limit(backlogs, limit) == expected


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 2**62), max_size=8), st.integers(1, 2**62)
)
def test_no_log_starves_and_none_gives_more_than_it_has(
    backlogs: dict[str, int], limit: int
) -> None:
    found = divide_limit(backlogs, limit)
    assert found.keys() == backlogs.keys()
    assert sum(found.values()) <= limit + len(backlogs)
    for log, backlog in backlogs.items():
        assert min(1, backlog) <= found[log] <= backlog


@pytest.mark.parametrize(
    ("sizes", "parts_min", "size_max", "expected"),
    [
        ([], 4, None, []),
        ([100], 4, None, [4]),
        ([100, 300], 4, None, [1, 3]),
        ([100, 300], 1, None, [1, 1]),
        ([1, 399], 4, None, [1, 4]),
        ([3], 8, None, [3]),
        ([100], 1, 30, [4]),
        ([100, 10], 2, 10, [10, 1]),
        ([100], 20, 10, [20]),
    ],
)
def test_ranges_are_split_in_proportion_and_no_part_is_too_large(
    sizes: list[int], parts_min: int, size_max: int | None, expected: list[int]
) -> None:
    assert count_parts(sizes, parts_min, size_max) == expected


@pytest.mark.parametrize(
    ("start", "end", "parts", "expected"),
    [
        (0, 10, 3, [(0, 3), (3, 6), (6, 10)]),
        (5, 7, 2, [(5, 6), (6, 7)]),
        (0, 1, 1, [(0, 1)]),
    ],
)
def test_a_range_is_split_evenly(
    start: int, end: int, parts: int, expected: list[tuple[int, int]]
) -> None:
    assert split_range(start, end, parts) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1], [1]), ([100], [1]), ([101], [2]), ([1000], [8]), ([1000, 50], [8, 1])],
)
def test_no_part_is_made_that_would_be_too_small(sizes: list[int], expected: list[int]) -> None:
    assert count_parts(sizes, 8, None, 100) == expected
