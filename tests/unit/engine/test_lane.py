"""Lanes of a queue: order, packed tails, bodies that are in the log only, and what each costs."""

import tracemalloc
from collections.abc import Callable
from inspect import isfunction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.session.lane import Lane
from penstock.engine.session.queue import MessageQueue
from penstock.engine.values.limits import (
    OUT_OF_DATE_MAX,
    SPILL,
    EngineLimits,
)
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.priorities import PRIORITY_SHIFT, SLOT_SHIFT
from tests.unit.engine.test_queue import add, bounded, delivery, filled, name, names


def test_a_run_restored_into_a_lane_that_was_looked_at_is_found() -> None:
    queue = bounded()
    number = 1 << SLOT_SHIFT
    queue.push(delivery("a", 1, 5), number)
    assert name(queue.pop()) == "a"
    assert queue.head() is None
    run = PackedRun(number << PRIORITY_SHIFT)
    assert run.add(run.first, 7, 1, (1, False, (), None))
    queue.restore(run, 0)
    head = queue.head()
    assert head is not None
    assert head.offset == 7


def test_a_delivery_that_leaves_a_lane_behind_the_first_leaves_nothing_in_the_order() -> None:
    queue = bounded()
    first = delivery("stays", 1, 0)
    queue.push(first)
    for offset in range(1, 1000):
        item = delivery("goes", 1, offset)
        queue.push(item, 1 << SLOT_SHIFT)
        assert queue.head() is first
        lane = queue._lane(1 << SLOT_SHIFT)
        assert lane.peek(0) is item
        assert queue.remove(lane, item)
        assert sum(len(rank._heap) for rank in queue._ranks) <= 2 * 2 + OUT_OF_DATE_MAX


@given(st.lists(st.sampled_from("0000111111p"), max_size=300), st.integers(0, 3))
def test_a_long_lane_is_packed_and_keeps_its_order(steps: list[str], multiple: int) -> None:
    """QoS 0 stands where it came, between what is packed."""
    queue, expected, sequence = bounded(), list[tuple[int, int]](), 0
    for number, step in enumerate(steps * 40 * multiple):
        if step == "p":
            if expected:
                taken = queue.pop()
                assert (taken.qos, taken.offset) == expected.pop(0)
            continue
        if step == "1":
            sequence += 1
        queue.push(delivery("t", int(step), number, sequence if step == "1" else 0))
        expected.append((int(step), number))
    assert len(queue) == len(expected)
    popped = [queue.pop() for _ in range(len(expected))]
    assert [(item.qos, item.offset) for item in popped] == expected


def test_dropped_qos_0_does_not_pile_up_behind_a_head_that_stands() -> None:
    queue = bounded(10)
    queue.push(delivery("head", 1))
    for _ in range(10_000):
        add(queue, delivery("t", 0))
    assert len(queue) == 10
    assert len(queue._first._head) < 200


def test_a_million_deliveries_take_megabytes() -> None:
    """Issue 4 asks for less than 32 MiB; bodies lie in the log."""
    tracemalloc.start()
    queue = bounded(overflow=SPILL)
    for number in range(1, 200_001):
        queue.push(Delivery(None, number, 1, sequence=number))
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes * 5 < 32 * 1024**2


def test_asking_for_a_few_bodies_copies_no_line() -> None:
    """Or a client that is back and finds many QoS 0 messages would wait for their square."""
    queue = bounded()
    for number in range(1, 1101):
        queue.push(Delivery(None, number, 1, sequence=number))
    for number in range(1101, 21_101):
        queue.push(Delivery(None, number, 0))
    tracemalloc.start()
    asked = queue.qos0_offsets_without_body(8)
    assert asked == list(range(1101, 1109))
    queue.supply({offset: Message("t", b"") for offset in asked})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20_000


def resting(offsets: list[int]) -> MessageQueue:
    """A queue whose bodies are in the log only."""
    queue = bounded()
    for offset in offsets:
        queue.push(Delivery(None, offset, 1, sequence=offset + 1))
    return queue


def test_bodies_are_asked_for_up_to_the_first_that_is_there() -> None:
    queue = resting([3, 4])
    queue.push(delivery("here", 1, 5, 6))
    queue.push(Delivery(None, 6, 1, sequence=7))
    assert queue.offsets_without_body(10) == [3, 4]
    assert queue.offsets_without_body(1) == [3]


def test_bodies_are_supplied_in_order_up_to_the_first_that_is_missing() -> None:
    queue = resting([3, 4, 5])
    queue.supply({3: Message("x", b""), 5: Message("z", b"")})
    assert [item.message is not None for item in queue.waiting(10)] == [True, False, False]


def test_a_delivery_taken_out_of_the_middle_needs_nothing_from_the_log() -> None:
    queue = resting([3, 4])
    for offset in (5, 6):
        queue.push(Delivery(None, offset, 0))
    queue.push(Delivery(None, 7, 1, sequence=3))
    first = queue.first_qos0()
    assert first is not None
    assert first.offset == 5
    assert queue.qos0_offsets_without_body(10) == [5, 6]
    queue.take_qos0()
    assert queue.offsets_without_body(10) == [3, 4, 6, 7]
    queue.supply({offset: Message("t", b"") for offset in (3, 4, 6, 7)})
    assert all(item.message is not None for item in queue.waiting(10))
    for _ in range(2):
        queue.pop()
    queue.evict_to_log()
    assert queue.lowest_offset(True) == 6
    assert (len(queue), queue.qos0_count) == (2, 1)


def test_a_delivery_taken_behind_others_is_no_qos_0_that_waits() -> None:
    queue = filled(4, "1010")
    head, first, _, last = queue.waiting(4)
    assert not queue.remove(queue.first_lane, first)
    assert queue.remove(queue.first_lane, head)
    assert (len(queue), queue.qos0_count) == (2, 1)
    assert queue.first_qos0() is last
    queue.max_len = 3
    assert add(queue, delivery("new", 1)) == []
    assert add(queue, delivery("newer", 1)) == ["d"]
    assert names(queue) == ["c", "new", "newer"]


def test_deliveries_between_packed_ones_are_needed_from_the_log() -> None:
    packed = resting([3, 4])
    for sequence in range(3, 2000):
        packed.push(Delivery(None, 1000 + sequence, 1, sequence=sequence))
    packed.push(Delivery(None, 2, 0))
    assert packed.lowest_offset(True) == 2


PLACE = st.tuples(st.integers(0, 4), st.sampled_from([0, 3, 7]))  # slot, priority
STEP = st.one_of(
    st.tuples(st.just("push"), PLACE, st.integers(0, 1)),
    st.tuples(st.sampled_from(["pop", "drop", "qos 0", "oldest"]), PLACE, st.just(0)),
    st.tuples(st.just("take"), PLACE, st.integers(0, 3)),
)


@given(st.lists(STEP, min_size=20, max_size=60), st.sampled_from([0, 3, 5]))
def test_lanes_against_the_definition(
    steps: list[tuple[str, tuple[int, int], int]], default_priority: int
) -> None:
    """The highest priority first, of equal ones the lowest offset; QoS 0 goes first for others."""
    limits = EngineLimits(max_mqueue_len=0, mqueue_default_priority=default_priority)
    queue = MessageQueue(limits, is_stored=True)
    model: dict[Delivery, tuple[int, int]] = {}  # those that wait: rank, number of the lane

    def first(qos: int = 2) -> Delivery | None:
        known = [item for item in model if item.qos <= qos]
        return min(known, key=lambda item: (-model[item][0], item.offset), default=None)

    for offset, (what, (slot, priority), number) in enumerate(steps):
        if what == "push":
            item = delivery("t", number, offset)
            lane = (slot << SLOT_SHIFT) + priority
            model[item] = (priority or default_priority, lane)
            queue.push(item, lane)
        elif what == "pop" and model:
            expected = first()
            assert expected is not None
            assert queue.pop() is expected
            del model[expected]
        elif what == "drop" and model:
            victims = sorted(model, key=lambda item: (item.qos, model[item][0], item.offset))
            dropped: list[Delivery] = []
            queue.max_len = len(model)
            rank_max = priority or default_priority
            may_go = [item for item in victims if model[item][0] <= rank_max]
            assert queue.make_room(1, 0, priority, dropped) == bool(may_go)
            queue.max_len = 0
            for item in dropped:
                assert model[item][0] <= rank_max
                assert item.qos == min(other.qos for other in may_go)
                assert model[item][0] == model[may_go[0]][0]
                if item.qos > 0:
                    assert item is may_go[0]
                del model[item]
        elif what == "qos 0":
            waiting = queue.first_qos0()
            expected = first(0)
            assert (waiting is None) == (expected is None)
            if waiting is not None and expected is not None:
                assert model[waiting][0] == model[expected][0]
                queue.take_qos0()
                del model[waiting]
        elif what == "take":
            lane_number = (slot << SLOT_SHIFT) + priority
            waits = [item for item in model if model[item][1] == lane_number]
            assert queue.has_in_lane(lane_number) == bool(waits)
            if number < len(waits):
                found = queue._lane(lane_number)
                assert queue.remove(found, waits[number]) == (number == 0)
                assert waits[number].is_removed == (number > 0)
                del model[waits[number]]
        else:
            assert queue.oldest() is min(model, key=lambda item: item.offset, default=None)
        assert len(queue) == len(model)
        assert queue.qos0_count == sum(item.qos == 0 for item in model)
        assert queue.head() is first()


def test_a_message_costs_the_same_however_many_lanes_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not isfunction(Lane.head):
        pytest.skip("calls of compiled functions cannot be counted")
    looked: list[Lane] = []
    head: Callable[[Lane], Delivery | None] = Lane.head

    def counted(lane: Lane) -> Delivery | None:
        looked.append(lane)
        return head(lane)

    monkeypatch.setattr(Lane, "head", counted)
    queue = bounded()
    for offset in range(10 * 127):
        queue.push(delivery("t", 1, offset), 1 + offset % 127 << SLOT_SHIFT)
    assert queue.head() is not None
    looked.clear()
    for offset in range(10 * 127):
        assert queue.pop().offset == offset
    assert len(looked) <= 5 * 10 * 127
