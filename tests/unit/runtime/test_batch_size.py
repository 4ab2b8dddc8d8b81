"""How large a batch may get: found by how long commits take."""

from __future__ import annotations

import pytest

from penstock.runtime.batch_size import BYTES_FIRST, BYTES_MIN, SLICE_S, BatchSize

MOST = 16 * BYTES_MIN


def settled(bytes_per_s: float, sync_s: float = 0.0) -> list[int]:
    """The sizes that it comes to on a disk of this speed, where every batch is as large."""
    size = BatchSize(MOST)
    for _ in range(50):
        size.adapt(100, sync_s)
    found = []
    for _ in range(200):
        size.adapt(size.bytes_max, sync_s + size.bytes_max / bytes_per_s)
        found.append(size.bytes_max)
    return found[100:]


@pytest.mark.parametrize("bytes_per_s", [200e6, 500e6])
def test_commits_come_to_take_about_a_slice(bytes_per_s: float) -> None:
    sizes = settled(bytes_per_s)
    fitting = SLICE_S * bytes_per_s
    assert max(sizes) <= 1.25 * fitting
    assert min(sizes) >= min(fitting / 2, MOST) * 0.9


def test_the_batch_size_stays_within_its_bounds() -> None:
    assert set(settled(1e12)) == {MOST}
    assert set(settled(1e6)) == {BYTES_MIN}
    assert set(settled(1e12, sync_s=0.1)) == {MOST}  # a smaller batch would take as long
    assert BatchSize(MOST).bytes_max == BYTES_FIRST


def test_a_small_bound_stays_what_it_is() -> None:
    size = BatchSize(65_536)
    size.adapt(10 * BYTES_MIN, 1.0)
    assert size.bytes_max == 65_536


def test_small_commits_say_nothing() -> None:
    size = BatchSize(MOST)
    size.adapt(100, 10 * SLICE_S)
    size.adapt(100, 0.0)
    assert size.bytes_max == BYTES_FIRST


def test_one_that_was_larger_than_it_should_be_counts_as_one_of_the_size() -> None:
    size = BatchSize(MOST)
    size.adapt(256 * BYTES_MIN, 1.0)
    assert size.bytes_max == BYTES_FIRST // 2
