"""Wills: published when a client is lost, and only then."""

import time

import pytest

from penstock.protocol.kinds import V5
from penstock.protocol.packets import Publish, Will
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_lost_connection_publishes_the_will(
    shared_broker: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """[MQTT-3.1.2-8]. [MQTT-3.1.2-14], [MQTT3-3.1.2-8], [MQTT3-3.1.2-16], [V31-2.2-WILL-LOST]."""
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/will")
    client = clients.join(shared_broker, name, version, will=Will(f"{name}/will", b"gone", qos))
    client.drop()
    message = watcher.take()
    assert (message.topic, message.payload, message.qos) == (f"{name}/will", b"gone", qos)
    assert not message.retain


@pytest.mark.parametrize("version", VERSIONS)
def test_disconnect_discards_the_will(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.2-10], [MQTT-3.14.4-3].

    [MQTT3-3.1.2-10], [MQTT3-3.14.4-3], [V31-2.2-WILL-DISCONNECT].
    """
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/will")
    clients.join(shared_broker, name, version, will=Will(f"{name}/will", b"gone")).disconnect()
    assert watcher.settle() == []


def test_a_protocol_error_publishes_the_will(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/will")
    client = clients.join(shared_broker, name, will=Will(f"{name}/will", b"gone"))
    client.send_bytes(b"\xf7\x00")
    client.expect_disconnect(0x81)
    assert watcher.take().payload == b"gone"


def test_disconnect_with_will_publishes_it(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """v5 §3.14.2.1: reason code 0x04."""
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/will")
    clients.join(shared_broker, name, will=Will(f"{name}/will", b"gone")).disconnect(0x04)
    assert watcher.take().payload == b"gone"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_will_can_be_retained(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.2-15], [MQTT3-3.1.2-17]."""
    will = Will(f"{name}/will", b"gone", 1, retain=True)
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/will")
    clients.join(shared_broker, name, version, will=will).drop()
    watcher.take()
    late = clients.join(shared_broker, f"{name}l", version)
    late.subscribe(f"{name}/will")
    assert late.take().retain


def test_a_will_carries_its_properties(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.1.3-10]."""
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/will")
    properties = Properties(
        content_type="text/plain",
        response_topic=f"{name}/answers",
        correlation_data=b"\x00\x01",
        payload_format_indicator=1,
        user_properties=[("room", "1"), ("room", "2")],
    )
    clients.join(
        shared_broker, name, will=Will(f"{name}/will", b"gone", 1, False, properties)
    ).drop()
    assert watcher.take().properties == properties


def test_a_delayed_will_waits_for_its_delay_or_the_end_of_the_session(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.3-9]: whichever is first; a client that is back has no will out."""
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/#")

    def lose(suffix: str, delay_s: int, expiry_s: int) -> None:
        delay = Properties(will_delay_interval=delay_s)
        will = Will(f"{name}/{suffix}", b"", 1, properties=delay)
        clients.join(shared_broker, f"{name}{suffix}", will=will, expiry_s=expiry_s).drop()

    lost_s = time.monotonic()
    lose("session-ends-at-once", 3600, 0)
    assert watcher.take().topic == f"{name}/session-ends-at-once"
    lose("delay", 1, 3600)
    lose("session", 3600, 2)
    lose("back", 1, 3600)
    clients.join(shared_broker, f"{name}back", clean_start=False, expiry_s=3600, present=True)
    assert watcher.take() == Publish(f"{name}/delay", b"", 1, packet_id=2)
    assert time.monotonic() - lost_s > 0.9
    assert watcher.take().topic == f"{name}/session"
    assert time.monotonic() - lost_s > 1.9
    assert watcher.settle() == []


def test_a_clean_start_within_the_delay_ends_the_session_and_publishes_the_will(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/will")
    delay = Properties(will_delay_interval=3600)
    will = Will(f"{name}/will", b"", 1, properties=delay)
    clients.join(shared_broker, name, will=will, expiry_s=3600).drop()
    clients.join(shared_broker, name, V5, clean_start=True)
    assert watcher.take().topic == f"{name}/will"
