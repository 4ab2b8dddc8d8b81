"""What another broker had in flight is taken over with its packet identifiers, across a restart."""

from __future__ import annotations

from penstock.engine.values.message import Message
from penstock.protocol.packets import Connack, Packet, Puback, Pubcomp, Publish, Pubrel
from tests.unit.engine.bench import Bench


def adopt(bench: Bench, payload: bytes, qos: int, packet_id: int, is_received: bool) -> bool:
    """Take over one message for the client "alice"."""
    session = bench.server.registry.sessions["alice"]
    message = Message("t", payload, qos, received_at_us=bench.now.wall_us)
    bench.server.context.batch.append(message)
    return session.adopt_in_flight(message, qos, False, (), packet_id, is_received)


def come_back(bench: Bench) -> list[Packet]:
    line = bench.join("alice", durable=True)
    found = line.read()
    for packet in found:
        if isinstance(packet, Publish) and packet.qos == 1:
            line.send(Puback(packet.packet_id))
        elif isinstance(packet, Pubrel):
            line.send(Pubcomp(packet.packet_id))
    bench.commit()
    return [*found, *line.read()]


def test_an_adopted_message_is_sent_again_with_its_packet_identifier_and_before_the_queue() -> None:
    bench = Bench()
    bench.subscriber("alice", "t", 2).cut()
    assert adopt(bench, b"first", 1, 40_000, False)
    assert adopt(bench, b"second", 2, 2, True)
    assert not adopt(bench, b"again", 1, 2, False)
    bench.publish("t", b"queued", 1)
    bench.commit()
    bench.restart()
    first, second, queued = come_back(bench)
    assert isinstance(first, Publish)
    assert (first.payload, first.packet_id, first.dup) == (b"first", 40_000, True)
    assert second == Pubrel(2)
    assert isinstance(queued, Publish)
    assert (queued.payload, queued.dup) == (b"queued", False)
    assert queued.packet_id not in (2, 40_000)


def test_an_acknowledged_adopted_message_does_not_come_again() -> None:
    bench = Bench()
    bench.subscriber("alice", "t", 2).cut()
    adopt(bench, b"first", 1, 1, False)
    bench.commit()
    assert len(come_back(bench)) == 1
    bench.restart()
    assert [packet for packet in come_back(bench) if not isinstance(packet, Connack)] == []
