"""What holds for every transport: the same conversations, over each."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Connack, Connect, Pingreq, Pingresp, Publish, Will
from tests.network.transports.conftest import TRANSPORTS, Transports
from tests.support.deadline import wait_for
from tests.support.dial import dial_stream
from tests.support.raw_client import RawClient

every_transport = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.fixture
def joined(transports: Transports, transport: str, name: str) -> Iterator[RawClient]:
    client = transports.join(transport, name)
    with client:
        yield client


@every_transport
@pytest.mark.parametrize("version", [V31, V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_there_and_back(
    transports: Transports, transport: str, version: int, qos: int, name: str
) -> None:
    with transports.join(transport, name, version) as client:
        assert client.subscribe(f"{name}/+", qos=qos) == [qos]
        client.publish(f"{name}/t", b"payload", qos)
        message = client.take()
        assert (message.topic, message.payload, message.qos) == (f"{name}/t", b"payload", qos)
        client.disconnect()


@every_transport
def test_packets_byte_by_byte_and_many_at_once(
    transports: Transports, transport: str, name: str
) -> None:
    """[MQTT-6.0.0-2], [MQTT3-6.0.0-2]: pieces of packets, and packets in one piece."""
    with transports.open(transport) as client:
        for byte in encode(Connect(name, V5), V5):
            client.send_bytes(bytes([byte]))
        assert client.expect(Connack).reason_code == 0
        client.subscribe(f"{name}/t", qos=0)
        client.send(*(Publish(f"{name}/t", b"%d" % number) for number in range(500)), Pingreq())
        received = [client.receive() for _ in range(501)]
        payloads = [packet.payload for packet in received if isinstance(packet, Publish)]
        assert payloads == [b"%d" % number for number in range(500)]
        assert Pingresp() in received


@every_transport
def test_a_large_message(joined: RawClient, name: str) -> None:
    payload = bytes(range(256)) * 3900
    joined.subscribe(f"{name}/t")
    joined.publish(f"{name}/t", payload)
    assert joined.take().payload == payload


@every_transport
def test_a_packet_above_the_maximum_ends_the_connection(joined: RawClient) -> None:
    """v5 §3.2.2.3.6: DISCONNECT 0x95 as soon as the length is known, on every transport."""
    joined.send_bytes(bytes.fromhex("30 ff ff ff 7f"))
    joined.expect_disconnect(0x95)


@every_transport
def test_a_text_that_is_no_mqtt_ends_the_connection(transports: Transports, transport: str) -> None:
    with transports.open(transport) as client:
        client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        client.expect_end()


@every_transport
def test_a_client_that_vanishes_is_noticed(
    transports: Transports, transport: str, name: str
) -> None:
    with transports.join("tcp", f"{name}w") as watcher:
        watcher.subscribe(f"{name}/will", qos=0)
        client = transports.open(transport)
        client.connect(name, will=Will(f"{name}/will", b"gone"))
        client.drop()
        assert watcher.take().payload == b"gone"


@every_transport
def test_messages_cross_between_transports(
    transports: Transports, joined: RawClient, name: str
) -> None:
    joined.subscribe(f"{name}/t")
    with transports.join("tcp", f"{name}p") as publisher:
        for number in range(100):
            publisher.publish(f"{name}/t", b"%d" % number, 1 + number % 2)
    assert joined.take_payloads(100) == [b"%d" % number for number in range(100)]


@every_transport
def test_the_logs_name_the_peer(transports: Transports, transport: str, name: str) -> None:
    with transports.join(transport, name):
        line = wait_for(
            "the log line",
            lambda: [
                line
                for line in transports.broker.log().splitlines()
                if f"client {name} connected from" in line
            ],
        )[0]
    origin = {"tcp6": "[::1]:", "unix": "process "}.get(transport, "127.0.0.1:")
    assert f"from {origin}" in line


def test_a_slow_handshake_holds_nobody_up(transports: Transports, name: str) -> None:
    """Connections that never get to MQTT stand open on each; another client passes them."""
    for transport in ("tls", "ws", "wss"):
        scheme = "mqtt" if transport != "ws" else "ws"
        place = transports.urls[transport].partition("//")[2]
        silent = [dial_stream(f"{scheme}://{place}")[0] for _ in range(20)]
        with transports.join(transport, name) as client:
            client.publish(f"{name}/t", b"x", 1)
        for stream in silent:
            with closing(stream):
                stream.sendall(b"\x16")
