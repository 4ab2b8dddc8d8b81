"""SUBSCRIBE and UNSUBSCRIBE, and retained messages, in the versions that number their rules."""

from typing import Final

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import (
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients

STRICT: Final = (V311, V5)


@pytest.mark.parametrize("version", STRICT)
def test_one_packet_with_many_filters_is_as_many_packets(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.8.4-5] to [MQTT-3.8.4-7], [MQTT-3.9.3-1], [MQTT-3.9.3-2], [MQTT-3.10.4-6].

    [MQTT-3.11.3-1], [MQTT-3.11.3-2]; [MQTT3-3.8.4-4], [MQTT3-3.8.4-5], [MQTT3-3.9.3-1],
    [MQTT3-3.9.3-2], [MQTT3-3.10.4-6]. The last of two equal filters holds.
    """
    client = clients.join(shared_broker, name, version)
    asked = [
        Subscription(f"{name}/a", 0),
        Subscription(f"{name}/a/#/b", 2),
        Subscription(f"{name}/b", 2),
        Subscription(f"{name}/a", 1),
    ]
    client.send(Subscribe(9, asked))
    wrong = 0x8F if version == V5 else 0x80
    assert client.expect(Suback) == Suback(9, [0, wrong, 2, 1])
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/a", b"a", 2)
    publisher.publish(f"{name}/b", b"b", 2)
    assert [client.take().qos for _ in range(2)] == [1, 2]
    client.send(Unsubscribe(10, [f"{name}/b", f"{name}/c", f"{name}/a"]))
    codes = [0x00, 0x11, 0x00] if version == V5 else []
    assert client.expect(Unsuback) == Unsuback(10, codes)
    publisher.publish(f"{name}/a", b"a", 2)
    publisher.publish(f"{name}/b", b"b", 2)
    assert client.settle() == []


@pytest.mark.parametrize("version", STRICT)
def test_only_the_very_same_filter_ends_a_subscription(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.10.4-1], [MQTT3-3.10.4-1]."""
    client = clients.join(shared_broker, name, version)
    client.subscribe(f"{name}/+/t")
    for number, other in enumerate(("a/t", "#", "+/T", "+/t/", "+/+", "+/t/#")):
        client.send(Unsubscribe(number + 1, [f"{name}/{other}"]))
        client.expect(Unsuback)
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/a/t", b"still", 1)
    assert client.take().payload == b"still"
    client.send(Unsubscribe(99, [f"{name}/+/t"]))
    client.expect(Unsuback)
    publisher.publish(f"{name}/a/t", b"no more", 1)
    assert client.settle() == []


@pytest.mark.parametrize("version", STRICT)
@pytest.mark.parametrize(
    ("packet", "code"),
    [
        pytest.param(b"\x82\x02\x00\x01", 0x82, id="no filter [MQTT-3.8.3-2] [MQTT3-3.8.3-3]"),
        pytest.param(
            b"\xa2\x02\x00\x01", 0x82, id="no filter to end [MQTT-3.10.3-2] [MQTT3-3.10.3-2]"
        ),
        pytest.param(
            b"\x82\x06\x00\x01\x00\x01\xff\x00",
            0x81,
            id="filter not UTF-8 [MQTT-3.8.3-1] [MQTT3-3.8.3-1]",
        ),
        pytest.param(
            b"\xa2\x05\x00\x01\x00\x01\xff",
            0x81,
            id="filter to end not UTF-8 [MQTT-3.10.3-1] [MQTT3-3.10.3-1]",
        ),
        pytest.param(
            b"\x82\x06\x00\x01\x00\x01a\x80",
            0x81,
            id="reserved bits [MQTT-3.8.3-5] [MQTT3-3.8.3-4]",
        ),
    ],
)
def test_a_malformed_request_ends_the_connection(
    shared_broker: Broker, clients: Clients, name: str, version: int, packet: bytes, code: int
) -> None:
    client = clients.join(shared_broker, name, version)
    if version == V5:  # no properties, behind the packet identifier
        packet = bytes((packet[0], packet[1] + 1)) + packet[2:4] + b"\x00" + packet[4:]
    client.send_bytes(packet)
    if version == V5:
        client.expect_disconnect(code)
    else:
        client.expect_end()


def test_a_qos_of_3_ends_the_connection(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT3-3.8.3-4]."""
    client = clients.join(shared_broker, name, V311)
    client.send_bytes(b"\x82\x06\x00\x01\x00\x01a\x03")
    client.expect_end()


@pytest.mark.parametrize("version", STRICT)
def test_ill_formed_filters_are_refused_and_the_connection_stays(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.7.0-1], [MQTT-4.7.1-1], [MQTT-4.7.1-2]; [MQTT3-4.7.1-2], [MQTT3-4.7.1-3]."""
    client = clients.join(shared_broker, name, version)
    wrong = ["a#", "a/#/b", "#/a", "##", "+a", "a+", "a/b+/c", "a/+b", "++"]
    right = ["#", "a/#", "+", "+/a", "a/+", "+/+", "/+/#", "/#"]
    refused = 0x8F if version == V5 else 0x80
    assert client.subscribe(*wrong, qos=0) == [refused] * len(wrong)
    codes = client.subscribe(*[f"{name}/{one}" for one in right], qos=0)
    assert codes == [0] * len(right)


@pytest.mark.parametrize("version", STRICT)
def test_a_wildcard_in_a_topic_ends_the_connection(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.3.2-2], [MQTT-4.7.0-1], [MQTT3-3.3.2-2], [MQTT3-4.7.1-1]; [MQTT3-4.8.0-1]."""
    for topic in ("a/+", "#", "a/b#c", "+"):
        client = clients.join(shared_broker, name, version)
        client.send_bytes(encode(Publish(topic, b"x"), version))
        if version == V5:
            client.expect_disconnect(0x90)
        else:
            client.expect_end()


@pytest.mark.parametrize("version", STRICT)
def test_subscribing_again_loses_no_message(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.8.4-3], [MQTT-3.8.4-4], [MQTT3-3.8.4-3]: retained again, live ones once each."""
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/t", b"kept", 1, retain=True)
    client = clients.join(shared_broker, name, version)
    client.subscribe(f"{name}/t", qos=1)
    assert client.take().retain
    for number in range(5):
        publisher.send(Publish(f"{name}/t", b"%d" % number, 1, packet_id=number + 1))
        client.send(Subscribe(number + 1, [Subscription(f"{name}/t", 1)]))
    publisher.settle()
    messages = [packet for packet in client.settle() if isinstance(packet, Publish)]
    received = [(message.payload, message.retain) for message in messages]
    live = [payload for payload, retain in received if not retain]
    assert live == [b"%d" % number for number in range(5)]
    assert received.count((b"kept", True)) == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_retain_is_for_later_subscribers_only(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.3.1-12], [MQTT3-3.3.1-6], [MQTT3-3.3.1-8], [MQTT3-3.3.1-9]; [V31-2.1-RETAIN-FLAG]."""
    present = clients.join(shared_broker, f"{name}s", version)
    present.subscribe(f"{name}/t")
    clients.join(shared_broker, name, version).publish(f"{name}/t", b"x", 1, retain=True)
    assert not present.take().retain
    late = clients.join(shared_broker, f"{name}l", version)
    late.subscribe(f"{name}/t")
    assert late.take().retain


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_gives_way_to_the_next_of_any_qos(
    shared_broker: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """[MQTT-3.3.1-5], [MQTT3-3.3.1-5], [MQTT3-3.3.1-7], [V31-2.1-RETAIN-LAST]."""
    publisher = clients.join(shared_broker, name, version)
    publisher.publish(f"{name}/t", b"first", 2, retain=True)
    publisher.publish(f"{name}/t", b"second", qos, retain=True)
    publisher.settle()
    late = clients.join(shared_broker, f"{name}l", version)
    late.subscribe(f"{name}/t")
    message = late.take()
    assert (message.payload, message.qos) == (b"second", qos)
    assert late.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_wildcards_do_not_reach_topics_that_begin_with_a_dollar(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.7.2-1], [MQTT3-4.7.2-1]."""
    wild = clients.join(shared_broker, f"{name}w", version)
    wild.subscribe(f"+/{name}/t", f"+/{name}/#", qos=0)
    named = clients.join(shared_broker, f"{name}n", version)
    named.subscribe(f"$own/{name}/+", qos=0)
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"$own/{name}/t", b"hidden", 1)
    publisher.publish(f"own/{name}/t", b"seen", 1)
    assert named.take().payload == b"hidden"
    assert wild.take().payload == b"seen"
    assert wild.settle() == []
