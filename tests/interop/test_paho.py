"""Penstock with paho-mqtt, in every version of the protocol it speaks."""

from contextlib import ExitStack

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.interop.paho_client import VERSIONS, Received, joined
from tests.support.broker import Broker
from tests.support.deadline import let_pass

versions = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


@versions
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_each_qos_both_ways(
    shared_broker: Broker, name: str, version: MQTTProtocolVersion, published: int, granted: int
) -> None:
    """[MQTT3-7.0.0-2]: nothing beyond the standard is needed."""
    with (
        joined(shared_broker, f"{name}s", version) as subscriber,
        joined(shared_broker, f"{name}p", version) as publisher,
    ):
        subscriber.subscribe(f"{name}/t", granted)
        for number in range(20):
            publisher.publish(f"{name}/t", b"%d" % number, published)
        qos = min(published, granted)
        assert subscriber.take(20) == [
            Received(f"{name}/t", b"%d" % number, qos, False) for number in range(20)
        ]
        assert subscriber.has_nothing()


@versions
@pytest.mark.parametrize("qos", [1, 2])
def test_many_messages_in_flight(
    shared_broker: Broker, name: str, version: MQTTProtocolVersion, qos: int
) -> None:
    """paho sends 20 at once, the broker 32; order holds."""
    count = 500
    with (
        joined(shared_broker, f"{name}s", version) as subscriber,
        joined(shared_broker, f"{name}p", version) as publisher,
    ):
        subscriber.subscribe(f"{name}/t", qos)
        for number in range(count):
            publisher.client.publish(f"{name}/t", b"%d" % number, qos)
        received = [message.payload for message in subscriber.take(count)]
        assert received == [b"%d" % number for number in range(count)]
        assert subscriber.has_nothing()


@versions
def test_wildcards(shared_broker: Broker, name: str, version: MQTTProtocolVersion) -> None:
    with joined(shared_broker, name, version) as client:
        client.subscribe(f"{name}/+/temperature", 1)
        client.subscribe(f"{name}/hall/#", 1)
        for topic in ("roof/temperature", "roof/wind", "hall", "hall/a/b", "x/y/temperature"):
            client.publish(f"{name}/{topic}", b"", 1)
        client.publish(f"{name}/hall/last", b"", 1)
        assert [message.topic for message in client.take(4)] == [
            f"{name}/{topic}" for topic in ("roof/temperature", "hall", "hall/a/b", "hall/last")
        ]


@versions
def test_retained(shared_broker: Broker, name: str, version: MQTTProtocolVersion) -> None:
    with joined(shared_broker, f"{name}p", version) as publisher:
        publisher.publish(f"{name}/kept", b"kept", 2, retain=True)
        publisher.publish(f"{name}/gone", b"gone", 2, retain=True)
        publisher.publish(f"{name}/gone", b"", 2, retain=True)
    with joined(shared_broker, f"{name}s", version) as subscriber:
        subscriber.subscribe(f"{name}/#", 2)
        subscriber.publish(f"{name}/last", b"last", 2)
        assert subscriber.take(2) == [
            Received(f"{name}/kept", b"kept", 2, True),
            Received(f"{name}/last", b"last", 2, False),
        ]


@versions
def test_a_will(shared_broker: Broker, name: str, version: MQTTProtocolVersion) -> None:
    with joined(shared_broker, f"{name}w", version) as watcher:
        watcher.subscribe(f"{name}/will/+", 1)
        with joined(shared_broker, f"{name}a", version, will=f"{name}/will/left"):
            pass
        with joined(shared_broker, f"{name}b", version, will=f"{name}/will/lost") as lost:
            lost.lose()
            assert watcher.take(1) == [Received(f"{name}/will/lost", b"gone", 1, False)]


def test_keep_alive(shared_broker: Broker, name: str) -> None:
    """paho pings by itself; with a keep alive of 1 s the broker would give it up after 1.5 s.

    [MQTT-3.12.4-1], [MQTT3-3.12.4-1].
    """
    with ExitStack() as stack:
        clients = [
            stack.enter_context(joined(shared_broker, f"{name}{version}", version, keep_alive_s=1))
            for version in VERSIONS
        ]
        let_pass(2.5)
        for client in clients:
            assert not client.was_lost()
            client.publish(f"{name}/t", b"still there", 1)


@versions
@pytest.mark.parametrize("leave", ["disconnect", "lose"])
def test_a_persistent_session(
    shared_broker: Broker, name: str, version: MQTTProtocolVersion, leave: str
) -> None:
    with joined(shared_broker, name, version, stays=True) as subscriber:
        subscriber.subscribe(f"{name}/t", 2)
        if leave == "lose":
            subscriber.lose()
    expected: dict[int, list[bytes]] = {1: [], 2: []}
    with joined(shared_broker, f"{name}p", version) as publisher:
        for number in range(100):
            qos = 1 + number % 2
            publisher.publish(f"{name}/t", b"%d" % number, qos)
            expected[qos].append(b"%d" % number)
    with joined(shared_broker, name, version, stays=True, present=True) as again:
        received: dict[int, list[bytes]] = {1: [], 2: []}
        for message in again.take(100):  # paho hands QoS 2 over later, at PUBREL
            received[message.qos].append(message.payload)
        assert received == expected
    with joined(shared_broker, name, version, stays=True, present=True) as again:
        again.publish(f"{name}/t", b"last", 1)
        assert again.take(1) == [Received(f"{name}/t", b"last", 1, False)]


@versions
def test_a_restart_under_a_connected_client(
    own_broker: Broker, name: str, version: MQTTProtocolVersion
) -> None:
    """paho reconnects by itself and both sides go on where they were."""
    with (
        joined(own_broker, f"{name}s", version, stays=True) as subscriber,
        joined(own_broker, f"{name}p", version, stays=True) as publisher,
    ):
        for client in (subscriber, publisher):
            client.client.reconnect_delay_set(1, 1)
        subscriber.subscribe(f"{name}/t", 2)
        publisher.publish(f"{name}/t", b"before", 2)
        own_broker.kill()
        publisher.client.publish(f"{name}/t", b"meanwhile", 2)
        own_broker.start()
        for client in (subscriber, publisher):
            client.wait_until_back()
        publisher.publish(f"{name}/t", b"after", 2)
        assert [message.payload for message in subscriber.take(3)] == [
            b"before",
            b"meanwhile",
            b"after",
        ]
        assert subscriber.has_nothing()
