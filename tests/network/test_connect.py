"""CONNECT: what opens a session, what is refused, and how long a client may be silent."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.fixtures import VERSIONS, Clients, running_broker


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "listener.connect_timeout_s": 1,
        "limits.keep_alive_s_max": 2,
        "limits.session_expiry_s_max": 3,
    }
    with running_broker(tmp_path_factory.mktemp("impatient"), settings, "memory") as broker:
        yield broker


@pytest.mark.parametrize("version", VERSIONS)
def test_a_first_packet_other_than_connect_closes(
    shared_broker: Broker, clients: Clients, version: int
) -> None:
    """[MQTT-3.1.0-1]. [MQTT3-3.1.0-1]."""
    client = clients.open(shared_broker, version)
    client.send_bytes(encode(Pingreq(), version))
    client.expect_end()


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_may_follow_connect_without_waiting_for_connack(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """v5 §3.1.4: CONNACK is the first packet sent back all the same [MQTT-3.2.0-1]."""
    client = clients.open(shared_broker, version)
    client.send(
        Connect(name, version),
        Subscribe(1, [Subscription(f"{name}/t", 0)]),
        Publish(f"{name}/t", b"first", 0),
        Publish(f"{name}/t", b"second", 1, packet_id=2),
        Pingreq(),
    )
    assert client.expect(Connack).reason_code == 0
    packets = client.settle()
    assert Suback(1, [0]) in packets
    assert Puback(2) in packets
    assert Pingresp() in packets
    messages = [packet.payload for packet in packets if isinstance(packet, Publish)]
    assert messages == [b"first", b"second"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_connect_is_a_protocol_error(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.0-2]. [MQTT3-3.1.0-2]."""
    client = clients.join(shared_broker, name, version)
    client.send(Connect(name, version))
    if version == V5:
        client.expect_disconnect(0x82)
    else:
        client.expect_end()


def test_an_unknown_version_is_refused_in_a_form_the_client_knows(
    shared_broker: Broker, clients: Clients
) -> None:
    """[MQTT-3.1.2-2], v3.1.1 [MQTT-3.1.2-2]: 0x84 above MQTT 5, return code 1 below it.

    The upper bit is that of a bridge, whatever the version.
    """
    for level in ("06", "85", "86"):
        newer = clients.open(shared_broker, V5)
        newer.send_bytes(bytes.fromhex(f"100f 0004 4d515454 {level} 02 003c 00 0002 6162"))
        assert newer.expect(Connack) == Connack(0x84)
        newer.expect_end()
    for level in ("02", "80", "82"):
        older = clients.open(shared_broker, V311)
        older.send_bytes(bytes.fromhex(f"100e 0004 4d515454 {level} 02 003c 0002 6162"))
        assert older.expect(Connack) == Connack(0x84)  # decoded from return code 1
        older.expect_end()


def test_another_protocol_is_not_answered(shared_broker: Broker, clients: Clients) -> None:
    client = clients.open(shared_broker, V311)
    client.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.expect_end()


def test_mqtt31_needs_a_client_id_of_1_to_23_characters(
    shared_broker: Broker, clients: Clients
) -> None:
    """v3.1 §3.1 Client Identifier."""
    for client_id, code in (("", 0x85), ("x" * 24, 0x85), ("x" * 23, 0x00)):
        client = clients.open(shared_broker, V31)
        assert client.connect(client_id).reason_code == code
        if code:
            client.expect_end()


def test_mqtt311_takes_an_empty_client_id_with_a_clean_session_only(
    shared_broker: Broker, clients: Clients
) -> None:
    """[MQTT3-3.1.3-7], [MQTT3-3.1.3-8]."""
    assert clients.open(shared_broker, V311).connect("").reason_code == 0
    refused = clients.open(shared_broker, V311)
    assert refused.connect("", clean_start=False).reason_code == 0x85
    refused.expect_end()


def test_mqtt5_is_told_the_client_id_it_was_given(shared_broker: Broker, clients: Clients) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.2.2-16]; the identifier can be used to come back. [MQTT-3.1.3-7]."""
    first = clients.open(shared_broker)
    answer = first.connect("", expiry_s=60)
    second = clients.open(shared_broker)
    other = second.connect("")
    assert answer.properties is not None
    assert other.properties is not None
    assigned = answer.properties.assigned_client_identifier
    assert assigned
    assert assigned != other.properties.assigned_client_identifier
    first.disconnect()
    clients.join(shared_broker, assigned, clean_start=False, present=True)


def test_connack_says_what_the_broker_offers(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    answer = clients.open(shared_broker).connect(name)
    properties = answer.properties
    assert properties is not None
    assert properties.receive_maximum == 1000
    assert properties.maximum_packet_size == 1_048_576
    assert properties.topic_alias_maximum == 16
    assert properties.shared_subscription_available is None  # which means that there are
    assert properties.user_properties == [("penstock-acknowledged", "fsync")]


def test_memory_persistence_is_told_in_connack(
    impatient: Broker, clients: Clients, name: str
) -> None:
    answer = clients.open(impatient).connect(name)
    assert answer.properties is not None
    assert answer.properties.user_properties == [("penstock-acknowledged", "memory")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", ["a/+/b", "a/#"])
def test_a_will_needs_a_topic_name(
    shared_broker: Broker, clients: Clients, name: str, version: int, topic: str
) -> None:
    """[MQTT3-3.2.2-6]: the older versions have no return code for it."""
    client = clients.open(shared_broker, version)
    if version == V5:
        assert client.connect(name, will=Will(topic, b"gone")).reason_code == 0x90
    else:
        client.send(Connect(name, version, will=Will(topic, b"gone")))
    client.expect_end()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_will_for_sys_is_refused(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """v5 §4.7.2: what a client may not publish, its will may not either."""
    client = clients.open(shared_broker, version)
    answer = client.connect(name, will=Will("$SYS/broker/uptime", b"gone", retain=True))
    assert answer.reason_code == 0x87
    client.expect_end()


def test_enhanced_authentication_is_refused(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.12.0-1]."""
    client = clients.open(shared_broker)
    answer = client.connect(name, properties=Properties(authentication_method="SCRAM-SHA-256"))
    assert answer.reason_code == 0x8C
    client.expect_end()


def test_without_a_connect_the_connection_ends_after_the_connect_timeout(
    impatient: Broker, clients: Clients
) -> None:
    opened_s = time.monotonic()
    silent = clients.open(impatient, V311)
    started = clients.open(impatient, V311)
    started.send_bytes(encode(Connect("half", V311), V311)[:5])
    silent.expect_end()
    started.expect_end()
    assert time.monotonic() - opened_s > 0.9


@pytest.mark.parametrize("version", VERSIONS)
def test_a_silent_client_is_given_up_after_one_and_a_half_keep_alives(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.2-22], [MQTT3-3.1.2-24]: as if its network had failed, so with its will.

    Packets of any kind keep the connection, PINGREQ among them. [MQTT-3.2.2-22].
    """
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/will")
    active = clients.join(shared_broker, f"{name}a", version, keep_alive_s=1)
    pinging = clients.join(shared_broker, f"{name}p", version, keep_alive_s=1)
    will = Will(f"{name}/will", b"gone")
    began_s = time.monotonic()
    silent = clients.join(shared_broker, name, version, keep_alive_s=1, will=will)
    while not silent.has_ended(within_s=0.1):
        assert time.monotonic() - began_s < DEADLINE_S
        active.send(Publish("nobody", b""))
        pinging.send(Pingreq())
        pinging.expect(Pingresp)
    assert time.monotonic() - began_s > 1.45, "never sooner, however slow the machine"
    assert watcher.take().payload == b"gone"
    assert active.settle() == []
    assert pinging.settle() == []


def test_mqtt5_is_told_why_it_is_given_up(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    clients.join(shared_broker, name, keep_alive_s=1).expect_disconnect(0x8D)


def test_keep_alive_zero_is_never_given_up(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """A client that is given up meanwhile shows that the time has passed."""
    patient = clients.join(shared_broker, f"{name}0", keep_alive_s=0)
    clients.join(shared_broker, f"{name}1", V311, keep_alive_s=1).expect_end()
    assert patient.settle() == []


def test_no_more_connections_than_allowed(tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path, {"listener.max_connections": 2}, "memory") as broker:
        first = clients.join(broker, "1")
        clients.join(broker, "2")
        clients.open(broker).expect_end()
        first.disconnect()
        clients.join(broker, "3").publish("t", b"x")


def test_longest_keep_alive_and_session_expiry_are_told(
    impatient: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.1.2-21], v5 §3.2.2.3.2: the server's values replace the client's."""
    client = clients.open(impatient)
    answer = client.connect(name, keep_alive_s=600, expiry_s=600)
    assert answer.properties is not None
    assert answer.properties.server_keep_alive == 2
    assert answer.properties.session_expiry_interval == 3
    client.expect_disconnect(0x8D)
