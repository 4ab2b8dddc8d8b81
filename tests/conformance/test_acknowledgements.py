"""Acknowledgements: their packet identifiers, their reason codes, and their size."""

from collections.abc import Callable
from typing import Final

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients
from tests.support.raw_client import RawClient

TINY_BYTES: Final = 20  # room for every acknowledgement and CONNACK, for no reason string


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_repeat_the_packet_identifier(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-2.2.1-5], [MQTT-2.2.1-6], [MQTT-3.3.4-1], [MQTT-3.8.4-1], [MQTT-3.8.4-2].

    [MQTT-3.10.4-4], [MQTT-3.10.4-5], [MQTT-4.3.2-4], [MQTT-4.3.3-8], [MQTT-4.3.3-11];
    [MQTT3-2.3.1-6], [MQTT3-2.3.1-7], [MQTT3-3.3.4-1], [MQTT3-3.8.4-1], [MQTT3-3.8.4-2],
    [MQTT3-3.10.4-4], [MQTT3-3.10.4-5]; [V31-3.4-FORM], [V31-3.6-PUBCOMP], [V31-3.8-SUBACK],
    [V31-3.9-ID], [V31-3.10-UNSUBACK], [V31-3.11-FORM], [V31-3.3-ANSWER].
    """
    client = clients.join(shared_broker, name, version)
    for packet_id in (1, 0x0100, 0xFFFF):
        client.send(Subscribe(packet_id, [Subscription(f"{name}/other", 1)]))
        assert client.expect(Suback).packet_id == packet_id
        client.send(Unsubscribe(packet_id, [f"{name}/none"]))  # nothing ends, an answer comes
        assert client.expect(Unsuback).packet_id == packet_id
        client.send(Publish(f"{name}/t", b"", 1, packet_id=packet_id))
        assert client.expect(Puback).packet_id == packet_id
        client.send(Publish(f"{name}/t", b"", 2, packet_id=packet_id))
        assert client.expect(Pubrec).packet_id == packet_id
        client.send(Pubrel(packet_id))
        assert client.expect(Pubcomp) == Pubcomp(packet_id)


def _subscribe(topic_filter: str) -> Callable[[str], list[Packet]]:
    return lambda _: [Subscribe(1, [Subscription(topic_filter, 1)])]


CAUSES: Final = [
    pytest.param(
        lambda name: [Publish(f"{name}/nobody", b"", 1, packet_id=1)],
        Puback,
        id="PUBACK [MQTT-3.4.2-1] to [MQTT-3.4.2-3]",
    ),
    pytest.param(
        lambda _: [Publish("$SYS/x", b"", 1, packet_id=1)],
        Puback,
        id="refusing PUBACK [MQTT-3.4.2-1] to [MQTT-3.4.2-3]",
    ),
    pytest.param(
        lambda _: [Publish("$SYS/x", b"", 2, packet_id=1)],
        Pubrec,
        id="refusing PUBREC [MQTT-3.5.2-1] to [MQTT-3.5.2-3]",
    ),
    pytest.param(
        lambda _: [Pubrec(4711)], Pubrel, id="PUBREL 0x92 [MQTT-3.6.2-1] to [MQTT-3.6.2-3]"
    ),
    pytest.param(
        lambda _: [Pubrel(4711)], Pubcomp, id="PUBCOMP 0x92 [MQTT-3.7.2-1] to [MQTT-3.7.2-3]"
    ),
    pytest.param(
        _subscribe("a/#/b"), Suback, id="refusing SUBACK [MQTT-3.9.2-1] to [MQTT-3.9.2-2]"
    ),
    pytest.param(
        lambda name: [Unsubscribe(1, [f"{name}/none"])],
        Unsuback,
        id="UNSUBACK 0x11 [MQTT-3.11.2-1] to [MQTT-3.11.2-2]",
    ),
    pytest.param(
        lambda _: [Publish("t", b"", properties=Properties(topic_alias=17))],
        Disconnect,
        id="DISCONNECT [MQTT-3.14.2-3] to [MQTT-3.14.2-4]",
    ),
]


@pytest.mark.parametrize(("cause", "kind"), CAUSES)
def test_reason_strings_and_user_properties_give_way_to_the_maximum_packet_size(
    shared_broker: Broker,
    clients: Clients,
    name: str,
    cause: Callable[[str], list[Packet]],
    kind: type[Packet],
) -> None:
    """The decoder of the test refuses reason codes of another packet."""
    client = clients.join(
        shared_broker,
        name,
        properties=Properties(maximum_packet_size=TINY_BYTES, request_problem_information=1),
    )
    client.send(*cause(name))
    answer = client.expect(kind)
    assert len(encode(answer, V5)) <= TINY_BYTES


@pytest.mark.parametrize(("cause", "kind"), CAUSES)
def test_without_problem_information_answers_have_no_reason_string(
    shared_broker: Broker,
    clients: Clients,
    name: str,
    cause: Callable[[str], list[Packet]],
    kind: type[Packet],
) -> None:
    """[MQTT-3.1.2-29]; DISCONNECT may have one."""
    wish = Properties(request_problem_information=0)
    client = clients.join(shared_broker, name, properties=wish)
    client.send(*cause(name))
    answer = client.expect(kind)
    assert isinstance(answer, Disconnect) or getattr(answer, "properties", None) is None


def test_a_suback_larger_than_the_client_takes_is_not_sent(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.1.2-24]: no packet at all exceeds the client's maximum."""
    wish = Properties(maximum_packet_size=100)
    client = clients.join(shared_broker, name, properties=wish)
    client.send(Subscribe(1, [Subscription(f"{name}/{n}", 0) for n in range(200)]))
    answer = client.receive()
    assert len(encode(answer, V5)) <= 100


@pytest.mark.parametrize("version", VERSIONS)
def test_with_a_used_up_quota_everything_else_is_answered(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.3.4-10], [MQTT-4.9.0-1] to [MQTT-4.9.0-3]: QoS 0, too, is not counted."""
    wish = Properties(receive_maximum=1) if version == V5 else None
    client = clients.join(shared_broker, name, version, properties=wish)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", version)
    for number in range(40):
        publisher.publish(f"{name}/t", b"%d" % number, 1)
    first = client.settle()  # SUBSCRIBE, PUBLISH and PUBACK pass
    assert len(first) == (1 if version == V5 else 32)
    _acknowledge_all(client, first, 40)


def _acknowledge_all(client: RawClient, first: list[Packet], count: int) -> None:
    waiting = [packet for packet in first if isinstance(packet, Publish)]
    for number in range(count):
        message = waiting.pop(0) if waiting else client.expect(Publish)
        assert message.payload == b"%d" % number
        client.send(Puback(message.packet_id))
    assert client.settle() == []
