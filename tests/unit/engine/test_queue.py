"""The message queue and what it drops."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.session.queue import MessageQueue
from penstock.engine.values.limits import (
    DROP_NEWEST,
    DROP_OLDEST,
    SPILL,
    EngineLimits,
)
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.priorities import SLOT_SHIFT


def delivery(name: str, qos: int, offset: int = -1, sequence: int = 0) -> Delivery:
    return Delivery(Message(name, b"", qos), offset, qos, sequence=sequence)


def bounded(max_len: int = 0, max_bytes: int = 0, overflow: str = DROP_OLDEST) -> MessageQueue:
    limits = EngineLimits(
        max_mqueue_len=max_len, max_mqueue_bytes=max_bytes, mqueue_overflow=overflow
    )
    return MessageQueue(limits, is_stored=True)


def name(item: Delivery) -> str:
    return item.message.topic if item.message else ""


def names(queue: MessageQueue) -> list[str]:
    return [name(item) for item in queue.waiting(10_000)]


def add(queue: MessageQueue, item: Delivery, priority: int = 0) -> list[str]:
    """Queue ``item`` if the policy says so; the names of what went for it, or its own."""
    dropped: list[Delivery] = []
    if queue.has_room(item.size_bytes) or queue.make_room(
        item.qos, item.size_bytes, priority, dropped
    ):
        queue.push(item, priority)
    else:
        dropped.append(item)
    return [name(item) for item in dropped]


def filled(max_len: int, kinds: str) -> MessageQueue:
    """A queue of deliveries a, b, c … with these levels of QoS."""
    queue = bounded(max_len)
    for position, qos in enumerate(kinds):
        queue.push(delivery("abcdefgh"[position], int(qos)))
    return queue


def test_first_in_first_out() -> None:
    queue = filled(0, "1201")
    assert [queue.pop().qos for _ in range(4)] == [1, 2, 0, 1]
    assert queue.head() is None


def test_a_full_queue_drops_the_oldest_qos_0_first() -> None:
    queue = filled(4, "1020")
    assert add(queue, delivery("new", 1)) == ["b"]
    assert names(queue) == ["a", "c", "d", "new"]


def test_a_full_queue_without_qos_0_drops_the_oldest() -> None:
    queue = filled(3, "212")
    assert add(queue, delivery("new", 0)) == ["a"]
    assert names(queue) == ["b", "c", "new"], "the new message is always kept"


def test_no_limit_drops_nothing() -> None:
    queue = bounded()
    assert not any(add(queue, delivery("t", 1)) for _ in range(5000))
    assert len(queue) == 5000


@given(st.integers(0, 5), st.lists(st.integers(-1, 2), max_size=40))
def test_against_a_list(max_len: int, steps: list[int]) -> None:
    """-1 pops, the rest pushes with that QoS."""
    queue, expected = bounded(max_len), list[tuple[str, int]]()
    for number, step in enumerate(steps):
        if step < 0:
            if expected:
                assert name(queue.pop()) == expected.pop(0)[0]
            continue
        loser = []
        if max_len and len(expected) == max_len:
            goes = next((item for item in expected if item[1] == 0), expected[0])
            expected.remove(goes)
            loser = [goes[0]]
        expected.append((str(number), step))
        assert add(queue, delivery(str(number), step)) == loser
        assert queue.qos0_count == sum(qos == 0 for _, qos in expected)
    assert names(queue) == [name for name, _ in expected]


def test_drop_newest_drops_what_comes() -> None:
    queue = bounded(2, overflow=DROP_NEWEST)
    assert [add(queue, delivery(name, 1)) for name in "abc"] == [[], [], ["c"]]
    assert names(queue) == ["a", "b"]


def test_bytes_are_bounded() -> None:
    """Several small ones go for a large one; one that never fits goes alone."""
    queue = bounded(max_bytes=100)
    for topic, size_bytes in (("a", 30), ("b", 30), ("c", 30)):
        assert add(queue, sized(topic, size_bytes)) == []
    assert add(queue, sized("d", 60)) == ["a", "b"]
    assert queue.size_bytes == 90
    assert add(queue, sized("e", 101)) == ["e"]
    assert [name(queue.pop()) for _ in range(2)] == ["c", "d"]
    assert queue.size_bytes == 0


def sized(topic: str, size_bytes: int, qos: int = 1) -> Delivery:
    item = delivery(topic, qos)
    item.size_bytes = size_bytes
    return item


def test_priorities_are_emptied_highest_first_and_each_in_its_order() -> None:
    queue = bounded()
    for topic, priority in (("a", 0), ("b", 5), ("c", 9), ("d", 5), ("e", 0)):
        queue.push(delivery(topic, 1), priority)
    assert [name(queue.pop()) for _ in range(len(queue))] == ["c", "b", "d", "a", "e"]


def test_the_default_priority_stands_among_the_others() -> None:
    queue = MessageQueue(EngineLimits(mqueue_default_priority=7), is_stored=True)
    for topic, priority in (("a", 5), ("b", 0), ("c", 9)):
        queue.push(delivery(topic, 1), priority)
    assert [name(queue.pop()) for _ in range(3)] == ["c", "b", "a"]


def test_nothing_of_a_higher_priority_goes_for_a_lower() -> None:
    queue = bounded(2)
    queue.push(delivery("alarm", 1), 9)
    queue.push(delivery("qos 0 alarm", 0), 9)
    assert add(queue, delivery("state", 1), 3) == ["state"]
    assert add(queue, delivery("alarm 2", 1), 9) == ["qos 0 alarm"]
    assert add(queue, delivery("alarm 3", 1), 9) == ["alarm"]
    assert names(queue) == ["alarm 2", "alarm 3"]


def test_the_message_of_the_lowest_priority_is_dropped_first() -> None:
    queue = bounded(3)
    for topic, priority in (("a", 5), ("b", 9), ("c", 1)):
        queue.push(delivery(topic, 1), priority)
    assert [add(queue, delivery("new", 1), 9) for _ in range(3)] == [["c"], ["a"], ["b"]]


def test_qos_0_of_another_lane_goes_once_the_first_has_none() -> None:
    queue = bounded(3)
    for offset, (topic, qos, slot) in enumerate((("a", 0, 1), ("b", 1, 1), ("c", 0, 2))):
        queue.push(delivery(topic, qos, offset), slot << SLOT_SHIFT)
    assert [add(queue, delivery("new", 1, 3 + n)) for n in range(3)] == [["a"], ["c"], ["b"]]


def test_spill_keeps_what_the_log_holds_whatever_the_limit() -> None:
    queue = bounded(2, overflow=SPILL)
    for number in range(5000):
        assert add(queue, delivery("t", 1, number, number + 1)) == []
    assert add(queue, delivery("qos 0", 0)) == ["qos 0"]
    assert [queue.pop().offset for _ in range(5000)] == list(range(5000))
    assert len(queue) == 0


def test_spill_without_a_stored_session_is_bounded() -> None:
    limits = EngineLimits(max_mqueue_len=2, mqueue_overflow=SPILL)
    queue = MessageQueue(limits, is_stored=False)
    assert [add(queue, delivery(name, 1)) for name in "abc"] == [[], [], ["a"]]


def test_the_lowest_offset_is_that_of_what_may_be_asked_from_the_log() -> None:
    """A stored session lets go of all bodies in the log when its client goes, another of none."""
    for stored in (True, False):
        queue = MessageQueue(EngineLimits(), stored)
        assert queue.lowest_offset(False) == -1
        queue.push(delivery("not in the log", 1))
        assert queue.lowest_offset(False) == -1
        queue.push(delivery("qos 0", 0, offset=6))
        queue.push(delivery("first", 1, offset=7, sequence=1 if stored else 0))
        queue.push(delivery("second", 1, offset=8, sequence=2 if stored else 0))
        assert queue.lowest_offset(False) == (6 if stored else -1)
