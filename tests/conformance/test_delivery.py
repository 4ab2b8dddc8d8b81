"""QoS 1 and 2 against expiry, refusal, repetition and loss; what the window may not do."""

import pytest

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import let_pass
from tests.support.fixtures import VERSIONS, Clients
from tests.support.raw_client import RawClient


def join_kept(
    clients: Clients, broker: Broker, client_id: str, version: int, present: bool = False
) -> RawClient:
    expiry_s = 3600 if version == V5 else None
    return clients.join(
        broker, client_id, version, clean_start=False, expiry_s=expiry_s, present=present
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_an_acknowledged_identifier_means_a_new_message(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.3.2-4], [MQTT-4.3.2-5], [MQTT3-4.3.2-2], [V31-4.1-QOS1-DUPLICATE]: DUP or not."""
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name, version)
    for dup in (False, True, True, False):
        client.send(Publish(f"{name}/t", b"x", 1, dup=dup, packet_id=7))
        assert client.expect(Puback) == Puback(7)
    assert listener.take_payloads(4) == [b"x"] * 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_completed_identifier_means_a_new_message(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.3.3-8], [MQTT-4.3.3-11], [MQTT-4.3.3-12], [MQTT3-4.3.3-2]; [V31-4.1-QOS2-ONCE]."""
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name, version)
    for number in range(3):
        client.send(Publish(f"{name}/t", b"%d" % number, 2, dup=number == 1, packet_id=7))
        assert client.expect(Pubrec) == Pubrec(7)
        client.send(Publish(f"{name}/t", b"%d" % number, 2, dup=True, packet_id=7))
        assert client.expect(Pubrec) == Pubrec(7)
        client.send(Pubrel(7))
        assert client.expect(Pubcomp) == Pubcomp(7)
    assert listener.take_payloads(3) == [b"0", b"1", b"2"]
    assert listener.settle() == []


def test_a_refused_identifier_means_a_new_message(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.3.3-9]: after PUBREC 0x87."""
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name)
    client.send(Publish("$SYS/forbidden", b"x", 2, packet_id=7))
    assert client.expect(Pubrec) == Pubrec(7, 0x87)
    client.send(Publish(f"{name}/t", b"new", 2, packet_id=7), Pubrel(7))
    assert client.expect(Pubrec) == Pubrec(7)
    assert client.expect(Pubcomp) == Pubcomp(7)
    assert listener.take().payload == b"new"


@pytest.mark.parametrize("code", [0x80, 0x97])
def test_a_refusing_acknowledgement_acknowledges(
    shared_broker: Broker, clients: Clients, name: str, code: int
) -> None:
    """[MQTT-4.4.0-2]: PUBACK and PUBREC of 0x80 or above; nothing is sent again."""
    client = join_kept(clients, shared_broker, name, V5)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p")
    publisher.publish(f"{name}/t", b"1", 1)
    publisher.publish(f"{name}/t", b"2", 2)
    client.send(Puback(client.expect(Publish).packet_id, code))
    client.send(Pubrec(client.expect(Publish).packet_id, code))
    assert client.settle() == []
    client.drop()
    assert join_kept(clients, shared_broker, name, V5, present=True).settle() == []


def test_a_message_that_was_sent_does_not_expire(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.3.3-7]: sent again after a reconnect, though its interval has passed."""
    client = join_kept(clients, shared_broker, name, V5)
    client.subscribe(f"{name}/t")
    expiry = Properties(message_expiry_interval=1)
    publisher = clients.join(shared_broker, f"{name}p")
    publisher.publish(f"{name}/t", b"x", 2, properties=expiry)
    first = client.expect(Publish)
    client.drop()
    let_pass(1.2)
    again = join_kept(clients, shared_broker, name, V5, present=True)
    second = again.expect(Publish)
    assert (second.packet_id, second.payload, second.dup) == (first.packet_id, b"x", True)
    again.send(Pubrec(second.packet_id))
    assert again.expect(Pubrel) == Pubrel(second.packet_id)


def test_the_flow_is_completed_though_the_message_expired(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.3.3-13], on both sides of the broker."""
    client = join_kept(clients, shared_broker, name, V5)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p")
    expiry = Properties(message_expiry_interval=1)
    publisher.send(Publish(f"{name}/t", b"x", 2, packet_id=1, properties=expiry))
    publisher.expect(Pubrec)
    packet_id = client.expect(Publish).packet_id
    client.send(Pubrec(packet_id))
    client.expect(Pubrel)
    client.drop()
    let_pass(1.2)
    publisher.send(Publish(f"{name}/t", b"x", 2, dup=True, packet_id=1, properties=expiry))
    assert publisher.expect(Pubrec) == Pubrec(1)
    publisher.send(Pubrel(1))
    assert publisher.expect(Pubcomp) == Pubcomp(1)
    again = join_kept(clients, shared_broker, name, V5, present=True)
    assert again.expect(Pubrel) == Pubrel(packet_id)
    again.send(Pubcomp(packet_id))
    assert again.settle() == []


@pytest.mark.parametrize("version", [V311, V5])
def test_nothing_is_sent_again_within_a_connection(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.4.0-1]: only after a reconnect. [MQTT-4.3.2-3], [MQTT-4.3.3-3], [MQTT-4.3.3-5]."""
    client = join_kept(clients, shared_broker, name, version)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", version)
    for qos in (1, 2, 2):
        publisher.publish(f"{name}/t", b"%d" % qos, qos)
    first = [client.expect(Publish) for _ in range(3)]
    client.send(Pubrec(first[2].packet_id))
    client.expect(Pubrel)
    let_pass(2.5)
    assert client.settle() == []
    client.drop()
    again = join_kept(clients, shared_broker, name, version, present=True)
    assert [type(again.receive()) for _ in range(3)] == [Publish, Publish, Pubrel]


@pytest.mark.parametrize("version", [V311, V5])
def test_unsubscribing_completes_what_was_begun(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.10.4-2], [MQTT-3.10.4-3], [MQTT3-3.10.4-2], [MQTT3-3.10.4-3]."""
    client = join_kept(clients, shared_broker, name, version)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", version)
    for qos in (1, 2):
        publisher.publish(f"{name}/t", b"begun", qos)
    first = [client.expect(Publish) for _ in range(2)]
    client.send(Unsubscribe(9, [f"{name}/t"]))
    client.expect(Unsuback)
    publisher.publish(f"{name}/t", b"too late", 2)
    client.send(Pubrec(first[1].packet_id))
    assert client.expect(Pubrel) == Pubrel(first[1].packet_id)
    client.drop()
    again = join_kept(clients, shared_broker, name, version, present=True)
    assert again.receive() == Publish(
        f"{name}/t", b"begun", 1, dup=True, packet_id=first[0].packet_id
    )
    assert again.receive() == Pubrel(first[1].packet_id)
    again.send(Puback(first[0].packet_id), Pubcomp(first[1].packet_id))
    assert again.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_messages_of_one_client_keep_their_order(
    shared_broker: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6], [MQTT3-4.6.0-5], [MQTT3-4.6.0-6]."""
    listeners = [clients.join(shared_broker, f"{name}s{n}", version) for n in range(2)]
    for listener in listeners:
        listener.subscribe(f"{name}/+", qos=qos)
    publisher = clients.join(shared_broker, name, version)
    for number in range(100):
        publisher.publish(f"{name}/{number % 2}", b"%d" % number, qos)
    for listener in listeners:
        assert listener.take_payloads(100) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("version", VERSIONS)
def test_new_messages_get_identifiers_that_are_not_in_use(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.3-1], [MQTT3-2.3.1-4], [V31-2.4-IN-FLIGHT]."""
    client = clients.join(shared_broker, name, version)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", version)
    for number in range(60):
        publisher.publish(f"{name}/t", b"", 1 + number % 2)
    in_flight: dict[int, int] = {}
    for number in range(60):
        message = client.expect(Publish)
        assert message.packet_id > 0
        assert message.packet_id not in in_flight
        in_flight[message.packet_id] = message.qos
        if number % 3 > 0:
            packet_id, qos = in_flight.popitem()
            client.send(Puback(packet_id) if qos == 1 else Pubrec(packet_id, 0))
            if qos == 2:
                while not isinstance(answer := client.receive(), Pubrel):
                    assert isinstance(answer, Publish)
                    assert answer.packet_id not in (*in_flight, packet_id)
                    in_flight[answer.packet_id] = answer.qos
                client.send(Pubcomp(packet_id))
        if len(in_flight) >= 20:
            break


@pytest.mark.parametrize("version", VERSIONS)
def test_pubrel_keeps_the_order_of_pubrec(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT3-4.6.0-4], [MQTT3-4.6.0-6], [MQTT-4.6.0-4] as the sender of messages."""
    client = clients.join(shared_broker, name, version)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", version)
    for number in range(6):
        publisher.publish(f"{name}/t", b"%d" % number, 2)
    identifiers = [client.expect(Publish).packet_id for _ in range(6)]
    mixed = [identifiers[index] for index in (4, 0, 5, 2, 1, 3)]
    client.send(*(Pubrec(packet_id) for packet_id in mixed))
    assert [client.expect(Pubrel) for _ in mixed] == [Pubrel(packet_id) for packet_id in mixed]
