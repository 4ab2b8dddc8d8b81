"""What pages about MQTT 5 flow control promise (seed 001), on the wire: docs/flow_proofs.md.

The broker has the limits of such a page's example: it takes 1000 unacknowledged messages of a
client and packets of 512 KiB.
"""

from collections.abc import Iterator

import pytest

from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Connack,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import Clients, running_broker

RECEIVE_MAXIMUM = 1000
SIZE_BYTES = 524_288


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "limits.receive_maximum": str(RECEIVE_MAXIMUM),
        "limits.max_packet_size_bytes": str(SIZE_BYTES),
        "limits.max_inflight": "0",
    }
    with running_broker(tmp_path_factory.mktemp("page"), settings, "memory") as broker:
        yield broker


def test_both_sides_say_what_they_take_and_each_keeps_to_the_others(
    broker: Broker, clients: Clients, name: str
) -> None:
    """The client's maximum bounds what it gets, and nothing of what it may send."""
    client = clients.open(broker, V5)
    wish = Properties(receive_maximum=5, maximum_packet_size=8192)
    told = client.connect(name, True, 0, None, None, wish)
    assert isinstance(told, Connack)
    assert told.properties is not None
    assert told.properties.receive_maximum == RECEIVE_MAXIMUM
    assert told.properties.maximum_packet_size == SIZE_BYTES
    client.subscribe(f"{name}/in")
    publisher = clients.join(broker, f"{name}p")
    for number in range(7):
        publisher.publish(f"{name}/in", b"%d" % number)
    assert [client.expect(Publish).payload for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert client.settle() == []
    client.send(*(Publish(f"{name}/out", b"x", 1, packet_id=i) for i in range(1, 101)))
    assert [client.expect(Puback).packet_id for _ in range(100)] == [*range(1, 101)]


def test_up_to_the_maximum_and_again_as_places_become_free(
    broker: Broker, clients: Clients, name: str
) -> None:
    """QoS 2 keeps its place beyond PUBREC. One too many is told 0x93, in words, and the end."""
    client = clients.join(broker, name)
    client.send(
        *(Publish(f"{name}/t", b"x", 2, packet_id=i) for i in range(1, RECEIVE_MAXIMUM + 1))
    )
    for packet_id in range(1, RECEIVE_MAXIMUM + 1):
        assert client.expect(Pubrec) == Pubrec(packet_id, 0x10)
    client.send(Pubrel(1), Pubrel(2))
    assert [client.expect(Pubcomp).packet_id for _ in range(2)] == [1, 2]
    client.send(*(Publish(f"{name}/t", b"x", 2, packet_id=i) for i in (1001, 1002)))
    assert [client.expect(Pubrec).packet_id for _ in range(2)] == [1001, 1002]
    client.send(Publish(f"{name}/t", b"does not count", 0), Pingreq())
    client.expect(Pingresp)
    client.send(Publish(f"{name}/t", b"one too many", 1, packet_id=1003))
    farewell = client.expect(Disconnect)
    assert farewell.reason_code == 0x93
    assert farewell.properties is not None
    assert f"{RECEIVE_MAXIMUM}" in (farewell.properties.reason_string or "")
    client.expect_end()


@pytest.mark.parametrize("wish", ["21 00 00", "27 00 00 00 00"])
def test_a_maximum_of_zero_is_a_protocol_error(broker: Broker, clients: Clients, wish: str) -> None:
    """Receive Maximum and Maximum Packet Size alike: CONNACK 0x82, and the end."""
    properties = bytes.fromhex(wish)
    body = bytes.fromhex("00 04 4d 51 54 54 05 02 00 3c")
    body += bytes([len(properties)]) + properties + bytes.fromhex("00 01 61")
    client = clients.open(broker, V5)
    client.send_bytes(bytes([0x10, len(body)]) + body)
    assert client.expect(Connack).reason_code == 0x82
    client.expect_end()


@pytest.mark.parametrize("version", [V31, V311])
def test_before_mqtt_5_the_same_limit_is_kept_without_a_word(
    broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """CONNACK has no properties, more than the maximum is taken, and nobody is disconnected."""
    client = clients.open(broker, version)
    assert client.connect(name, True, 0).properties is None
    count = 3 * RECEIVE_MAXIMUM
    client.send(*(Publish(f"{name}/t", b"x", 1, packet_id=i) for i in range(1, count + 1)))
    assert [client.expect(Puback).packet_id for _ in range(count)] == [*range(1, count + 1)]
