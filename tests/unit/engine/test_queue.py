"""The message queue and what it drops."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.message import Delivery, Message
from penstock.engine.queue import MessageQueue


def delivery(name: str, qos: int, offset: int = -1, sequence: int = 0) -> Delivery:
    return Delivery(Message(name, b"", qos), offset, qos, sequence=sequence)


def names(queue: MessageQueue) -> list[str]:
    return [item.message.topic if item.message else "" for item in queue.waiting()]


def filled(max_len: int, kinds: str) -> MessageQueue:
    """A queue of deliveries a, b, c … with these levels of QoS."""
    queue = MessageQueue(max_len)
    for position, qos in enumerate(kinds):
        queue.push(delivery("abcdefgh"[position], int(qos)))
    return queue


def test_first_in_first_out() -> None:
    queue = filled(0, "1201")
    assert [queue.pop().qos for _ in range(4)] == [1, 2, 0, 1]
    assert queue.head() is None


def test_a_full_queue_drops_the_oldest_qos_0_first() -> None:
    queue = filled(4, "1020")
    dropped = queue.push(delivery("new", 1))
    assert dropped is not None
    assert dropped.message is not None
    assert dropped.message.topic == "b"
    assert names(queue) == ["a", "c", "d", "new"]


def test_a_full_queue_without_qos_0_drops_the_oldest() -> None:
    queue = filled(3, "212")
    dropped = queue.push(delivery("new", 0))
    assert dropped is not None
    assert dropped.message is not None
    assert dropped.message.topic == "a"
    assert names(queue) == ["b", "c", "new"], "the new message is always kept"


def test_no_limit_drops_nothing() -> None:
    queue = MessageQueue(0)
    assert all(queue.push(delivery("t", 1)) is None for _ in range(5000))
    assert len(queue) == 5000


@given(st.integers(0, 5), st.lists(st.integers(-1, 2), max_size=40))
def test_against_a_list(max_len: int, steps: list[int]) -> None:
    """-1 pops, the rest pushes with that QoS."""
    queue, expected = MessageQueue(max_len), list[tuple[str, int]]()
    for number, step in enumerate(steps):
        if step < 0:
            if expected:
                taken = queue.pop()
                assert (taken.message and taken.message.topic) == expected.pop(0)[0]
            continue
        dropped = queue.push(delivery(str(number), step))
        loser = None
        if max_len and len(expected) == max_len:
            loser = next((item for item in expected if item[1] == 0), expected[0])
            expected.remove(loser)
        expected.append((str(number), step))
        assert (dropped is None) == (loser is None)
        if dropped is not None and loser is not None:
            assert (dropped.message and dropped.message.topic) == loser[0]
        assert queue.qos0_count == sum(qos == 0 for _, qos in expected)
    assert names(queue) == [name for name, _ in expected]


def resting(offsets: list[int]) -> MessageQueue:
    """A queue whose bodies are in the log only."""
    queue = MessageQueue(0)
    for offset in offsets:
        queue.push(Delivery(None, offset, 1, sequence=offset + 1))
    return queue


def test_bodies_are_asked_for_up_to_the_first_that_is_there() -> None:
    queue = resting([3, 4])
    queue.push(delivery("here", 1, 5, 6))
    queue.push(Delivery(None, 6, 1, sequence=7))
    assert queue.without_body(10) == [3, 4]
    assert queue.without_body(1) == [3]


def test_bodies_are_supplied_in_order_up_to_the_first_that_is_missing() -> None:
    queue = resting([3, 4, 5])
    queue.supply({3: Message("x", b""), 5: Message("z", b"")})
    assert [item.message is not None for item in queue.waiting()] == [True, False, False]


def test_the_lowest_offset_passes_over_what_is_not_stored() -> None:
    queue = MessageQueue(0)
    assert queue.lowest_offset(False) == -1
    queue.push(delivery("qos 0", 0, offset=1))
    queue.push(delivery("not in the log", 1))
    assert queue.lowest_offset(False) == -1
    queue.push(delivery("stored", 1, offset=7, sequence=1))
    queue.push(delivery("stored", 1, offset=8, sequence=2))
    assert queue.lowest_offset(False) == 7
