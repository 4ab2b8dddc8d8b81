"""A session: the invariants of its docstring, and what they are for."""

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.protocol.packets import (
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes
from tests.unit.engine.pair import Pair, numbered, payloads

# -- 1. nothing leaves before its commit ---------------------------------------------------


def test_a_message_leaves_after_the_commit_of_its_packet_identifier() -> None:
    pair = Pair()
    pair.publish(b"x")
    commit = pair.bench.seal()
    assert pair.line.read() == []
    assert [entry[0] for entry in commit.progress[0].in_flight()] == [1]
    pair.bench.finish(commit)
    assert pair.line.read() == [Publish("t", b"x", 1, packet_id=1)]


def test_a_crash_between_commit_and_sending_loses_nothing() -> None:
    pair = Pair()
    pair.publish(b"1", qos=1)
    pair.publish(b"2", qos=2)
    pair.bench.store.commit(pair.bench.seal())
    pair.bench.restart()
    messages = publishes(pair.rejoin().read())
    assert [(m.payload, m.packet_id, m.dup) for m in messages] == [(b"1", 1, True), (b"2", 2, True)]


def test_a_crash_before_the_commit_forgets_all_of_it() -> None:
    pair = Pair()
    pair.publish(b"x")
    pair.bench.seal()
    pair.bench.restart()
    assert pair.rejoin().read() == []
    assert pair.bench.server.context.batch.next_offset == 0


# -- 2. order ------------------------------------------------------------------------------


def test_the_window_is_refilled_from_the_queue_in_order() -> None:
    pair = Pair(EngineLimits(max_inflight=2))
    pair.publish(*numbered(6))
    pair.bench.commit()
    seen = []
    while messages := publishes(pair.line.read()):
        assert len(messages) <= 2
        for message in messages:
            seen.append(message.payload)
            pair.line.send(Puback(message.packet_id))
            pair.bench.commit()
    assert seen == numbered(6)


def test_messages_queued_while_offline_come_before_new_ones() -> None:
    pair = Pair(EngineLimits(max_inflight=3))
    pair.publish(*numbered(2))
    pair.bench.commit()
    pair.line.cut()
    pair.publish(b"2", b"3")
    pair.bench.commit()
    line = pair.bench.line()
    line.send(Connect("s", 5, False, 0, properties=Properties(session_expiry_interval=3600)))
    pair.publish(b"4")
    seen: list[bytes] = []
    for _ in range(8):
        pair.bench.commit()
        for message in publishes(line.read()):
            seen.append(message.payload)
            line.send(Puback(message.packet_id))
    assert seen == numbered(5)


def test_qos_0_does_not_overtake_queued_qos_0() -> None:
    """[MQTT-4.6.0-6]"""
    pair = Pair(EngineLimits(max_inflight=1))
    pair.line.cut()
    pair.publish(b"1", b"2", qos=1)
    pair.publish(b"a", qos=0)
    pair.bench.commit()
    line = pair.rejoin()
    pair.publish(b"b", qos=0)
    seen: list[bytes] = []
    for _ in range(4):
        pair.bench.commit()
        for message in publishes(line.read()):
            seen.append(message.payload)
            if message.qos:
                line.send(Puback(message.packet_id))
    assert [body for body in seen if body in (b"a", b"b")] == [b"a", b"b"]
    assert [body for body in seen if body in (b"1", b"2")] == [b"1", b"2"]


def test_qos_0_that_arrives_while_the_connack_waits_keeps_its_order() -> None:
    """[MQTT-4.6.0-6] [MQTT-3.2.0-1]"""
    pair = Pair()
    pair.line.cut()
    pair.bench.commit()
    line = pair.bench.line()
    line.send(Connect("s", 5, False, 0, properties=Properties(session_expiry_interval=3600)))
    first = pair.bench.seal()
    pair.publish(b"1", qos=0)
    pair.bench.finish(first)
    second = pair.bench.seal()
    pair.publish(b"2", qos=0)
    pair.bench.finish(second)
    pair.bench.commit()
    pair.publish(b"3", qos=0)
    assert payloads(line) == numbered(4)[1:]


# -- 3. sequences, segments, recovery ------------------------------------------------------


def test_queue_and_window_survive_a_crash() -> None:
    pair = Pair(EngineLimits(max_inflight=2))
    pair.publish(*numbered(3))
    pair.bench.commit()
    pair.publish(*numbered(6)[3:])
    pair.bench.commit()
    first, second = publishes(pair.line.read())
    pair.line.send(Puback(second.packet_id))
    pair.bench.commit()
    pair.bench.restart()
    line, seen = pair.rejoin(), list[tuple[bytes, bool]]()
    while messages := publishes(line.read()):
        for message in messages:
            seen.append((message.payload, message.dup))
            line.send(Puback(message.packet_id))
            pair.bench.commit()
    assert first.payload == b"0"
    assert seen == [(b"0", True), (b"2", True), (b"3", False), (b"4", False), (b"5", False)]


def test_segments_go_when_the_queue_has_passed_them() -> None:
    pair = Pair(EngineLimits(max_inflight=1))
    for body in numbered(5):
        pair.publish(body)
        pair.bench.commit()
    number = pair.line.session.number
    assert len(pair.bench.store.recover().segments[number]) == 4
    for _ in range(5):
        for message in publishes(pair.line.read()):
            pair.line.send(Puback(message.packet_id))
        pair.bench.commit()
    assert pair.bench.store.recover().segments.get(number, []) == []
    assert pair.bench.store.recover().queues.get(number, []) == []


def test_a_message_that_went_straight_into_the_window_is_in_no_segment() -> None:
    pair = Pair()
    pair.publish(b"x")
    commit = pair.bench.seal()
    assert [progress.segments for progress in commit.progress] == [[]]


def test_an_idle_session_is_not_written_again() -> None:
    pair = Pair()
    pair.publish(b"x", qos=0)
    commit = pair.bench.seal()
    assert commit.progress == []


def test_qos_2_continues_after_a_crash_where_it_was() -> None:
    """Exactly once, on both sides of the broker."""
    pair = Pair()
    pair.publish(b"x", qos=2)
    pair.bench.commit()
    (message,) = publishes(pair.line.read())
    pair.line.send(Pubrec(message.packet_id))
    pair.bench.commit()
    assert pair.line.read() == [Pubrel(message.packet_id)]
    pair.bench.restart()
    line = pair.rejoin()
    assert line.read() == [Pubrel(message.packet_id)], "the message itself is not sent again"
    line.send(Pubcomp(message.packet_id))
    pair.bench.commit()
    assert line.session.window_length == 0


def test_a_received_qos_2_message_is_known_after_a_crash() -> None:
    """[MQTT-4.3.3-10]"""
    bench = Bench()
    line = bench.join("p", 4, durable=True)
    line.send(Publish("t", b"x", 2, packet_id=7))
    bench.commit()
    bench.restart()
    line = bench.join("p", 4, durable=True)
    line.send(Publish("t", b"x", 2, dup=True, packet_id=7))
    bench.commit()
    assert line.read() == [Pubrec(7)]
    assert bench.server.context.batch.next_offset == 1
    line.send(Pubrel(7))
    bench.commit()
    assert line.read() == [Pubcomp(7)]
    bench.restart()
    line = bench.join("p", 4, durable=True)
    line.send(Pubrel(7), Publish("t", b"y", 2, packet_id=7))
    bench.commit()
    assert bench.server.context.batch.next_offset == 2, "the identifier is free again"


# -- 4. bodies that lie in the log only ----------------------------------------------------


def test_an_offline_queue_holds_no_bodies_and_gets_them_back_in_order() -> None:
    pair = Pair(EngineLimits(max_inflight=10, max_mqueue_len=0))
    pair.line.cut()
    for body in numbered(700):
        pair.publish(body)
    pair.publish(b"zero", qos=0)
    pair.bench.commit()
    session = pair.bench.server.registry.sessions["s"]
    assert all(item.message is None for item in session.backlog.queue.waiting(100))
    line, seen = pair.rejoin(), list[bytes]()
    while messages := publishes(line.read()):
        for message in messages:
            seen.append(message.payload)
            if message.qos:
                line.send(Puback(message.packet_id))
        pair.bench.commit()
    assert [body for body in seen if body != b"zero"] == numbered(700)
    assert seen[10] == b"zero", "QoS 0 does not wait for the window"


def test_a_read_for_an_earlier_connection_makes_no_message_missing() -> None:
    """A read answers what was committed when it was asked, not what is wanted by now.

    Two reconnects while a commit is under way: the bodies wanted now are in a batch that is
    not durable yet. Counting them as gone would lose an acknowledged message.
    """
    pair = Pair()
    pair.line.cut()
    pair.publish(b"old")
    pair.bench.commit()
    pair.rejoin().cut()
    pair.bench.commit()
    line = unanswered_connect(pair)
    first = pair.bench.seal()
    line.cut()
    line = unanswered_connect(pair)
    pair.bench.finish(first)
    second = pair.bench.seal()
    pair.publish(b"new")
    line.cut()
    line = unanswered_connect(pair)
    pair.bench.finish(second)
    assert pair.bench.server.drops.counts == [0] * len(drop_reasons.REASONS)
    pair.bench.commit()
    assert payloads(line) == [b"old", b"new"]


def unanswered_connect(pair: Pair) -> Line:
    line = pair.bench.line()
    line.send(Connect("s", 5, False, 0, properties=Properties(session_expiry_interval=3600)))
    return line


def test_a_body_that_is_gone_is_counted_and_the_next_ones_come() -> None:
    pair = Pair()
    pair.line.cut()
    pair.publish(*numbered(4))
    pair.bench.commit()
    pair.bench.store.trim_log(2**62, 0, 2)
    line = pair.rejoin()
    assert payloads(line) == [b"2", b"3"]
    assert pair.bench.server.drops.counts[drop_reasons.RETENTION] == 2


def test_retention_keeps_what_is_needed() -> None:
    pair = Pair(EngineLimits(max_inflight=1))
    pair.publish(*numbered(3))
    pair.bench.commit()
    assert pair.bench.server.lowest_needed_offset(3) == 0, "in the window"
    (message,) = publishes(pair.line.read())
    pair.line.send(Puback(message.packet_id))
    pair.bench.commit()
    assert pair.bench.server.lowest_needed_offset(3) == 1
    pair.line.cut()
    pair.bench.restart()
    assert pair.bench.server.lowest_needed_offset(3) == 1, "after a restart too"


def test_a_message_its_receiver_has_is_not_needed() -> None:
    pair = Pair()
    pair.publish(b"x", qos=2)
    pair.bench.commit()
    pair.line.send(Pubrec(1))
    assert pair.bench.server.lowest_needed_offset(1) == 1
