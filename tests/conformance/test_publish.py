"""PUBLISH through the broker: what is passed on as it came, and what is not."""

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Puback, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients

TEXT_BYTES_MAX = 65_535


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_passed_on(
    shared_broker: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """[MQTT-3.3.1-3], [MQTT3-3.3.1-3]; a first delivery has no DUP.

    [MQTT-4.3.2-2], [MQTT-4.3.3-2]; [V31-2.1-DUP].
    """
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, name, version)
    publisher.send(Publish(f"{name}/t", b"again", qos, dup=True, packet_id=1))
    publisher.expect(Puback if qos == 1 else Pubrec)
    if qos == 2:
        publisher.send(Pubrel(1))
    message = listener.take()
    assert (message.payload, message.dup) == (b"again", False)


@pytest.mark.parametrize("version", VERSIONS)
def test_qos_0_arrives_once_and_is_not_answered(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.3.1-1], [MQTT-2.2.1-2], [MQTT-3.3.1-2], [MQTT-3.3.4-1].

    [MQTT3-4.3.1-1], [MQTT3-2.3.1-5], [MQTT3-3.3.1-2], [MQTT3-3.3.4-1]; [V31-4.1-QOS0],
    [V31-2.4-ONLY-ABOVE-QOS-0], [V31-3.3-ANSWER], [V31-3.3-DELIVERED].
    """
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, name, version)
    publisher.send(Publish(f"{name}/t", b"x", 0))
    assert publisher.settle() == []
    assert listener.take() == Publish(f"{name}/t", b"x", 0, packet_id=0)
    assert listener.settle() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_are_passed_on_unchanged(
    shared_broker: Broker, clients: Clients, name: str, qos: int
) -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]."""
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe(f"{name}/t")
    properties = Properties(
        payload_format_indicator=1,
        content_type="text/plain; charset=utf-8",
        response_topic=f"{name}/é/answers",
        correlation_data=bytes(range(256)),
        user_properties=[("b", "2"), ("a", "1"), ("b", "2"), ("", ""), ("b", "1")],
    )
    clients.join(shared_broker, name).publish(f"{name}/t", b"x", qos, properties=properties)
    assert listener.take().properties == properties


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        pytest.param("04 03 0001 ff", 0x81, id="content type [MQTT-3.3.2-19]"),
        pytest.param("04 08 0001 ff", 0x81, id="response topic [MQTT-3.3.2-13]"),
        pytest.param("07 26 0001 ff 0001 61", 0x81, id="name of a user property [MQTT-1.5.7-1]"),
        pytest.param("07 26 0001 61 0001 00", 0x81, id="value of a user property [MQTT-1.5.7-1]"),
        pytest.param("03 23 0000", 0x94, id="topic alias 0 [MQTT-3.3.2-8]"),
        pytest.param("04 08 0001 2b", 0x82, id="response topic + [MQTT-3.3.2-14]"),
        pytest.param("02 0b 01", 0x82, id="subscription identifier [MQTT-3.3.4-6]"),
    ],
)
def test_properties_that_are_no_text_or_not_allowed(
    shared_broker: Broker, clients: Clients, name: str, properties: str, code: int
) -> None:
    client = clients.join(shared_broker, name)
    body = b"\x00\x01t" + bytes.fromhex(properties)
    client.send_bytes(bytes((0x30, len(body))) + body)
    client.expect_disconnect(code)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_no_text(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.3.2-1], [MQTT-4.7.3-2], [MQTT3-3.3.2-1], [MQTT3-4.7.3-2], [MQTT3-4.8.0-1]."""
    for topic in (b"a\xff", b"a\x00", b"\xc3", b"\xed\xbf\xbf"):
        client = clients.join(shared_broker, name, version)
        body = len(topic).to_bytes(2, "big") + topic + (b"\x00" if version == V5 else b"")
        client.send_bytes(bytes((0x30, len(body))) + body)
        if version == V5:
            client.expect_disconnect(0x81)
        else:
            client.expect_end()


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_compared_character_by_character(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.7.3-4], [MQTT3-4.7.3-4]; a byte order mark is one of them.

    [MQTT-1.5.4-3], [MQTT3-1.5.3-3]. Composed and decomposed letters, cases and widths differ.
    """
    topics = [
        f"{name}/{ending}"
        for ending in ("\u00e9", "e\u0301", "\u212b", "\u00c5", "K", "\u212a", "k", "\ufeffk", " k")
    ]
    listeners = []
    for number, topic in enumerate(topics):
        listener = clients.join(shared_broker, f"{name}s{number}", version)
        listener.subscribe(topic)
        listeners.append(listener)
    publisher = clients.join(shared_broker, f"{name}p", version)
    for topic in topics:
        publisher.publish(topic, topic.encode(), 1)
    for topic, listener in zip(topics, listeners, strict=True):
        message = listener.take()
        assert (message.topic, message.payload) == (topic, topic.encode())
        assert listener.settle() == []


@pytest.mark.parametrize("version", [V311, V5])
def test_the_longest_topic(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-4.7.3-3], [MQTT3-4.7.3-3]: 65,535 bytes are taken; more cannot be written."""
    topic = f"{name}/".ljust(TEXT_BYTES_MAX, "x")
    listener = clients.join(shared_broker, f"{name}s", version)
    listener.subscribe(topic, qos=1)
    clients.join(shared_broker, f"{name}p", version).publish(topic, b"long", 1)
    message = listener.take()
    assert message.topic == topic
    frame = encode(message, version)
    assert frame[frame.index(b"\xff\xff") :][2 : 2 + TEXT_BYTES_MAX] == topic.encode()


def test_a_topic_too_long_for_mqtt31(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[V31-2.2-TOPIC-LENGTH]: 32,767 characters."""
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe(f"{name}/#")
    publisher = clients.join(shared_broker, name, V31)
    longest = f"{name}/".ljust(32_767, "x")
    publisher.publish(longest, b"taken", 1)
    assert listener.take().topic == longest
    topic = longest.encode() + b"x"
    publisher.send_bytes(
        b"\x30" + bytes((0x82, 0x80, 0x02)) + len(topic).to_bytes(2, "big") + topic
    )
    publisher.expect_end()


@pytest.mark.parametrize("maximum", [None, 0, 3])
def test_topic_aliases_to_a_client(
    shared_broker: Broker, clients: Clients, name: str, maximum: int | None
) -> None:
    """[MQTT-3.1.2-26], [MQTT-3.1.2-27], [MQTT-3.3.2-11], [MQTT-3.3.2-8], [MQTT-3.3.2-7].

    An alias is from 1 to the client's maximum, and stands for the topic it came with on this
    connection.
    """
    topics = [f"{name}/{number % 5}" for number in range(40)]
    publisher = clients.join(shared_broker, f"{name}p")
    for _ in range(2):
        wish = Properties(topic_alias_maximum=maximum)
        listener = clients.join(shared_broker, f"{name}s", properties=wish)
        listener.subscribe(f"{name}/#")
        known: dict[int, str] = {}
        for topic in topics:
            publisher.publish(topic, b"x", 1)
            message = listener.take()
            alias = None if message.properties is None else message.properties.topic_alias
            if alias is None:
                assert message.topic == topic
            else:
                assert 1 <= alias <= (maximum or 0)
                known[alias] = message.topic or known[alias]
                assert known[alias] == topic
        listener.disconnect()


def test_one_empty_level_or_many(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-4.7.3-1], [MQTT3-4.7.3-1]: a topic has a character at least, and a slash is one."""
    listener = clients.join(shared_broker, f"{name}s")
    listener.subscribe("/", qos=0)
    publisher = clients.join(shared_broker, name, V311)
    publisher.publish("/", b"slash", 1)
    assert listener.take().payload == b"slash"
    publisher.send_bytes(bytes.fromhex("30 02 0000"))
    publisher.expect_end()
    newer = clients.join(shared_broker, name)
    newer.send_bytes(bytes.fromhex("30 03 0000 00"))
    newer.expect_disconnect(0x82)
