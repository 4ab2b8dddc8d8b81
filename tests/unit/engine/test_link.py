"""The link: what leaves at once, and what waits for its commit."""

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.wire.link import Link
from penstock.protocol.packets import (
    Connect,
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
