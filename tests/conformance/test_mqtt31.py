"""The rules of the MQTT 3.1 document that later versions changed or dropped, on the wire."""

from collections.abc import Iterator

import pytest

from penstock.protocol.kinds import V31
from penstock.protocol.packets import (
    Connack,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
    Will,
)
from tests.support.broker import Broker
from tests.support.fixtures import Clients, running_broker

RETRY_S = 1


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that soon sends again what an MQTT 3.1 client does not acknowledge."""
    settings = {"limits.retry_interval_s": str(RETRY_S)}
    with running_broker(tmp_path_factory.mktemp("impatient"), settings, "memory") as broker:
        yield broker


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that keeps no QoS 0 message for those who are away."""
    settings = {"limits.mqueue_store_qos0": "false"}
    with running_broker(tmp_path_factory.mktemp("forgetful"), settings, "memory") as broker:
        yield broker


def test_connect_byte_by_byte(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[V31-2.2-PROTOCOL-NAME], [V31-2.2-PROTOCOL-VERSION], [V31-3.1-FLAGS], [V31-2.5-LENGTH].

    [V31-2.2-CONNECT-RESERVED], [V31-2.3-CONNECT]: flags not in use are not looked at.
    """
    client_id = name.encode()
    for first, flags in (("10", "02"), ("1f", "02"), ("10", "03"), ("10", "3a")):
        client = clients.open(shared_broker, V31)
        body = bytes.fromhex(f"0006 4d5149736470 03 {flags} 0000")
        body += len(client_id).to_bytes(2, "big") + client_id
        client.send_bytes(bytes.fromhex(first) + bytes((len(body),)) + body)
        assert client.expect(Connack) == Connack(0)
        assert client.settle() == []


def test_another_version_is_refused(shared_broker: Broker, clients: Clients) -> None:
    """[V31-2.2-VERSION-REFUSED]."""
    client = clients.open(shared_broker, V31)
    client.send_bytes(bytes.fromhex("10 0e 0006 4d5149736470 02 02 0000 0000"))
    assert client.expect(Connack) == Connack(0x84)  # decoded from return code 1
    client.expect_end()


def test_clean_start_begins_anew(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[V31-2.2-CLEAN-START], [V31-2.2-CLEAN-START-ID]."""
    publisher = clients.join(shared_broker, f"{name}p", V31)
    client = clients.join(shared_broker, name, V31, clean_start=False)
    client.subscribe(f"{name}/t")
    for number in range(3):
        publisher.publish(f"{name}/t", b"%d" % number, 1)
    assert [client.expect(Publish).packet_id for _ in range(3)] == [1, 2, 3]
    client.drop()
    again = clients.join(shared_broker, name, V31, clean_start=True)
    publisher.publish(f"{name}/t", b"nobody", 1)
    assert again.settle() == []
    again.subscribe(f"{name}/t")
    publisher.publish(f"{name}/t", b"new", 1)
    assert again.take() == Publish(f"{name}/t", b"new", 1, packet_id=1)


def test_will_fields(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[V31-2.2-WILL-FIELDS], [V31-2.2-WILL-QOS], [V31-3.1-WILL-BYTES], [V31-2.2-WILL-LOST]."""
    watcher = clients.join(shared_broker, f"{name}w", V31)
    watcher.subscribe(f"{name}/#")
    for qos in (0, 1, 2):
        will = Will(f"{name}/{qos}", b"gone", qos)
        clients.join(shared_broker, f"{name}c", V31, will=will).drop()
        message = watcher.take()
        assert (message.topic, message.payload, message.qos) == (f"{name}/{qos}", b"gone", qos)
    for flags in ("1e", "06"):  # QoS 3, and a will that is not there
        client = clients.open(shared_broker, V31)
        client.send_bytes(bytes.fromhex(f"10 0f 0006 4d5149736470 03 {flags} 0000 0001 61"))
        client.expect_end()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        pytest.param("82 06 000a 0001 61 01", Suback(10, [1]), id="[V31-3.8-FIXED-HEADER]"),
        pytest.param("8a 06 000a 0001 61 01", Suback(10, [1]), id="SUBSCRIBE again [V31-3.8-DUP]"),
        pytest.param("82 06 000a 0001 61 f6", Suback(10, [2]), id="unused bits [V31-3.8-RESERVED]"),
        pytest.param(
            "82 0e 000a 0003 612f62 01 0003 632f64 02",
            Suback(10, [1, 2]),
            id="[V31-3.9-GRANTED] [V31-3.9-ORDER] [V31-3.8-SUBACK] [V31-3.9-ID]",
        ),
        pytest.param("a2 05 000a 0001 61", Unsuback(10, []), id="[V31-3.10-FIXED-HEADER]"),
        pytest.param("aa 05 000a 0001 61", Unsuback(10, []), id="UNSUBSCRIBE again [V31-3.10-DUP]"),
    ],
)
def test_requests(
    shared_broker: Broker, clients: Clients, name: str, sent: str, answer: Suback | Unsuback
) -> None:
    client = clients.join(shared_broker, name, V31)
    client.send_bytes(bytes.fromhex(sent))
    assert client.receive() == answer


def test_message_identifier_zero_ends_the_connection(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[V31-2.4-ZERO]; so does QoS 3 [V31-2.1-QOS], and a type that is reserved [V31-2.1-TYPES]."""
    for sent in ("32 05 0001 61 0000", "82 06 0000 0001 61 00", "36 05 0001 61 0001", "f0 00"):
        client = clients.join(shared_broker, name, V31)
        client.send_bytes(bytes.fromhex(sent))
        client.expect_end()


@pytest.mark.parametrize("size_bytes", [0, 127, 128, 16_383, 16_384, 300_000])
def test_remaining_lengths(
    shared_broker: Broker, clients: Clients, name: str, size_bytes: int
) -> None:
    """[V31-2.1-LENGTH], [V31-2.1-LENGTH-BYTES], [V31-2.3-BLOB]: of one to three bytes."""
    client = clients.join(shared_broker, name, V31)
    topic = f"{name}/t"
    client.subscribe(topic, qos=0)
    payload = bytes(number * 7 % 256 for number in range(max(0, size_bytes - len(topic) - 2)))
    client.publish(topic, payload, 0)
    assert client.take().payload == payload


def test_the_qos_2_flow(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[V31-3.5-PUBREL], [V31-3.6-PUBCOMP], [V31-3.7-DISCARD], [V31-3.4-DISCARD]."""
    client = clients.join(shared_broker, name, V31, clean_start=False)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", V31)
    publisher.publish(f"{name}/t", b"2", 2)
    publisher.publish(f"{name}/t", b"1", 1)
    second, first = client.expect(Publish), client.expect(Publish)
    client.send(Pubrec(second.packet_id), Puback(first.packet_id))
    assert client.expect(Pubrel) == Pubrel(second.packet_id)
    client.send(Pubcomp(second.packet_id))
    assert client.settle() == []
    client.drop()
    again = clients.join(shared_broker, name, V31, clean_start=False)
    assert again.settle() == []


def test_after_a_failure_messages_are_sent_again_with_dup(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[V31-4.1-QOS1-FAILURE], [V31-2.1-DUP]."""
    client = clients.join(shared_broker, name, V31, clean_start=False)
    client.subscribe(f"{name}/t")
    clients.join(shared_broker, f"{name}p", V31).publish(f"{name}/t", b"x", 1)
    assert not client.expect(Publish).dup
    client.drop()
    again = clients.join(shared_broker, name, V31, clean_start=False)
    assert again.take() == Publish(f"{name}/t", b"x", 1, dup=True, packet_id=1)


def test_after_a_failure_each_part_of_qos_2_is_sent_again_with_dup(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[V31-4.1-QOS2-FAILURE]: PUBLISH, and PUBREL too."""
    client = clients.join(shared_broker, name, V31, clean_start=False)
    client.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p", V31)
    for payload in (b"1", b"2"):
        publisher.publish(f"{name}/t", payload, 2)
    first, second = client.expect(Publish), client.expect(Publish)
    client.send(Pubrec(first.packet_id))
    assert client.expect(Pubrel) == Pubrel(first.packet_id)
    client.drop()
    again = clients.join(shared_broker, name, V31, clean_start=False)
    assert again.receive() == Pubrel(first.packet_id, dup=True)
    assert again.receive() == Publish(f"{name}/t", b"2", 2, dup=True, packet_id=second.packet_id)


def test_after_a_time_messages_are_sent_again_with_dup(
    impatient: Broker, clients: Clients, name: str
) -> None:
    """[V31-4.1-QOS1-TIMER], [V31-4.1-QOS2-TIMER]: PUBLISH, and PUBREL too."""
    client = clients.join(impatient, name, V31)
    client.subscribe(f"{name}/t")
    publisher = clients.join(impatient, f"{name}p", V31)
    for qos in (1, 2):
        publisher.publish(f"{name}/t", b"%d" % qos, qos)
    first, second = client.expect(Publish), client.expect(Publish)
    again = [client.expect(Publish) for _ in range(2)]
    assert [message.dup for message in again] == [True, True]
    assert [m.packet_id for m in again] == [first.packet_id, second.packet_id]
    client.send(Puback(first.packet_id), Pubrec(second.packet_id))
    assert client.expect(Pubrel) == Pubrel(second.packet_id)
    assert client.expect(Pubrel) == Pubrel(second.packet_id, dup=True)


def test_a_qos_2_message_is_held_until_pubrel(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[V31-3.3-QOS2-HELD]."""
    listener = clients.join(shared_broker, f"{name}s", V31)
    listener.subscribe(f"{name}/t")
    client = clients.join(shared_broker, name, V31)
    client.send(Publish(f"{name}/t", b"x", 2, packet_id=1))
    client.expect(Pubrec)
    assert listener.settle() == []
    client.send(Pubrel(1))
    client.expect(Pubcomp)
    assert listener.take().payload == b"x"


def test_qos_0_is_not_kept_for_those_who_are_away(
    forgetful: Broker, clients: Clients, name: str
) -> None:
    """[V31-3.14-QOS0], [V31-3.14-KEPT], [V31-3.14-SUBSCRIPTIONS]: QoS 0 by a setting."""
    client = clients.join(forgetful, name, V31, clean_start=False)
    client.subscribe(f"{name}/t")
    client.disconnect()
    publisher = clients.join(forgetful, f"{name}p", V31)
    for qos in (0, 1, 2):
        publisher.publish(f"{name}/t", b"%d" % qos, qos)
    publisher.settle()
    again = clients.join(forgetful, name, V31, clean_start=False)
    assert again.take_payloads(2) == [b"1", b"2"]
    assert again.settle() == []


def test_silence_ends_the_connection_and_not_the_subscriptions(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[V31-2.2-KEEP-ALIVE], [V31-2.2-KEEP-ALIVE-SUBSCRIPTIONS], [V31-2.2-WILL-LOST].

    Where keep alive is 0 it does not [V31-2.2-KEEP-ALIVE-ZERO].
    """
    patient = clients.join(shared_broker, f"{name}0", V31, keep_alive_s=0)
    watcher = clients.join(shared_broker, f"{name}w", V31)
    watcher.subscribe(f"{name}/will")
    will = Will(f"{name}/will", b"silent")
    client = clients.join(shared_broker, name, V31, clean_start=False, keep_alive_s=1, will=will)
    client.subscribe(f"{name}/t")
    client.expect_end()
    assert watcher.take().payload == b"silent"
    clients.join(shared_broker, f"{name}p", V31).publish(f"{name}/t", b"x", 1)
    again = clients.join(shared_broker, name, V31, clean_start=False)
    assert again.take().payload == b"x"
    assert patient.settle() == []


def test_retained_messages_follow_the_suback(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[V31-2.1-RETAIN-AFTER-SUBACK], [V31-2.1-RETAIN-HELD], [V31-2.1-RETAIN-QOS]."""
    publisher = clients.join(shared_broker, f"{name}p", V31)
    for qos in (0, 1, 2):
        publisher.publish(f"{name}/{qos}", b"%d" % qos, qos, retain=True)
    publisher.settle()
    client = clients.join(shared_broker, name, V31)
    assert client.subscribe(f"{name}/+") == [2]  # SUBACK is the very next packet
    received = {message.topic: message for message in (client.take() for _ in range(3))}
    assert {topic[-1]: (m.qos, m.retain) for topic, m in received.items()} == {
        "0": (0, True),
        "1": (1, True),
        "2": (2, True),
    }
    assert client.settle() == []


def test_an_acknowledged_message_is_on_persistent_storage(
    own_broker: Broker, clients: Clients
) -> None:
    """[V31-3.3-QOS1], [V31-3.3-QOS2], [V31-4.1-STORED]: it survives SIGKILL.

    That it was synced, too, is what tests/crash/test_sync_before_acknowledgement.py shows.
    """
    subscriber = clients.join(own_broker, "s", V31, clean_start=False)
    subscriber.subscribe("t")
    subscriber.disconnect()
    publisher = clients.join(own_broker, "p", V31, clean_start=False)
    publisher.publish("t", b"1", 1)
    publisher.send(Publish("t", b"2", 2, packet_id=7))
    assert publisher.expect(Pubrec) == Pubrec(7)
    own_broker.restart()
    again = clients.join(own_broker, "p", V31, clean_start=False)
    again.send(Publish("t", b"2", 2, dup=True, packet_id=7), Pubrel(7))
    assert again.expect(Pubrec) == Pubrec(7)
    assert again.expect(Pubcomp) == Pubcomp(7)
    subscriber = clients.join(own_broker, "s", V31, clean_start=False)
    assert subscriber.take_payloads(2) == [b"1", b"2"]
    assert subscriber.settle() == []
