"""SUBSCRIBE and UNSUBSCRIBE: what a filter matches, and what its options do."""

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients


@pytest.mark.parametrize("version", VERSIONS)
def test_wildcards(shared_broker: Broker, clients: Clients, name: str, version: int) -> None:
    """v5 §4.7.1. [MQTT-3.3.2-3], [MQTT3-3.3.2-3]."""
    topics = ["a", "a/b", "a/b/c", "/b", "a/", "A/b", "a//c"]
    expected = {
        "#": topics,
        "a": ["a"],
        "a/#": ["a", "a/b", "a/b/c", "a/", "a//c"],
        "a/+": ["a/b", "a/"],
        "+": ["a"],
        "+/b": ["a/b", "/b", "A/b"],
        "+/+": ["a/b", "/b", "a/", "A/b"],
        "a/+/c": ["a/b/c", "a//c"],
        "a/b/#": ["a/b", "a/b/c"],
        "a/+/#": ["a/b", "a/b/c", "a/", "a//c"],
    }
    listeners = {}
    for number, topic_filter in enumerate(expected):
        client = clients.join(shared_broker, f"{name}s{number}", version)
        assert client.subscribe(f"{name}/{topic_filter}") == [2]
        listeners[topic_filter] = client
    publisher = clients.join(shared_broker, f"{name}p", version)
    for topic in topics:
        publisher.publish(f"{name}/{topic}", topic.encode(), qos=0)
    publisher.settle()
    for topic_filter, client in listeners.items():
        packets = client.settle()
        received = [p.payload.decode() for p in packets if isinstance(p, Publish)]
        assert received == expected[topic_filter], topic_filter


def test_a_leading_wildcard_does_not_match_dollar_topics(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.7.2-1]."""
    wild = clients.join(shared_broker, f"{name}w")
    wild.subscribe(f"+/{name}", "#", qos=0)
    exact = clients.join(shared_broker, f"{name}e")
    exact.subscribe(f"$own/{name}", qos=0)
    below = clients.join(shared_broker, f"{name}b")
    below.subscribe("$own/#", qos=0)
    publisher = clients.join(shared_broker, f"{name}p")
    publisher.publish(f"$own/{name}", b"hidden")
    assert exact.take().payload == b"hidden"
    assert below.take().payload == b"hidden"
    publisher.publish(f"own/{name}", b"last")
    payloads = [b""]
    while payloads[-1] != b"last":
        payloads.append(wild.take().payload)
    assert b"hidden" not in payloads


@pytest.mark.parametrize("version", VERSIONS)
def test_the_delivered_qos_is_the_smaller_of_published_and_granted(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.8.4-8]. [MQTT3-3.8.4-6], [V31-3.8-LOWER-QOS], [V31-3.9-GRANTED]."""
    publisher = clients.join(shared_broker, f"{name}p", version)
    for granted in (0, 1, 2):
        client = clients.join(shared_broker, f"{name}s{granted}", version)
        assert client.subscribe(f"{name}/t", qos=granted) == [granted]
        for published in (0, 1, 2):
            publisher.publish(f"{name}/t", b"x", published)
            assert client.take().qos == min(published, granted)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_filter_is_answered_in_order(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.8.4-5], [MQTT-3.9.3-1]; malformed filters get 0x8F in MQTT 5, 0x80 before.

    [MQTT-3.8.4-6], [MQTT3-3.8.4-4], [MQTT3-3.8.4-5], [MQTT3-3.9.3-1], [V31-3.9-ORDER].
    """
    client = clients.join(shared_broker, name, version)
    codes = client.subscribe(f"{name}/a", "a/#/b", f"{name}/b", "a+/b", qos=1)
    wrong = 0x8F if version == V5 else 0x80
    assert codes == [1, wrong, 1, wrong]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_goes_to_one_member_of_each_group(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """v5 §4.8.2; and to an ordinary subscription of a member as well."""
    first = clients.join(shared_broker, f"{name}1", version)
    second = clients.join(shared_broker, f"{name}2", version)
    other = clients.join(shared_broker, f"{name}o", version)
    publisher = clients.join(shared_broker, f"{name}p", version)
    for member in (first, second):
        assert member.subscribe(f"$share/workers/{name}/+", qos=1) == [1]
    assert other.subscribe(f"$share/audit/{name}/+", f"{name}/#", qos=1) == [1, 1]
    for number in range(6):
        publisher.publish(f"{name}/t", str(number).encode(), qos=1)
    taken = [[member.take().payload for _ in range(3)] for member in (first, second)]
    assert sorted(taken[0] + taken[1]) == [str(number).encode() for number in range(6)]
    assert sorted(other.take().payload for _ in range(12)) == sorted(
        [str(number).encode() for number in range(6)] * 2
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_unsubscribe_ends_delivery(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.10.4-1], [MQTT-3.11.3-2].

    [MQTT3-3.10.4-1], [MQTT3-3.10.4-2], [MQTT3-3.10.4-4], [MQTT3-3.10.4-6], [V31-3.10-ENDS].
    """
    client = clients.join(shared_broker, name, version)
    client.subscribe(f"{name}/a", f"{name}/b")
    client.send(Unsubscribe(77, [f"{name}/a", f"{name}/never"]))
    expected = [0x00, 0x11] if version == V5 else []
    assert client.expect(Unsuback) == Unsuback(77, expected)
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/a", b"not any more")
    publisher.publish(f"{name}/b", b"still")
    assert client.take().payload == b"still"
    assert client.settle() == []


def test_subscribing_again_replaces_the_options(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.8.4-3]: one message, with the new QoS and the new identifier."""
    client = clients.join(shared_broker, name)
    client.subscribe(f"{name}/t", qos=0, identifier=1)
    client.subscribe(f"{name}/t", qos=1, identifier=2)
    clients.join(shared_broker, f"{name}p").publish(f"{name}/t", b"x", 2)
    message = client.take()
    assert message.qos == 1
    assert message.properties == Properties(subscription_identifiers=[2])
    assert client.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_overlapping_subscriptions_deliver_once_with_the_highest_qos(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.3.4-2]: "MUST deliver ... respecting the maximum QoS". [MQTT3-3.3.5-1]."""
    client = clients.join(shared_broker, name, version)
    client.subscribe(Subscription(f"{name}/#", 0), Subscription(f"{name}/+", 2))
    client.subscribe(Subscription(f"{name}/t", 1))
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/t", b"x", 2)
    assert client.take().qos == 2
    assert client.settle() == []


def test_all_matching_subscription_identifiers_are_sent(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.3.4-3], [MQTT-3.3.4-4]; also in a session that comes back."""
    client = clients.join(shared_broker, name, expiry_s=60)
    client.subscribe(f"{name}/#", identifier=1)
    client.subscribe(f"{name}/+", identifier=268_435_455)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p")
    publisher.publish(f"{name}/t", b"x")
    properties = client.take().properties
    assert properties is not None
    assert sorted(properties.subscription_identifiers or []) == [1, 268_435_455]
    client.disconnect()
    publisher.publish(f"{name}/t", b"y")
    again = clients.join(shared_broker, name, clean_start=False, expiry_s=60, present=True)
    properties = again.take().properties
    assert properties is not None
    assert sorted(properties.subscription_identifiers or []) == [1, 268_435_455]


def test_no_local(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.8.3-3]: not to the publisher itself, unless another subscription wants it."""
    client = clients.join(shared_broker, name)
    other = clients.join(shared_broker, f"{name}o")
    client.subscribe(Subscription(f"{name}/t", 1, no_local=True))
    client.publish(f"{name}/t", b"own")
    assert client.settle() == []
    other.publish(f"{name}/t", b"of another")
    assert client.take().payload == b"of another"
    client.subscribe(Subscription(f"{name}/+", 1))
    packet_id = client.next_id()
    client.send(Publish(f"{name}/t", b"own", 1, packet_id=packet_id))
    received = {type(packet): packet for packet in (client.receive(), client.receive())}
    assert received.keys() == {Puback, Publish}


def test_no_local_on_a_shared_subscription_is_a_protocol_error(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.8.3-4]."""
    client = clients.join(shared_broker, name)
    allowed = encode(Subscribe(1, [Subscription(f"$share/g/{name}", 1)]), V5)
    client.send_bytes(allowed[:-1] + b"\x05")  # the options: QoS 1, no local
    client.expect_disconnect(0x82)


def test_publishing_to_sys_is_refused(shared_broker: Broker, clients: Clients, name: str) -> None:
    """v5 §4.7.2: those topics are the server's. Older versions have no word for it.

    [MQTT3-3.3.5-2].
    """
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe("$SYS/#", qos=0)
    listener.settle()
    client = clients.join(shared_broker, name)
    assert client.publish(f"$SYS/{name}", b"fake", 1) == 0x87
    assert client.publish(f"$SYS/{name}", b"fake", 2) == 0x87
    client.publish(f"$SYS/{name}", b"fake", 0)
    older = clients.join(shared_broker, f"{name}o", 4)
    older.publish(f"$SYS/{name}", b"fake", 1)
    older.publish(f"$SYS/{name}", b"fake", 2)
    packets = listener.settle()
    assert [p for p in packets if isinstance(p, Publish) and p.payload == b"fake"] == []


def test_nobody_listening_is_told_in_mqtt5(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """v5 §3.4.2.1: 0x10, where the message is in no stream either."""
    client = clients.join(shared_broker, name)
    assert client.publish(f"{name}/nobody", b"x", 1) == 0x10
    client.subscribe(f"{name}/somebody", qos=0)
    client.send(Publish(f"{name}/somebody", b"x", 1, packet_id=9))
    packets = [client.receive(), client.receive()]
    assert Puback(9) in packets


@pytest.mark.parametrize("version", VERSIONS)
def test_suback_comes_before_a_retained_message(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[V31-2.1-RETAIN-AFTER-SUBACK]."""
    client = clients.join(shared_broker, name, version)
    for qos in (0, 1, 2):
        client.publish(f"{name}/{qos}", b"kept", qos, retain=True)
    wanted = [Subscription(f"{name}/+", 2)]
    client.send(Subscribe(99, wanted))
    assert client.expect(Suback) == Suback(99, [2])
    assert client.take_payloads(3) == [b"kept"] * 3
