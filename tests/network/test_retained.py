"""Retained messages, and the subscription options that concern them."""

import pytest

from penstock.protocol.packets import Publish, Subscription
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import let_pass
from tests.support.fixtures import VERSIONS, Clients


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_new_subscription_gets_the_last_retained_message(
    shared_broker: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-8]: with RETAIN, and with the smaller of both QoS.

    [MQTT3-3.3.1-5] to [MQTT3-3.3.1-8], [MQTT3-3.3.1-12], [V31-2.1-RETAIN-LAST].
    """
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/t", b"old", qos, retain=True)
    publisher.publish(f"{name}/t", b"new", qos, retain=True)
    publisher.publish(f"{name}/t", b"passing", qos)
    publisher.settle()
    for granted in (0, 1, 2):
        client = clients.join(shared_broker, f"{name}s{granted}", version)
        client.subscribe(f"{name}/t", qos=granted)
        message = client.take()
        assert (message.payload, message.retain, message.dup) == (b"new", True, False)
        assert message.qos == min(qos, granted)
        assert client.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_payload_removes_the_retained_message(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]; those subscribed get it as any message.

    [MQTT3-3.3.1-9] to [MQTT3-3.3.1-11].
    """
    present = clients.join(shared_broker, f"{name}s", version)
    present.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/t", b"kept", retain=True)
    publisher.publish(f"{name}/t", b"", retain=True)
    messages = [present.take(), present.take()]
    assert [(m.payload, m.retain) for m in messages] == [(b"kept", False), (b"", False)]
    late = clients.join(shared_broker, f"{name}l", version)
    late.subscribe(f"{name}/t")
    assert late.settle() == []


def test_a_wildcard_gets_each_topics_retained_message(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    publisher = clients.join(shared_broker, f"{name}p")
    for topic in ("a", "a/b", "a/b/c", "a/x/c"):
        publisher.publish(f"{name}/{topic}", topic.encode(), retain=True)
    for topic_filter, expected in (
        ("#", {b"a", b"a/b", b"a/b/c", b"a/x/c"}),
        ("a/#", {b"a", b"a/b", b"a/b/c", b"a/x/c"}),
        ("+", {b"a"}),
        ("a/+/c", {b"a/b/c", b"a/x/c"}),
    ):
        client = clients.join(shared_broker, f"{name}s")
        client.subscribe(f"{name}/{topic_filter}")
        assert set(client.take_payloads(len(expected))) == expected
        assert client.settle() == []


def test_subscribing_again_sends_it_again(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.8.4-4]."""
    client = clients.join(shared_broker, name)
    client.publish(f"{name}/t", b"kept", retain=True)
    for _ in range(2):
        client.subscribe(f"{name}/t")
        assert client.take_payloads(1) == [b"kept"]


def test_retain_handling(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.3.1-9] to [MQTT-3.3.1-11]: 0 always, 1 if the subscription is new, 2 never."""
    client = clients.join(shared_broker, name)
    client.publish(f"{name}/t", b"kept", retain=True)

    def received(handling: int) -> list[bytes]:
        client.subscribe(Subscription(f"{name}/t", 0, retain_handling=handling))
        packets = client.settle()
        return [packet.payload for packet in packets if isinstance(packet, Publish)]

    assert received(2) == []
    assert received(1) == []  # not new any more
    assert received(0) == [b"kept"]
    fresh = clients.join(shared_broker, f"{name}f")
    fresh.subscribe(Subscription(f"{name}/t", 0, retain_handling=1))
    assert fresh.take().payload == b"kept"


def test_retain_as_published(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]."""
    plain = clients.join(shared_broker, f"{name}a")
    plain.subscribe(Subscription(f"{name}/t", 1))
    keeping = clients.join(shared_broker, f"{name}b")
    keeping.subscribe(Subscription(f"{name}/t", 1, retain_as_published=True))
    publisher = clients.join(shared_broker, f"{name}p")
    publisher.publish(f"{name}/t", b"1", retain=True)
    publisher.publish(f"{name}/t", b"2", retain=False)
    assert [plain.take().retain for _ in range(2)] == [False, False]
    assert [keeping.take().retain for _ in range(2)] == [True, False]


def test_a_retained_message_keeps_its_properties_and_expires(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.3.2-6]: what is left of the interval; gone after it (v5 §3.3.2.3.3)."""
    publisher = clients.join(shared_broker, f"{name}p")
    kept = Properties(message_expiry_interval=100, content_type="text/plain")
    publisher.publish(f"{name}/kept", b"kept", retain=True, properties=kept)
    short = Properties(message_expiry_interval=1)
    publisher.publish(f"{name}/short", b"short", retain=True, properties=short)
    let_pass(1.1)
    late = clients.join(shared_broker, f"{name}l")
    late.subscribe(f"{name}/kept", f"{name}/short")
    message = late.take()
    assert message.payload == b"kept"
    assert message.properties is not None
    assert message.properties.content_type == "text/plain"
    left_s = message.properties.message_expiry_interval
    assert left_s is not None
    assert 85 < left_s < 100
    assert late.settle() == []
