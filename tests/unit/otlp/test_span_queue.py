"""Spans that wait for the collector: bounded, offered again, given up after a while."""

from penstock.otlp.message_traces import RECEIVE, Span
from penstock.otlp.span_queue import BATCH_MAX, GIVE_UP_S, SpanQueue


def span(number: int) -> Span:
    return Span(1, number, 0, False, RECEIVE, 0, 0, {})


def test_the_limit_counts_those_that_are_under_way_too() -> None:
    queue = SpanQueue(3)
    for number in range(3):
        queue.put(span(number))
    assert len(queue.batch(0.0)) == 3
    queue.put(span(3))
    assert (len(queue), queue.dropped) == (3, 1)
    queue.mark_sent()
    queue.put(span(4))
    assert [one.span_id for one in queue.batch(0.0)] == [4]
    assert (queue.sent, queue.dropped) == (3, 1)


def test_spans_go_in_batches() -> None:
    queue = SpanQueue(2 * BATCH_MAX)
    for number in range(BATCH_MAX + 1):
        queue.put(span(number))
    assert len(queue.batch(0.0)) == BATCH_MAX
    queue.mark_sent()
    assert len(queue.batch(0.0)) == 1


def test_a_refused_batch_is_offered_again_until_it_is_given_up() -> None:
    queue = SpanQueue(10)
    queue.put(span(1))
    first = queue.batch(100.0)
    queue.put(span(2))
    queue.retry_or_drop(100.0 + GIVE_UP_S - 1)
    assert queue.batch(0.0) is first
    queue.retry_or_drop(100.0 + GIVE_UP_S)
    assert queue.dropped == 1
    assert [one.span_id for one in queue.batch(0.0)] == [2]
