"""CONNECT, field by field: a packet of the wrong form ends the connection, and opens nothing.

MQTT 5 may be told why with CONNACK; MQTT 3.1.1 must not be told.
"""

from typing import Final

import pytest

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Connack
from tests.support.broker import Broker
from tests.support.fixtures import Clients
from tests.support.raw_client import ConnectionEndedError, RawClient

STRICT: Final = (V311, V5)


def text(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def connect(version: int, flags: int, payload: bytes, name: bytes = b"MQTT") -> bytes:
    """CONNECT with these connect flags and this payload."""
    properties = b"\x00" if version == V5 else b""
    body = text(name) + bytes((version, flags, 0, 60)) + properties + payload
    return bytes((0x10, len(body))) + body


def will(version: int, topic: bytes = b"w") -> bytes:
    return (b"\x00" if version == V5 else b"") + text(topic) + text(b"gone")


def expect_refusal(client: RawClient) -> None:
    """The end, without an accepting CONNACK; before MQTT 5 without anything."""
    try:
        answer = client.expect(Connack)
    except ConnectionEndedError:
        return
    assert client.version == V5, answer
    assert answer.reason_code >= 0x80
    client.expect_end()


ID: Final = text(b"field")
MISTAKES: Final = [
    pytest.param(0x03, ID, id="reserved flag [MQTT-3.1.2-3] [MQTT3-3.1.2-3]"),
    pytest.param(
        0x0A, ID, id="will QoS without will [MQTT-3.1.2-11] [MQTT3-3.1.2-13] [MQTT3-3.1.2-11]"
    ),
    pytest.param(0x22, ID, id="will retain without will [MQTT-3.1.2-13] [MQTT3-3.1.2-15]"),
    pytest.param(0x1E, "will", id="will QoS 3 [MQTT-3.1.2-12] [MQTT3-3.1.2-14]"),
    pytest.param(0x06, ID, id="will missing [MQTT-3.1.2-9] [MQTT3-3.1.2-9]"),
    pytest.param(0x02, "will", id="will without its flag [MQTT3-3.1.2-11]"),
    pytest.param(
        0x02, ID + text(b"u"), id="user name without its flag [MQTT-3.1.2-16] [MQTT3-3.1.2-18]"
    ),
    pytest.param(0x82, ID, id="user name missing [MQTT-3.1.2-17] [MQTT3-3.1.2-19]"),
    pytest.param(
        0x82,
        ID + text(b"u") + text(b"p"),
        id="password without its flag [MQTT-3.1.2-18] [MQTT3-3.1.2-20]",
    ),
    pytest.param(0xC2, ID + text(b"u"), id="password missing [MQTT-3.1.2-19] [MQTT3-3.1.2-21]"),
    pytest.param(0x02, b"", id="client identifier missing [MQTT-3.1.3-3] [MQTT3-3.1.3-3]"),
    pytest.param(
        0x02, text(b"a\xff"), id="client identifier not UTF-8 [MQTT-3.1.3-4] [MQTT3-3.1.3-4]"
    ),
    pytest.param(
        0x02, text(b"\xed\xa0\x80"), id="client identifier with a surrogate [MQTT3-1.5.3-1]"
    ),
    pytest.param(0x02, text(b"a\x00"), id="client identifier with U+0000 [MQTT3-1.5.3-2]"),
    pytest.param(0x06, "will\xff", id="will topic not UTF-8 [MQTT-3.1.3-11] [MQTT3-3.1.3-10]"),
    pytest.param(
        0x82, ID + text(b"\xff"), id="user name not UTF-8 [MQTT-3.1.3-12] [MQTT3-3.1.3-11]"
    ),
]


@pytest.mark.parametrize("version", STRICT)
@pytest.mark.parametrize(("flags", "payload"), MISTAKES)
def test_a_connect_of_the_wrong_form_ends_the_connection(
    shared_broker: Broker, clients: Clients, version: int, flags: int, payload: bytes | str
) -> None:
    """[MQTT-3.1.4-1], [MQTT3-3.1.4-1], [MQTT-3.14.0-1]: and no DISCONNECT without a session."""
    if isinstance(payload, str):
        payload = ID + will(version, b"\xff" if payload.endswith("\xff") else b"w")
    client = clients.open(shared_broker, version)
    client.send_bytes(connect(version, flags, payload))
    expect_refusal(client)


@pytest.mark.parametrize("version", STRICT)
@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(0x02, ID, id="no flag"),
        *(
            pytest.param(flags, "will", id=f"will {flags:#04x}")
            for flags in (0x06, 0x0E, 0x16, 0x36)
        ),
        pytest.param(0x82, ID + text(b"u"), id="user name"),
        pytest.param(0xC2, ID + text(b"u") + text(b"p"), id="password"),
    ],
)
def test_the_same_without_the_mistake_is_taken(
    shared_broker: Broker, clients: Clients, version: int, flags: int, payload: bytes | str
) -> None:
    """So that it is the flags above that are refused: [MQTT-3.1.2-11], [MQTT-3.1.2-12]."""
    if isinstance(payload, str):
        payload = ID + will(version)
    client = clients.open(shared_broker, version)
    client.send_bytes(connect(version, flags, payload))
    assert client.expect(Connack).reason_code == 0


def test_a_password_alone_is_for_mqtt5(shared_broker: Broker, clients: Clients) -> None:
    """[MQTT3-3.1.2-22]."""
    older = clients.open(shared_broker, V311)
    older.send_bytes(connect(V311, 0x42, ID + text(b"p")))
    expect_refusal(older)
    newer = clients.open(shared_broker, V5)
    newer.send_bytes(connect(V5, 0x42, ID + text(b"p")))
    assert newer.expect(Connack).reason_code == 0


@pytest.mark.parametrize("version", STRICT)
def test_another_protocol_name_is_refused(
    shared_broker: Broker, clients: Clients, version: int
) -> None:
    """[MQTT-3.1.2-1], [MQTT3-3.1.2-1]."""
    for name in (b"mqtt", b"MQTTX", b""):
        client = clients.open(shared_broker, version)
        client.send_bytes(connect(version, 0x02, ID, name))
        expect_refusal(client)


@pytest.mark.parametrize("version", STRICT)
def test_the_fields_of_the_payload_in_their_order(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.3-1], [MQTT3-3.1.3-1]; what the will says shows that each was taken for itself."""
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/will")
    client = clients.open(shared_broker, version)
    fields = text(f"{name}c".encode()) + will(version, f"{name}/will".encode())
    client.send_bytes(connect(version, 0xC6, fields + text(b"user") + text(b"password")))
    assert client.expect(Connack).reason_code == 0
    client.drop()
    assert watcher.take().payload == b"gone"
    clients.join(shared_broker, f"{name}c", version)
