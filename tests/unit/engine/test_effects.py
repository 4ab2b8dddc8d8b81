"""Effects: what leaves when, and in which order it is written."""

from penstock.engine.effects import Effects
from penstock.engine.link import Link
from penstock.engine.message import Message
from penstock.engine.records import SessionRecord, SubscriptionRecord
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from tests.unit.engine.bench import Bench


def opened_link(effects: Effects) -> Link:
    link = Link(effects)
    link.opened = True
    return link


def test_held_bytes_wait_for_their_commit_and_keep_their_order() -> None:
    """[MQTT-4.6.0-2]"""
    effects = Effects(0)
    link = opened_link(effects)
    link.hold(b"1")
    link.hold_ack(b"2")
    first = effects.seal()
    link.hold(b"3")
    second = effects.seal()
    assert link.take_ready() == b""
    assert [release.data for release in first.releases] == [b"12"]
    assert [release.data for release in second.releases] == [b"3"]
    assert link.unreleased_acks == 1
    first.releases[0].done()
    assert link.unreleased_acks == 0


def test_sent_bytes_wait_for_nothing() -> None:
    effects = Effects(0)
    link = opened_link(effects)
    link.send(b"1")
    link.send(b"2")
    assert effects.ready == [link]
    assert link.take_ready() == b"12"


def test_nothing_passes_the_connack() -> None:
    """[MQTT-3.2.0-1]"""
    effects = Effects(0)
    link = Link(effects)
    link.hold(b"connack")
    link.send(b"1")
    assert effects.ready == []
    assert [release.data for release in effects.seal().releases] == [b"connack1"]


def test_a_farewell_passes_everything() -> None:
    effects = Effects(0)
    link = Link(effects)
    link.hold(b"connack")
    link.send_last(b"bye")
    assert link.take_ready() == b"bye"


def test_a_batch_is_empty_after_it_was_sealed() -> None:
    effects = Effects(7)
    effects.append(Message("t", b"x", 1))
    effects.put_session(SessionRecord("c", 1, 10, 0))
    effects.put_subscription(SubscriptionRecord(1, "t", Subscription("t", 1)))
    effects.put_retained("t", None)
    effects.put_will("c", None)
    commit = effects.seal()
    assert commit.writes
    assert (commit.base_offset, commit.next_offset) == (7, 8)
    assert len(commit.sessions) == len(commit.subscriptions) == 1
    assert len(commit.retained) == len(commit.wills) == 1
    empty = effects.seal()
    assert not empty.writes
    assert (empty.base_offset, empty.next_offset) == (8, 8)


def test_offsets_are_given_in_order_over_batches() -> None:
    effects = Effects(3)
    messages = [Message("t", b"") for _ in range(4)]
    effects.append(messages[0])
    effects.append(messages[1])
    effects.seal()
    effects.append(messages[2])
    effects.append(messages[3])
    commit = effects.seal()
    assert [message.offset for message in messages] == [3, 4, 5, 6]
    assert commit.base_offset == 5


def test_the_last_word_about_a_key_is_written() -> None:
    effects = Effects(0)
    effects.put_retained("t", Message("t", b"1"))
    effects.put_retained("t", Message("t", b"2"))
    effects.put_session(SessionRecord("c", 1, 10, 0))
    effects.put_session(SessionRecord("c", 1, 10, 99))
    commit = effects.seal()
    assert [message.payload for _, message in commit.retained if message] == [b"2"]
    assert [record.disconnected_at_us for record in commit.sessions] == [99]


def test_a_session_that_ends_in_the_batch_of_its_beginning_leaves_no_trace() -> None:
    effects = Effects(0)
    effects.put_session(SessionRecord("c", 1, 10, 0))
    effects.put_subscription(SubscriptionRecord(1, "t", Subscription("t", 1)))
    effects.end_session("c", 1)
    effects.put_session(SessionRecord("c", 2, 10, 0))
    commit = effects.seal()
    assert commit.ended == [("c", 1)]
    assert [record.number for record in commit.sessions] == [2]
    assert commit.subscriptions == []


def test_the_size_of_a_batch_is_known() -> None:
    effects = Effects(0)
    effects.append(Message("t", b"x" * 1000))
    assert effects.size_bytes >= 1000
    effects.seal()
    assert effects.size_bytes == 0


def test_every_acknowledgement_waits_for_the_commit_of_what_it_promises() -> None:
    """The delivery contract, rule 1: PUBACK, PUBREC, PUBCOMP, PUBREL, CONNACK, SUBACK."""
    bench = Bench()
    line = bench.line(4)
    steps: list[tuple[list[object], list[object]]] = [
        ([Connect("c", 4, False, 0)], []),
        ([Subscribe(1, [Subscription("t", 2)])], [Suback(1, [2])]),
        ([Publish("x", b"", 1, packet_id=2)], [Puback(2)]),
        ([Publish("x", b"", 2, packet_id=3)], [Pubrec(3)]),
        ([Pubrel(3)], [Pubcomp(3)]),
        ([Publish("t", b"", 2, packet_id=4)], [Publish("t", b"", 2, packet_id=1), Pubrec(4)]),
        ([Pubrec(1)], [Pubrel(1)]),
    ]
    for sent, answers in steps:
        line.send(*sent)  # type: ignore[arg-type]  # a list of packets of many kinds
        commit = bench.seal()
        assert commit.writes
        assert line.read() == []
        bench.finish(commit)
        answer = line.read()
        if answers:
            assert answer == answers


def test_qos_0_and_pings_wait_for_nothing() -> None:
    bench = Bench()
    line = bench.subscriber("c", "t", 0, 4)
    bench.join("p", 4).send(Publish("t", b"now"))
    line.send(Pingreq())
    assert line.read() == [Publish("t", b"now"), Pingresp()]


def test_nothing_is_released_to_a_closed_connection() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Publish("t", b"", 1, packet_id=1), Disconnect())
    bench.commit()
    assert line.read() == []
    assert bench.store.read([0])[0].topic == "t", "and yet it was accepted"
