"""QoS 1 and 2, packet by packet, on both sides of the broker."""

import pytest

from penstock.protocol.kinds import V5, V31
from penstock.protocol.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients
from tests.support.raw_client import RawClient


def join_kept(
    clients: Clients, broker: Broker, client_id: str, version: int, present: bool = False
) -> RawClient:
    """Connect with a session that outlives the connection."""
    expiry_s = 3600 if version == V5 else None
    return clients.join(
        broker, client_id, version, clean_start=False, expiry_s=expiry_s, present=present
    )


# -- from the publisher to the broker --------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_publish_before_pubrel_is_one_message(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.3.3-10]: the packet identifier decides, with DUP or without.

    [MQTT-4.3.3-12], [MQTT3-4.3.3-2], [V31-4.1-QOS2-ONCE].
    """
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name, version)
    for dup in (False, True, True, False):
        client.send(Publish(f"{name}/t", b"x", 2, dup=dup, packet_id=7))
        assert client.expect(Pubrec) == Pubrec(7)
    client.send(Pubrel(7))
    assert client.expect(Pubcomp) == Pubcomp(7)
    assert listener.take().payload == b"x"
    client.send(Publish(f"{name}/t", b"y", 2, packet_id=7))  # the identifier is free again
    assert client.expect(Pubrec) == Pubrec(7)
    client.send(Pubrel(7))
    assert client.expect(Pubcomp) == Pubcomp(7)
    assert listener.take().payload == b"y"
    assert listener.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pubrel_for_an_unknown_identifier_is_completed(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """v5 §3.7.2.1: 0x92; before MQTT 5 a plain PUBCOMP, else the client would wait for ever."""
    client = clients.join(shared_broker, name, version)
    client.send(Pubrel(4711))
    assert client.expect(Pubcomp) == Pubcomp(4711, 0x92 if version == V5 else 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_completed_message_is_completed_again_on_a_resumed_session(
    own_broker: Broker, clients: Clients, name: str, version: int, is_killed: bool
) -> None:
    """Its PUBCOMP was lost with the connection. MQTT.js takes 0x92 for a message that failed."""
    expiry_s = 3600 if version == V5 else None
    client = clients.join(own_broker, name, version, clean_start=False, expiry_s=expiry_s)
    client.publish(f"{name}/t", b"x", 2)
    client.drop()
    if is_killed:
        own_broker.restart()
    client = clients.join(
        own_broker, name, version, clean_start=False, expiry_s=expiry_s, present=True
    )
    client.send(Pubrel(1))
    assert client.expect(Pubcomp) == Pubcomp(1)
    client.disconnect()
    client = clients.join(own_broker, name, version)
    client.send(Pubrel(1))
    assert client.expect(Pubcomp) == Pubcomp(1, 0x92 if version == V5 else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_received_identifiers_survive_a_lost_connection(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """v5 §4.1: the server's session state has the QoS 2 messages not completely acknowledged."""
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(f"{name}/t")
    client = join_kept(clients, shared_broker, name, version)
    client.send(Publish(f"{name}/t", b"x", 2, packet_id=7))
    client.expect(Pubrec)
    client.drop()
    again = join_kept(clients, shared_broker, name, version, present=True)
    again.send(Publish(f"{name}/t", b"x", 2, dup=True, packet_id=7), Pubrel(7))
    assert again.expect(Pubrec) == Pubrec(7)
    assert again.expect(Pubcomp) == Pubcomp(7)
    assert listener.take().payload == b"x"
    assert listener.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_start_forgets_the_received_identifiers(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.2-4]. [MQTT3-3.1.2-6], [V31-2.2-CLEAN-START]."""
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name, version)
    client.send(Publish(f"{name}/t", b"x", 2, packet_id=7))
    client.expect(Pubrec)
    client.drop()
    again = clients.join(shared_broker, name, version)
    again.send(Publish(f"{name}/t", b"y", 2, packet_id=7), Pubrel(7))
    again.expect(Pubrec)
    released = [b"y"] if version == V31 else [b"x", b"y"]  # v3.1 §3.6: x never was
    assert listener.take_payloads(len(released)) == released


@pytest.mark.parametrize("version", VERSIONS)
def test_acknowledgements_keep_the_order_of_the_messages(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.6.0-2] to [MQTT-4.6.0-3], [MQTT3-4.6.0-2] to [MQTT3-4.6.0-3], [MQTT3-4.6.0-6]."""
    client = clients.join(shared_broker, name, version)
    topic = f"{name}/t"
    client.subscribe(topic, qos=0)
    client.settle()
    identifiers = [5, 3, 9, 1, 200, 65535, 8]
    client.send(*(Publish(topic, b"", 1, packet_id=i) for i in identifiers))
    client.send(*(Publish(topic, b"", 2, packet_id=i) for i in identifiers))
    answers = [p for p in client.settle() if not isinstance(p, Publish)]
    assert answers == [Puback(i) for i in identifiers] + [Pubrec(i) for i in identifiers]
    client.send(*(Pubrel(i) for i in identifiers))
    answers = [p for p in client.settle() if not isinstance(p, Publish)]
    assert answers == [Pubcomp(i) for i in identifiers]


# -- from the broker to the subscriber -------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_flow_to_a_subscriber(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.3.3-4]: PUBREL answers PUBREC, each time; nothing else is sent.

    [MQTT-4.3.3-2], [V31-3.5-PUBREL].
    """
    client = clients.join(shared_broker, name, version)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/t", b"x", 2)
    message = client.expect(Publish)
    assert message == Publish(f"{name}/t", b"x", 2, packet_id=message.packet_id)
    for _ in range(2):
        client.send(Pubrec(message.packet_id))
        assert client.expect(Pubrel) == Pubrel(message.packet_id)
    client.send(Pubcomp(message.packet_id))
    assert client.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_unacknowledged_packets_are_sent_again_in_order(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.6.0-1]: PUBLISH with DUP, PUBREL, same identifiers.

    [MQTT-3.3.1-1], [MQTT-4.3.3-5], [MQTT-4.3.3-6], [MQTT3-3.3.1-1], [MQTT3-4.3.2-1],
    [MQTT3-4.3.3-1], [MQTT3-4.4.0-1], [MQTT3-4.6.0-1], [MQTT3-4.6.0-6], [V31-4.1-QOS1-FAILURE].
    """
    topic = f"{name}/t"
    client = join_kept(clients, shared_broker, name, version)
    client.subscribe(topic)
    publisher = clients.join(shared_broker, f"{name}p", version)
    for number, qos in enumerate((1, 2, 2, 1, 2, 1)):
        publisher.publish(topic, b"%d" % number, qos)
    first = [client.expect(Publish) for _ in range(6)]
    client.send(Pubrec(first[1].packet_id), Puback(first[3].packet_id))
    assert client.expect(Pubrel) == Pubrel(first[1].packet_id)
    client.drop()
    publisher.publish(topic, b"later", 1)
    for _ in range(2):  # losing it again changes nothing
        again = join_kept(clients, shared_broker, name, version, present=True)
        assert [again.receive() for _ in range(5)] == [
            Publish(topic, b"0", 1, dup=True, packet_id=first[0].packet_id),
            Pubrel(first[1].packet_id, dup=version == V31),
            Publish(topic, b"2", 2, dup=True, packet_id=first[2].packet_id),
            Publish(topic, b"4", 2, dup=True, packet_id=first[4].packet_id),
            Publish(topic, b"5", 1, dup=True, packet_id=first[5].packet_id),
        ]
        assert again.expect(Publish).payload == b"later"
        again.drop()


@pytest.mark.parametrize("version", VERSIONS)
def test_after_a_clean_start_nothing_is_sent_again(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    client = join_kept(clients, shared_broker, name, version)
    client.subscribe(f"{name}/t")
    clients.join(shared_broker, f"{name}p").publish(f"{name}/t", b"x", 2)
    client.expect(Publish)
    client.drop()
    assert clients.join(shared_broker, name, version, clean_start=True).settle() == []
    again = join_kept(clients, shared_broker, name, version)
    assert again.settle() == []


def test_a_refusing_pubrec_ends_the_flow(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """v5 §4.3.3: after PUBREC >= 0x80 no PUBREL is sent and the identifier is free.

    [MQTT-4.4.0-2].
    """
    client = join_kept(clients, shared_broker, name, V5)
    client.subscribe(f"{name}/t")
    clients.join(shared_broker, f"{name}p").publish(f"{name}/t", b"x", 2)
    client.send(Pubrec(client.expect(Publish).packet_id, 0x97))
    assert client.settle() == []
    client.drop()
    assert join_kept(clients, shared_broker, name, V5, present=True).settle() == []


def test_acknowledgements_for_unknown_identifiers(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """A PUBREC is answered with PUBREL 0x92 (v5 §3.6.2.1), the others change nothing."""
    client = clients.join(shared_broker, name)
    client.send(Puback(999), Pubcomp(999))
    assert client.settle() == []
    client.send(Pubrec(999))
    assert client.expect(Pubrel) == Pubrel(999, 0x92)


def test_an_acknowledgement_of_the_wrong_kind_is_a_protocol_error(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    publisher = clients.join(shared_broker, f"{name}p")
    for qos in (1, 2):
        client = clients.join(shared_broker, f"{name}{qos}")
        client.subscribe(f"{name}/{qos}")
        publisher.publish(f"{name}/{qos}", b"x", qos)
        packet_id = client.expect(Publish).packet_id
        client.send(Puback(packet_id) if qos == 2 else Pubcomp(packet_id))
        client.expect_disconnect(0x82)
