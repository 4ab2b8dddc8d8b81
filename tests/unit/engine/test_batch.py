"""The open batch: filled, sealed, and empty again."""

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.values.message import Message
from penstock.engine.values.records import SessionRecord, SubscriptionRecord
from penstock.protocol.packets import (
    Subscription,
)


def test_a_batch_is_empty_after_it_was_sealed() -> None:
    context = EngineContext(7)
    context.batch.append(Message("t", b"x", 1))
    context.batch.put_session(SessionRecord("c", 1, 10, 0))
    context.batch.put_subscription(SubscriptionRecord(1, "t", Subscription("t", 1)))
    context.batch.put_retained("t", None)
    context.batch.put_will("c", None)
    commit = context.seal()
    assert commit.has_writes
    assert (commit.base_offset, commit.next_offset) == (7, 8)
    assert len(commit.sessions) == len(commit.subscriptions) == 1
    assert len(commit.retained) == len(commit.wills) == 1
    empty = context.seal()
    assert not empty.has_writes
    assert (empty.base_offset, empty.next_offset) == (8, 8)


def test_offsets_are_given_in_order_over_batches() -> None:
    context = EngineContext(3)
    messages = [Message("t", b"") for _ in range(4)]
    context.batch.append(messages[0])
    context.batch.append(messages[1])
    context.seal()
    context.batch.append(messages[2])
    context.batch.append(messages[3])
    commit = context.seal()
    assert [message.offset for message in messages] == [3, 4, 5, 6]
    assert commit.base_offset == 5


def test_a_batch_of_columns_holds_what_was_appended_before_and_after_it_was_asked_for() -> None:
    context = EngineContext(3)
    for number in range(3):
        if number == 1:
            context.batch.collect_columns()
            context.batch.collect_columns()
        context.batch.append(Message(f"t/{number}", b"x", client_id="c"))
    commit = context.seal()
    assert commit.messages == []
    assert commit.columns is not None
    assert commit.columns.topics.data() == b"t/0t/1t/2"
    assert commit.has_writes
    assert (commit.appended_count, commit.next_offset) == (3, 6)
    empty = context.seal()
    assert not empty.has_writes
    context.batch.append(Message("t", b"x"))  # while the empty one is written
    assert not empty.has_writes
    assert (empty.base_offset, empty.next_offset, empty.appended_count) == (6, 6, 0)
    assert commit.columns.count == 3
    assert context.seal().appended_count == 1


def test_the_last_word_about_a_key_is_written() -> None:
    context = EngineContext(0)
    context.batch.put_retained("t", Message("t", b"1"))
    context.batch.put_retained("t", Message("t", b"2"))
    context.batch.put_session(SessionRecord("c", 1, 10, 0))
    context.batch.put_session(SessionRecord("c", 1, 10, 99))
    commit = context.seal()
    assert [message.payload for _, message in commit.retained if message] == [b"2"]
    assert [record.disconnected_at_us for record in commit.sessions] == [99]


def test_a_session_that_ends_in_the_batch_of_its_beginning_leaves_no_trace() -> None:
    context = EngineContext(0)
    context.batch.put_session(SessionRecord("c", 1, 10, 0))
    context.batch.put_subscription(SubscriptionRecord(1, "t", Subscription("t", 1)))
    context.batch.end_session("c", 1)
    context.batch.put_session(SessionRecord("c", 2, 10, 0))
    commit = context.seal()
    assert commit.ended == [("c", 1)]
    assert [record.number for record in commit.sessions] == [2]
    assert commit.subscriptions == []


def test_the_size_of_a_batch_is_known() -> None:
    context = EngineContext(0)
    context.batch.append(Message("t", b"x" * 1000))
    assert context.batch.size_bytes >= 1000
    context.seal()
    assert context.batch.size_bytes == 0
