"""Which limit holds a queue up, how often and for how long."""

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.session.congestion import NOTHING, Congestion
from penstock.engine.session.queue import MessageQueue
from penstock.engine.values.clock import Now
from penstock.engine.values.limit_usage import QUEUE, WINDOW, WRITE_BUFFER
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Delivery, Message


def at(seconds: float) -> Now:
    return Now(seconds, int(seconds * 1_000_000))


def used(congestion: Congestion, limit: int, now_s: float) -> tuple[int, float]:
    """How often the limit was reached, and for how many seconds in all."""
    usage = congestion.usage(limit)
    assert usage is not None
    return usage.times, usage.total_s(now_s)


def test_nothing_is_known_of_a_client_that_never_reached_a_limit() -> None:
    context = EngineContext(0)
    congestion = Congestion("c", context)
    congestion.set_cause(NOTHING, at(1.0))
    queue = MessageQueue(EngineLimits(max_mqueue_len=2), is_stored=True)
    congestion.update_queue_full(queue, at(1.0))
    assert not congestion.was_at_limit
    assert congestion.usage(WINDOW) is None
    assert context.take_newly_reached() == []


def test_a_queue_waits_for_one_limit_at_a_time() -> None:
    context = EngineContext(0)
    congestion = Congestion("c", context)
    congestion.set_cause(WINDOW, at(1.0))
    congestion.set_cause(WINDOW, at(2.0))
    congestion.set_cause(WRITE_BUFFER, at(4.0))
    congestion.set_cause(NOTHING, at(9.0))
    assert used(congestion, WINDOW, 100.0) == (1, 3.0)
    assert used(congestion, WRITE_BUFFER, 100.0) == (1, 5.0)
    assert [one.limit for one in context.take_newly_reached()] == [WINDOW, WRITE_BUFFER]


def test_a_queue_that_was_full_counts_as_full_until_half_of_it_is_free() -> None:
    congestion = Congestion("c", EngineContext(0))
    queue = MessageQueue(EngineLimits(max_mqueue_len=4), is_stored=True)
    for _ in range(4):
        queue.push(Delivery(Message("t", b""), -1, 1))
    congestion.update_queue_full(queue, at(1.0))
    for left, seconds in ((3, 2.0), (2, 3.0)):
        queue.pop()
        assert len(queue) == left
        congestion.update_queue_full(queue, at(seconds))
        assert used(congestion, QUEUE, seconds) == (1, seconds - 1.0)
    queue.pop()
    congestion.update_queue_full(queue, at(4.0))
    assert used(congestion, QUEUE, 100.0) == (1, 3.0)


def test_a_message_that_did_not_fit_makes_the_queue_full_once() -> None:
    congestion = Congestion("c", EngineContext(0))
    queue = MessageQueue(EngineLimits(max_mqueue_bytes=100), is_stored=True)
    queue.has_overflowed = True
    congestion.update_queue_full(queue, at(1.0))
    congestion.update_queue_full(queue, at(2.0))
    assert used(congestion, QUEUE, 100.0) == (1, 1.0)
