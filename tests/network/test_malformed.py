"""Malformed packets and other mistakes: the answer, and that nobody else notices."""

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Connack, Publish
from tests.support.broker import Broker
from tests.support.fixtures import Clients

# What a connected client sends, and the reason code of the DISCONNECT in MQTT 5.
MISTAKES = [
    pytest.param("00 00", 0x81, id="packet type 0"),
    pytest.param("36 05 0001 61 0001", 0x81, id="PUBLISH with QoS 3 [MQTT-3.3.1-4]"),
    pytest.param("32 06 0001 61 0000 00", 0x82, id="PUBLISH with packet identifier 0"),
    pytest.param("30 04 0001 23 00", 0x90, id="PUBLISH to a filter [MQTT-3.3.2-2]"),
    pytest.param("30 04 0001 ff 00", 0x81, id="topic is not UTF-8 [MQTT-1.5.4-1]"),
    pytest.param("30 04 0001 00 00", 0x81, id="topic with U+0000 [MQTT-1.5.4-2]"),
    pytest.param("30 03 0000 00", 0x82, id="PUBLISH without topic"),
    pytest.param("30 03 00ff 61", 0x81, id="PUBLISH ends within its topic"),
    pytest.param("30 ff ff ff ff 01", 0x81, id="remaining length of five bytes"),
    pytest.param("80 07 0001 00 0001 61 00", 0x81, id="SUBSCRIBE with flags 0 [MQTT-3.8.1-1]"),
    pytest.param("82 03 0001 00", 0x82, id="SUBSCRIBE without a filter [MQTT-3.8.3-2]"),
    pytest.param("82 07 0001 00 0001 61 03", 0x82, id="SUBSCRIBE with QoS 3"),
    pytest.param("82 07 0001 00 0001 61 40", 0x81, id="reserved option bits [MQTT-3.8.3-5]"),
    pytest.param("82 07 0000 00 0001 61 00", 0x82, id="SUBSCRIBE with packet identifier 0"),
    pytest.param("a2 03 0001 00", 0x82, id="UNSUBSCRIBE without a filter [MQTT-3.10.3-2]"),
    pytest.param("60 02 0001", 0x81, id="PUBREL with flags 0 [MQTT-3.6.1-1]"),
    pytest.param("20 03 00 00 00", 0x82, id="CONNACK from a client"),
    pytest.param("d0 00", 0x82, id="PINGRESP from a client"),
    pytest.param("c0 01 00", 0x81, id="PINGREQ with a body"),
    pytest.param("f0 00", 0x82, id="AUTH without an authentication method [MQTT-4.12.0-7]"),
    pytest.param("30 08 0001 61 04 01 00 01 01", 0x82, id="a property twice"),
    pytest.param("30 06 0001 61 02 0b 01", 0x82, id="a subscription identifier in PUBLISH"),
    pytest.param("30 06 0001 61 02 7f 00", 0x81, id="an unknown property"),
]


@pytest.mark.parametrize(("sent", "code"), MISTAKES)
def test_mqtt5_is_told_its_mistake(
    shared_broker: Broker, clients: Clients, name: str, sent: str, code: int
) -> None:
    """[MQTT-4.13.1-1]: DISCONNECT with the reason code and a reason string."""
    client = clients.join(shared_broker, name)
    client.send_bytes(bytes.fromhex(sent))
    farewell = client.expect_disconnect(code)
    assert farewell.properties is not None
    assert farewell.properties.reason_string


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param("00 00", id="packet type 0"),
        pytest.param("36 05 0001 61 0001", id="PUBLISH with QoS 3"),
        pytest.param("30 03 0001 2b", id="PUBLISH to a filter"),
        pytest.param("80 06 0001 0001 61 00", id="SUBSCRIBE with flags 0"),
        pytest.param("82 02 0001", id="SUBSCRIBE without a filter"),
        pytest.param("f0 00", id="AUTH"),
    ],
)
def test_older_clients_are_disconnected(
    shared_broker: Broker, clients: Clients, name: str, sent: str
) -> None:
    """v3.1.1 §4.8: nothing is sent. [MQTT3-4.8.0-1]."""
    client = clients.join(shared_broker, name, V311)
    client.send_bytes(bytes.fromhex(sent))
    client.expect_end()


def test_a_packet_before_the_mistake_counts(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name)
    good = encode(Publish(f"{name}/t", b"good", 0), V5)
    client.send_bytes(good + b"\x00\x00" + good)
    client.expect_disconnect(0x81)
    assert listener.take().payload == b"good"
    assert listener.settle() == []


def test_packets_may_arrive_byte_by_byte(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.2.0-1], [MQTT3-7.1.1-1]."""
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name)
    for byte in encode(Publish(f"{name}/t", b"slow", 1, packet_id=3), V5):
        client.send_bytes(bytes((byte,)))
    assert listener.take().payload == b"slow"


def test_a_refused_connect_has_a_connack_where_the_version_is_known(
    shared_broker: Broker, clients: Clients
) -> None:
    """v5 §3.1.4: MAY send CONNACK; reserved flag set [MQTT-3.1.2-3]."""
    client = clients.open(shared_broker)
    client.send_bytes(bytes.fromhex("10 0f 0004 4d515454 05 03 003c 00 0002 6162"))
    assert client.expect(Connack) == Connack(0x81)
    client.expect_end()
    older = clients.open(shared_broker, V311)
    older.send_bytes(bytes.fromhex("10 0e 0004 4d515454 04 03 003c 0002 6162"))
    older.expect_end()
