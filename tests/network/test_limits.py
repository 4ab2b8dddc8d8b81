"""Limits on single packets: maximum packet size and topic aliases."""

from collections.abc import Iterator

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Publish
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import Clients, running_broker

SIZE_BYTES = 1024


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "limits.max_packet_size_bytes": SIZE_BYTES,
        "limits.topic_levels_max": 4,
        "limits.subscriptions_per_session_max": 3,
        "limits.sessions_max": 3,
        "memory.share_max": 1,
        "limits.retained_messages_max": 2,
    }
    with running_broker(tmp_path_factory.mktemp("narrow"), settings, "memory") as broker:
        yield broker


def test_a_packet_of_the_maximum_size_is_taken_and_one_byte_more_is_not(
    narrow: Broker, clients: Clients, name: str
) -> None:
    """v5 §3.2.2.3.6: DISCONNECT 0x95, as soon as the length is known. [MQTT-3.2.2-15]."""
    head_bytes = len(encode(Publish(f"{name}/t", b"", 1, packet_id=1), V5)) + 1
    client = clients.join(narrow, name)
    client.publish(f"{name}/t", bytes(SIZE_BYTES - head_bytes))
    too_long = encode(Publish(f"{name}/t", bytes(SIZE_BYTES - head_bytes + 1), 1, packet_id=1), V5)
    client.send_bytes(too_long[:4])
    client.expect_disconnect(0x95)
    older = clients.join(narrow, name, V311)
    older.send_bytes(bytes.fromhex("30 ff ff ff 7f"))
    older.expect_end()


def test_a_message_too_large_for_a_receiver_is_not_sent_to_it(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: as if it had been delivered; others get it."""
    topic = f"{name}/t"
    small = clients.join(shared_broker, name, properties=Properties(maximum_packet_size=100))
    small.subscribe(topic)
    large = clients.join(shared_broker, f"{name}l")
    large.subscribe(topic)
    publisher = clients.join(shared_broker, f"{name}p")
    for qos in (0, 1, 2):
        publisher.publish(topic, bytes(200), qos)
        assert large.take().payload == bytes(200)
    publisher.publish(topic, b"fits")
    assert small.take().payload == b"fits"


def test_topic_aliases_from_a_client(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.3.2-12]: set, used, set anew; never passed on."""
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe(f"{name}/#")
    client = clients.join(shared_broker, name)

    def send(topic: str, alias: int, qos: int) -> None:
        client.publish(topic, b"x", qos, properties=Properties(topic_alias=alias))

    send(f"{name}/a", 1, 1)
    send("", 1, 0)
    send("", 1, 2)
    send(f"{name}/b", 16, 1)
    send("", 16, 1)
    send("", 1, 1)
    send(f"{name}/c", 1, 1)
    send("", 1, 1)
    received = [listener.take() for _ in range(8)]
    assert [message.topic[-1] for message in received] == list("aaabbacc")
    assert all(message.properties is None for message in received)


@pytest.mark.parametrize(("topic", "alias", "code"), [("t", 17, 0x94), ("", 2, 0x82)])
def test_a_topic_alias_out_of_range_or_unknown(
    shared_broker: Broker, clients: Clients, name: str, topic: str, alias: int, code: int
) -> None:
    """[MQTT-3.3.2-9]; an alias means nothing on another connection [MQTT-3.3.2-7].

    [MQTT-3.2.2-17].
    """
    properties = Properties(topic_alias=2)
    clients.join(shared_broker, name).publish("t", b"x", properties=properties)
    client = clients.join(shared_broker, name)
    client.send(Publish(topic, b"x", properties=Properties(topic_alias=alias)))
    client.expect_disconnect(code)


def test_topics_that_are_too_deep(narrow: Broker, clients: Clients, name: str) -> None:
    client = clients.join(narrow, name)
    assert client.subscribe("a/b/c/d", "a/b/c/d/e", qos=1) == [1, 0x8F]
    client.send(Publish("a/b/c/d/e", b"x"))
    client.expect_disconnect(0x90)


def test_too_many_subscriptions_sessions_and_retained_messages(
    narrow: Broker, clients: Clients, name: str
) -> None:
    first = clients.join(narrow, f"{name}1")
    assert first.subscribe("a", "b", "c", "d", "a", qos=0) == [0, 0, 0, 0x97, 0]
    for topic in ("r/1", "r/2", "r/3"):
        first.publish(topic, topic.encode(), retain=True)
    clients.join(narrow, f"{name}2")
    third = clients.join(narrow, f"{name}3")
    assert clients.open(narrow).connect(f"{name}4").reason_code == 0x97
    assert clients.open(narrow, V311).connect(f"{name}4").reason_code == 0x88
    third.subscribe("r/+")
    assert sorted(third.take_payloads(2)) == [b"r/1", b"r/2"]
    assert third.settle() == []
