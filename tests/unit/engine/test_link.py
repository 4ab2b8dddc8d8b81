"""The link: what leaves at once, and what waits for its commit."""

import pytest

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.values.limits import EngineLimits
from penstock.engine.wire.link import Link
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Packet,
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
from tests.unit.engine.bench import Bench, publishes


def opened_link(context: EngineContext) -> Link:
    link = Link(context.turn)
    link.is_open = True
    return link


def test_held_bytes_wait_for_their_commit_and_keep_their_order() -> None:
    """[MQTT-4.6.0-2]"""
    context = EngineContext(0)
    link = opened_link(context)
    link.send_after_commit(b"1")
    link.ack_after_commit(b"2")
    first = context.seal()
    link.send_after_commit(b"3")
    second = context.seal()
    assert b"".join(link.take_ready()) == b""
    assert [b"".join(release.pieces) for release in first.deferred_packets] == [b"12"]
    assert [b"".join(release.pieces) for release in second.deferred_packets] == [b"3"]
    assert link.uncommitted_acks == 1
    first.deferred_packets[0].mark_sent()
    assert link.uncommitted_acks == 0


def test_sent_bytes_wait_for_nothing() -> None:
    context = EngineContext(0)
    link = opened_link(context)
    link.send(b"1")
    link.send(b"2")
    assert context.turn.ready == [link]
    assert link.take_ready() == [b"12"]


def test_nothing_passes_the_connack() -> None:
    """[MQTT-3.2.0-1]"""
    context = EngineContext(0)
    link = Link(context.turn)
    link.send_after_commit(b"connack")
    link.send(b"1")
    assert context.turn.ready == []
    assert [b"".join(release.pieces) for release in context.seal().deferred_packets] == [
        b"connack1"
    ]


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
        assert commit.has_writes
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


def test_qos0_keeps_its_place_when_the_next_one_is_not_written() -> None:
    """[MQTT-4.6.0-6]: what waits behind a batch waits with the next, and is counted there, also
    when the message for which it was moved is too large for the client."""
    bench = Bench()
    bench.publish("large", b"x" * 5000, 0, retain=True)
    bench.publish("retained", b"0", 0, retain=True)
    line = bench.join("s", 5, max_packet_size=200)
    line.send(Subscribe(1, [Subscription("t", 0)]))
    bench.commit()
    line.read()
    line.send(Subscribe(2, [Subscription("retained", 0)]))
    under_way = bench.seal()
    bench.publish_qos0("t", b"1")
    line.send(Subscribe(3, [Subscription("large", 0)]))
    bench.finish(under_way)
    bench.publish_qos0("t", b"2")
    bench.write_ready()
    bench.commit()
    payloads = [packet.payload for packet in line.read() if isinstance(packet, Publish)]
    assert payloads == [b"0", b"1", b"2"]


# -- bounded memory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packet",
    [
        Pingreq(),
        Publish("t", b"x", 1, packet_id=1),
        Subscribe(1, [Subscription("t", 1)]),
        Pubrec(7),
    ],
    ids=lambda packet: type(packet).__name__,
)
@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_never_reads_is_not_answered_for_ever(packet: Packet, version: int) -> None:
    """Its socket is full: a bounded number of its packets is taken, then none."""
    limit = 10_000
    bench = Bench(EngineLimits(write_buffer_bytes_max=limit))
    line = bench.join("c", version)
    link = line.connection.link
    link.mark_socket_full()
    for _ in range(100):
        if not line.connection.is_reading_paused:
            line.send(*[packet] * 500)
        bench.commit()
        bench.take_ready(line)
    assert line.connection.is_reading_paused
    assert limit <= link.pending_bytes + link.congested_bytes < limit + 100
    line.connection.writable(bench.now)
    bench.turns()
    assert link.congested_bytes < limit
    for _ in range(100):
        bench.commit()
        bench.take_ready(line)
    assert not line.connection.is_reading_paused


def test_every_packet_is_answered_once_the_client_reads() -> None:
    bench = Bench(EngineLimits(write_buffer_bytes_max=1000))
    line = bench.join("c", 4)
    line.connection.link.mark_socket_full()
    line.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, 2001)])
    answers: list[Packet] = []
    for _ in range(100):
        bench.commit()
        answers += line.read()
        if line.connection.link.is_full():
            line.connection.writable(bench.now)
    assert answers == [Puback(n) for n in range(1, 2001)]


def test_a_link_without_room_leaves_messages_in_the_queue() -> None:
    """Also before the socket says so: what waits for a commit takes memory too."""
    bench = Bench(EngineLimits(write_buffer_bytes_max=10_000))
    line = bench.subscriber("s", "t", 1, 4)
    publisher = bench.join("p", 4)
    publisher.send(*[Publish("t", bytes(4000), 1, packet_id=n) for n in range(1, 11)])
    assert line.connection.link.pending_bytes < 14_000
    assert line.session.window_length == 3
    bench.commit()
    for _ in range(10):
        bench.take_ready(line)
        bench.commit()
    assert line.session.window_length == 10


def test_a_resumed_session_is_sent_again_in_portions() -> None:
    bench = Bench(EngineLimits(write_buffer_bytes_max=10_000))
    line = bench.subscriber("s", "t", 1, 4)
    for _ in range(10):
        bench.publish("t", bytes(4000))
        bench.commit()
    assert len(publishes(line.read())) == 10
    line.cut()
    line = bench.join("s", 4, durable=True)
    assert line.connection.link.pending_bytes < 14_000
    bench.commit()
    again = publishes(line.read())
    assert len(again) == 10
    assert all(message.dup for message in again)


def test_reading_pauses_while_much_waits_for_a_commit() -> None:
    """Whether it is in the log or held for somebody."""
    bench = Bench(streams=())
    bench.server.context.store_health.waiting_bytes_max = 100_000
    bench.join("s", 4).send(Subscribe(1, [Subscription("t", 1)]))
    publisher = bench.join("p", 5)
    publisher.send(*[Publish("t", bytes(10_000), 0) for _ in range(100)])
    context = bench.server.context
    assert publisher.connection.is_reading_paused is True
    assert 100_000 <= context.batch.size_bytes + context.turn.unsent_bytes < 111_000
    bench.commit()
    assert (publisher.connection.is_reading_paused, context.turn.unsent_bytes) == (False, 0)


def test_nothing_stays_counted_when_connections_end() -> None:
    bench = Bench()
    line = bench.subscriber("s", "t", 2, 4)
    publisher = bench.join("p", 4)
    for qos in (0, 1, 2):
        publisher.send(Publish("t", b"x", qos, packet_id=1 if qos else 0))
    line.cut()
    publisher.send(Disconnect())
    bench.commit()
    assert bench.server.context.turn.unsent_bytes == 0


# -- QoS 0 behind what waits -----------------------------------------------------------------


def test_a_steady_stream_of_qos_0_does_not_wait_for_commits_for_ever() -> None:
    """One message had to wait; those behind it go with it, and those after that at once."""
    bench = Bench()
    line = bench.subscriber("s", "t", 0, 4)
    publisher = bench.join("p", 4)
    publisher.send(Publish("t", b"held", 1, packet_id=1))
    under_way = bench.seal()
    for number in range(3):
        publisher.send(Publish("t", b"%d" % number))
    assert publishes(line.read()) == []
    bench.finish(under_way)
    assert [m.payload for m in publishes(line.read())] == [b"held", b"0", b"1", b"2"]
    under_way = bench.seal()
    publisher.send(Publish("t", b"3"))
    assert [m.payload for m in publishes(line.read())] == [b"3"]
    bench.finish(under_way)


def test_a_message_that_must_wait_keeps_its_place_behind_earlier_ones() -> None:
    bench = Bench()
    line = bench.subscriber("s", "t", 0, 4)
    publisher = bench.join("p", 4)
    publisher.send(Publish("t", b"0", 1, packet_id=1))
    under_way = bench.seal()
    publisher.send(Publish("t", b"1"), Publish("t", b"2", 1, packet_id=2), Publish("t", b"3"))
    bench.finish(under_way)
    assert [m.payload for m in publishes(line.read())] == [b"0"]
    bench.commit()
    assert [m.payload for m in publishes(line.read())] == [b"1", b"2", b"3"]
