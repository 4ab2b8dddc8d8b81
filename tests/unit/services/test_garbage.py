"""What has grown old is collected in portions, and what is alive looked at once."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from penstock.services.garbage import (
    collect_and_freeze,
    collect_if_due,
    collect_in_portions,
    freezing,
)


class Node:
    def __init__(self) -> None:
        self.itself: Node | None = None


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def cycle() -> "weakref.ref[Node]":
    node = Node()
    node.itself = node
    return weakref.ref(node)


def grow_old() -> None:
    """One collection of the young."""
    gc.collect(0)


def is_looked_at(node: Node) -> bool:
    return any(one is node for one in gc.get_objects())


def begin() -> None:
    """``collect_in_portions``, again if a thread of another test collects at this very moment."""
    node = Node()
    collect_in_portions()
    while is_looked_at(node):
        collect_in_portions()


def test_an_object_there_at_the_start_is_set_aside() -> None:
    node, garbage = Node(), cycle()
    assert is_looked_at(node)
    begin()
    assert not is_looked_at(node)
    assert garbage() is None


def test_nothing_is_set_aside_uncollected_because_another_thread_collects() -> None:
    inside, leave = threading.Event(), threading.Event()

    class Slow(Node):
        def __del__(self) -> None:
            inside.set()
            assert leave.wait(10)

    def collect() -> None:
        slow = Slow()
        slow.itself = slow
        del slow
        gc.collect()

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        assert inside.wait(10)
        garbage = cycle()
        collect_and_freeze()
    finally:
        leave.set()
        thread.join()
    begin()
    assert garbage() is None


def test_a_portion_is_collected_and_set_aside_and_less_than_that_is_not() -> None:
    begin()
    node, garbage = Node(), cycle()
    gc.disable()  # none by itself meanwhile
    try:
        while is_looked_at(node):
            grow_old()
            assert gc.get_count()[1] < 1000
            before = gc.get_count()[1]
            collect_if_due()
            assert is_looked_at(node) == (gc.get_count()[1] == before)
        assert before > 1
    finally:
        gc.enable()
    assert garbage() is None


def test_only_a_collection_of_the_young_comes_by_itself() -> None:
    begin()
    young, *older = [generation["collections"] for generation in gc.get_stats()]
    kept = [Node() for _ in range(300_000)]
    now_young, *now_older = [generation["collections"] for generation in gc.get_stats()]
    assert now_young > young
    assert now_older == older
    del kept


def test_an_object_set_aside_is_freed_by_its_reference_count() -> None:
    node = Node()
    reference = weakref.ref(node)
    begin()
    del node
    assert reference() is None


def test_a_recovered_object_is_not_looked_at_once() -> None:
    begin()
    before = [generation["collections"] for generation in gc.get_stats()]
    with freezing():
        nodes = [Node() for _ in range(10_000)]
        assert [generation["collections"] for generation in gc.get_stats()] == before
    assert gc.isenabled()
    assert not is_looked_at(nodes[0])
    assert not is_looked_at(nodes[-1])
