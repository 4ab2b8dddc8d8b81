"""Latencies in buckets, against the sorted list of them."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.histogram import ERROR_MAX, Histogram

LATENCIES = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 1000), min_size=1, max_size=200)


def recorded(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(LATENCIES, st.floats(0, 1))
def test_a_quantile_is_that_of_the_sorted_list_or_a_little_more(
    values: list[int], part: float
) -> None:
    exact = sorted(values)[max(1, ceil(part * len(values))) - 1]
    shown = recorded(values).quantile_ns(part)
    assert exact <= shown <= exact + int(exact * ERROR_MAX)


@given(LATENCIES)
def test_count_mean_and_maximum_are_exact(values: list[int]) -> None:
    histogram = recorded(values)
    assert (histogram.count, histogram.max_ns) == (len(values), max(values))
    assert histogram.mean_ns == pytest.approx(sum(values) / len(values), rel=1e-15)
    assert histogram.quantile_ns(1.0) == max(values)


def test_small_values_are_exact() -> None:
    histogram = recorded(list(range(256)))
    assert [histogram.quantile_ns((value + 1) / 256) for value in range(256)] == list(range(256))


def test_nothing_recorded_is_zero_and_a_clock_that_goes_back_counts_as_zero() -> None:
    assert Histogram().quantile_ns(0.5) == 0
    assert Histogram().mean_ns == 0.0
    histogram = recorded([-5])
    assert (histogram.count, histogram.max_ns, histogram.quantile_ns(0.5)) == (1, 0, 0)
