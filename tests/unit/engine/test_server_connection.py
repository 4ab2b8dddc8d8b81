"""The accepting side of a connection: its table, and what differs between the versions."""

import pytest

from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, farewell, publishes

VERSIONS = (3, 4, 5)


# -- the table -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "packet", [Pingreq(), Disconnect(), Publish("t", b""), Subscribe(1, [Subscription("t", 0)])]
)
def test_the_first_packet_is_connect(packet: Packet, version: int) -> None:
    """[MQTT-3.1.0-1]: closed without an answer."""
    bench = Bench()
    line = bench.line(version)
    line.send(packet)
    assert line.connection.link.is_closed
    assert line.read() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_connect_is_a_protocol_error(version: int) -> None:
    """[MQTT-3.1.0-2]"""
    bench = Bench()
    line = bench.join("c", version)
    line.send(Connect("c", version, True, 0))
    assert line.connection.link.is_closed
    if version == 5:
        assert farewell(line) == reasons.PROTOCOL_ERROR


def test_auth_was_not_agreed_upon() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Auth(0x18, Properties(authentication_method="x")))
    assert farewell(line) == reasons.PROTOCOL_ERROR


def test_packets_after_the_end_are_not_heard() -> None:
    bench = Bench()
    line = bench.join("c", 4)
    line.send(Disconnect(), Publish("t", b"", 1, packet_id=1))
    line.send(Publish("t", b"", 1, packet_id=2))
    assert bench.server.context.batch.next_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_may_come_one_by_one(version: int) -> None:
    bench = Bench()
    line = bench.line(version)
    packets = [Connect("c", version, True, 0), Publish("t", b"x", 1, packet_id=5), Pingreq()]
    for byte in b"".join(encode(packet, version) for packet in packets):
        line.receive(bytes([byte]))
    bench.commit()
    kinds = [type(packet).__name__ for packet in line.read()]
    assert sorted(kinds) == ["Connack", "Pingresp", "Puback"]
    assert kinds[0] == "Connack"


# -- the end -------------------------------------------------------------------------------


def test_a_farewell_fits_what_the_client_accepts() -> None:
    """[MQTT-3.14.2-3]"""
    bench = Bench()
    line = bench.join("c", 5, max_packet_size=20)
    line.read()
    line.connection.close(reasons.SERVER_BUSY, "a reason far too long to tell", bench.now)
    assert line.read() == [Disconnect(reasons.SERVER_BUSY)]


def test_the_end_is_settled_once() -> None:
    bench = Bench()
    line = bench.join("c", 5, will=Will("will", b"x", 1))
    line.cut()
    line.cut()
    line.connection.close(reasons.SERVER_BUSY, "late", bench.now)
    line.connection.tick(bench.now)
    assert bench.server.context.batch.next_offset == 1
    assert bench.server.connections == {}


# -- SUBSCRIBE, UNSUBSCRIBE ----------------------------------------------------------------


@pytest.mark.parametrize("publisher", VERSIONS)
@pytest.mark.parametrize("subscriber", VERSIONS)
def test_every_version_speaks_with_every_other(publisher: int, subscriber: int) -> None:
    bench = Bench()
    line = bench.subscriber("s", "t", 1, subscriber)
    source = bench.join("p", publisher)
    properties = Properties(content_type="text") if publisher == 5 else None
    source.send(Publish("t", b"x", 1, packet_id=1, properties=properties))
    bench.commit()
    (message,) = publishes(line.read())
    assert message.payload == b"x"
    both = publisher == subscriber == 5
    assert message.properties == (Properties(content_type="text") if both else None)
