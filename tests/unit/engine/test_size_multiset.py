"""The smallest of the sizes that wait, as they come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.batch.size_multiset import WaitingSizes
from penstock.engine.limits import OUT_OF_DATE_MAX


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_the_smallest_is_known_whoever_leaves(steps: list[tuple[bool, int]]) -> None:
    sizes = WaitingSizes()
    there: list[int] = []
    for joins, size in steps:
        if joins:
            sizes.add(size)
            there.append(size)
        elif size in there:
            sizes.remove(size)
            there.remove(size)
        assert sizes.smallest() == min(there, default=0)


def test_one_that_comes_and_goes_leaves_nothing() -> None:
    sizes = WaitingSizes()
    sizes.add(1)
    for _ in range(1000):
        sizes.add(5)
        sizes.remove(5)
    assert len(sizes._heap) <= 2 + OUT_OF_DATE_MAX + 1
