"""A line keeps its order, whatever its length, and lets go of what was taken."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.fifo import Fifo


@given(st.lists(st.integers(-40, 90), max_size=60))
def test_a_fifo_is_a_deque(steps: list[int]) -> None:
    """So many join; below zero, so many leave; at zero, one joins as the first."""
    line: Fifo[int] = Fifo()
    model: deque[int] = deque()
    for number, step in enumerate(steps):
        if step == 0:
            line.push_front(number)
            model.appendleft(number)
        for joined in range(step):
            line.append(joined)
            model.append(joined)
        for _ in range(min(-step, len(model))):
            assert line.first() == model[0]
            assert line.pop() == model.popleft()
        assert len(line) == len(model)
        assert line.items() == list(model)


@given(st.lists(st.integers(0, 9), max_size=200), st.data())
def test_any_item_of_a_fifo_can_be_taken_out(items: list[int], data: st.DataObject) -> None:
    line: Fifo[int] = Fifo()
    model: deque[int] = deque()
    for item in items:
        line.append(item)
        model.append(item)
    while model:
        if data.draw(st.booleans()):
            assert line.pop() == model.popleft()
        else:
            item = data.draw(st.sampled_from(sorted(model)))
            line.remove(item)
            model.remove(item)
        assert line.items() == list(model)
        assert [line.at(position) for position in range(len(line))] == list(model)
        assert len(line) == len(model)


def test_nothing_is_left_when_it_is_cleared() -> None:
    line: Fifo[int] = Fifo()
    for number in range(5):
        line.append(number)
    line.pop()
    line.clear()
    line.append(9)
    assert line.items() == [9]


def test_a_fifo_lets_go_of_the_items_taken_from_it() -> None:
    """A line that is never empty does not grow with what passes through it."""
    line: Fifo[object] = Fifo()
    for number in range(100):
        line.append(number)
    for number in range(100_000):
        line.append(number)
        line.pop()
    assert len(line) == 100
    assert len(line._items) < 400
