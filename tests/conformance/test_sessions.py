"""Sessions, wills, take-over and farewells, in the versions that number their rules."""

from typing import Final

import pytest

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Pubrec,
    Pubrel,
    Will,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import let_pass
from tests.support.fixtures import VERSIONS, Clients
from tests.support.raw_client import ConnectionEndedError

STRICT: Final = (V311, V5)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_will_is_published_as_its_flags_say(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.2-7], [MQTT-3.1.2-14], [MQTT-3.1.2-15]; [MQTT3-3.1.2-16], [MQTT3-3.1.2-17].

    [MQTT3-3.1.2-8], [MQTT3-3.1.2-12], [MQTT-3.1.2-12]; [V31-2.2-WILL-RETAIN].
    """
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/#")
    sent = [(f"{name}/{qos}{retain}", qos, retain) for qos in (0, 1, 2) for retain in (False, True)]
    for topic, qos, retain in sent:
        will = Will(topic, b"gone", qos, retain)
        clients.join(shared_broker, f"{name}c", version, will=will).drop()
        message = watcher.take()
        assert (message.topic, message.payload, message.qos) == (topic, b"gone", qos)
        assert not message.retain
    clients.join(shared_broker, f"{name}c", version).drop()
    last = Will(f"{name}/last", b"gone")
    clients.join(shared_broker, f"{name}l", version, will=last).drop()
    assert watcher.take().topic == f"{name}/last", "without its flag there is no will"
    late = clients.join(shared_broker, f"{name}late", version)
    late.subscribe(f"{name}/#")
    kept = sorted(
        (message.topic, message.qos, message.retain) for message in (late.take() for _ in range(3))
    )
    assert kept == [will for will in sent if will[2]]
    assert late.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_will_is_published_once(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.2-10], [MQTT3-3.1.2-10], [MQTT3-3.1.2-12]: then it is forgotten."""
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/#")
    expiry_s = 60 if version == V5 else None
    will = Will(f"{name}/will", b"gone")
    clients.join(
        shared_broker, name, version, clean_start=False, will=will, expiry_s=expiry_s
    ).drop()
    assert watcher.take().topic == f"{name}/will"
    clients.join(
        shared_broker, name, version, clean_start=False, expiry_s=expiry_s, present=True
    ).drop()
    other = Will(f"{name}/other", b"gone")
    clients.join(shared_broker, f"{name}o", version, will=other).drop()
    assert watcher.take().topic == f"{name}/other"
    assert watcher.settle() == []


def test_user_properties_of_a_will_keep_their_order(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.1.3-10]."""
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/will")
    pairs = [("b", "1"), ("a", "2"), ("b", "0"), ("b", "1")]
    will = Will(f"{name}/will", b"", properties=Properties(user_properties=pairs))
    clients.join(shared_broker, name, will=will).drop()
    properties = watcher.take().properties
    assert properties is not None
    assert properties.user_properties == pairs


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_client_ends_the_first(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.4-3], [MQTT-3.1.3-2], [MQTT3-3.1.4-2], [MQTT3-3.1.3-2]; [V31-3.1-CLIENT-ID-UNIQUE].

    Other identifiers are other sessions.
    """
    others = [
        clients.join(shared_broker, other, version)
        for other in (f"{name}x", name.upper(), f" {name}")
    ]
    first = clients.join(shared_broker, name, version)
    clients.join(shared_broker, name, version)
    if version == V5:
        first.expect_disconnect(0x8E)
    else:
        first.expect_end()
    for other in others:
        other.send(Pingreq())
        assert other.expect(Pingresp) == Pingresp()


def test_a_reason_of_0x80_or_above_ends_the_connection(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.13.2-1]: in CONNACK, in DISCONNECT of either side, or meant and not sent."""
    forbidden = Will("$SYS/broker/uptime", b"")
    refused = clients.open(shared_broker)
    assert refused.connect(name, will=forbidden).reason_code == 0x87
    refused.expect_end()
    speechless = clients.open(shared_broker)
    size = Properties(maximum_packet_size=4)  # a CONNACK has five bytes
    speechless.send(Connect(name, V5, will=forbidden, properties=size))
    speechless.expect_end()
    client = clients.join(shared_broker, name)
    client.send(Connect(name, V5))
    client.expect_disconnect(0x82)
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/#")
    leaving = clients.join(shared_broker, name, will=Will(f"{name}/will", b"gone"))
    leaving.disconnect(0x80)
    assert watcher.take().topic == f"{name}/will"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_lasts_as_long_as_its_connection(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.1.0-1], [MQTT3-4.1.0-1], [MQTT3-4.1.0-2]: though it ends with it, or expires."""
    clean = clients.join(shared_broker, name, version)
    kept = clients.join(
        shared_broker,
        f"{name}k",
        version,
        clean_start=False,
        expiry_s=1 if version == V5 else None,
    )
    for client in (clean, kept):
        client.subscribe(f"{name}/t")
    let_pass(1.5)
    clients.join(shared_broker, f"{name}p", version).publish(f"{name}/t", b"x", 2)
    for client in (clean, kept):
        message = client.expect(Publish)
        client.send(Pubrec(message.packet_id))
        assert client.expect(Pubrel) == Pubrel(message.packet_id)


@pytest.mark.parametrize("version", STRICT)
def test_retained_messages_outlive_the_session(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT3-3.1.2-7]."""
    publisher = clients.join(shared_broker, name, version, clean_start=True)
    publisher.publish(f"{name}/t", b"kept", 1, retain=True)
    publisher.disconnect()
    clients.join(shared_broker, name, version, clean_start=True).disconnect()
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/t")
    assert watcher.take().payload == b"kept"


@pytest.mark.parametrize("version", VERSIONS)
def test_pingreq_is_answered(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.12.4-1], [MQTT3-3.12.4-1], [V31-3.12-PINGRESP]."""
    client = clients.join(shared_broker, name, version)
    client.send(Pingreq(), Pingreq())
    assert client.expect(Pingresp) == Pingresp()
    assert client.expect(Pingresp) == Pingresp()


@pytest.mark.parametrize("version", STRICT)
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param("e1 00", id="DISCONNECT [MQTT-3.14.1-1] [MQTT3-3.14.1-1]"),
        pytest.param("c4 00", id="PINGREQ"),
        pytest.param("41 02 0001", id="PUBACK"),
        pytest.param("58 02 0001", id="PUBREC"),
        pytest.param("60 02 0001", id="PUBREL [MQTT-3.6.1-1] [MQTT3-3.6.1-1]"),
        pytest.param("72 02 0001", id="PUBCOMP"),
        pytest.param("80 06 0001 0001 61 00", id="SUBSCRIBE [MQTT-3.8.1-1] [MQTT3-3.8.1-1]"),
        pytest.param("a0 05 0001 0001 61", id="UNSUBSCRIBE [MQTT-3.10.1-1] [MQTT3-3.10.1-1]"),
        pytest.param("f3 00", id="AUTH [MQTT-3.15.1-1]"),
        pytest.param("38 04 0001 61 00", id="PUBLISH QoS 0 with DUP [MQTT3-3.3.1-2]"),
        pytest.param("36 05 0001 61 0001", id="PUBLISH QoS 3 [MQTT-3.3.1-4] [MQTT3-3.3.1-4]"),
    ],
)
def test_wrong_flags_in_the_fixed_header(
    shared_broker: Broker, clients: Clients, name: str, version: int, sent: str
) -> None:
    """[MQTT-2.1.3-1], [MQTT3-2.2.2-1], [MQTT3-2.2.2-2], [MQTT-4.13.1-1], [MQTT3-4.8.0-1]."""
    client = clients.join(shared_broker, name, version)
    client.send_bytes(bytes.fromhex(sent))
    if version == V5:
        client.expect_disconnect(0x81)
    else:
        client.expect_end()


@pytest.mark.parametrize("version", STRICT)
def test_packets_without_a_packet_identifier(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-2.2.1-3], [MQTT3-2.3.1-1]: zero is none."""
    sent = {
        V5: ("32 06 0001 61 0000 00", "82 07 0000 00 0001 61 00", "a2 06 0000 00 0001 61"),
        V311: ("32 05 0001 61 0000", "82 06 0000 0001 61 00", "a2 05 0000 0001 61"),
    }
    for case in sent[version]:
        client = clients.join(shared_broker, name, version)
        client.send_bytes(bytes.fromhex(case))
        if version == V5:
            client.expect_disconnect(0x82)
        else:
            client.expect_end()


def test_nothing_follows_the_servers_disconnect(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2], [MQTT-3.14.2-2]: messages under way neither."""
    client = clients.join(shared_broker, name)
    client.subscribe(f"{name}/#", qos=0)
    publisher = clients.join(shared_broker, f"{name}p")
    client.send_bytes(b"\x00\x00")
    for _ in range(20):
        publisher.publish(f"{name}/t", b"x", 0)
    packets: list[Packet] = []
    try:
        while True:
            packets.append(client.receive())
    except ConnectionEndedError:
        pass
    assert isinstance(packets[-1], Disconnect)
    assert packets[-1].reason_code == 0x81
    assert packets[-1].properties is None or packets[-1].properties.session_expiry_interval is None
    assert all(isinstance(packet, Publish) for packet in packets[:-1])


@pytest.mark.parametrize("version", STRICT)
def test_nothing_is_heard_after_disconnect(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.14.4-3], [MQTT3-3.14.4-3]: the will goes, and what follows in the same write too."""
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/#")
    will = Will(f"{name}/will", b"")
    client = clients.join(shared_broker, name, version, will=will)
    client.send(Disconnect(), Publish(f"{name}/after", b""))
    client.expect_end()
    assert watcher.settle() == []
