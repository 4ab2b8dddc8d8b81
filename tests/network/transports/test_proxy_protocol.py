"""Behind a load balancer: its header first, from trusted networks only, before TLS."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import Broker, address_of
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.dial import Authority, WebSocket
from tests.support.fixtures import running_broker
from tests.support.raw_client import ByteStream, RawClient

HEADER = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 1883\r\n"
Start = Callable[..., Broker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a broker with a listener of these settings."""
    running = []

    def start(**settings: Any) -> Broker:
        listener = {
            "name": "behind",
            "bind": "127.0.0.1:0",
            "proxy_protocol": "any",
            "proxy_networks": ["127.0.0.0/8"],
            **settings,
        }
        broker = running_broker(tmp_path, {"listener.others": json.dumps([listener])}, "memory")
        running.append(broker)
        return broker.__enter__()

    yield start
    for broker in running:
        broker.__exit__(None, None, None)


def raw(broker: Broker, first: bytes) -> socket.socket:
    """A TCP connection on which this was sent."""
    url = broker.urls[1].removesuffix("/mqtt")
    stream = socket.create_connection(address_of(url), DEADLINE_S)
    stream.sendall(first)
    return stream


def peer_of(broker: Broker, name: str, stream: ByteStream) -> str:
    """Connect; where the broker says that this client came from."""
    with RawClient(("", 0), 5, stream) as client:
        assert client.connect(name).reason_code == 0
    said = f"client {name} connected from "
    lines = wait_for(
        "the log line", lambda: [line for line in broker.log().splitlines() if said in line]
    )
    return str(lines[0].partition(said)[2].partition(": ")[0])


def test_the_client_is_the_one_the_load_balancer_names(start: Start) -> None:
    broker = start()
    assert peer_of(broker, "a", raw(broker, HEADER)) == "192.0.2.7:51234"
    v6 = b"PROXY TCP6 2001:db8::7 ::1 51234 1883\r\n"
    assert peer_of(broker, "b", raw(broker, v6)) == "[2001:db8::7]:51234"
    health_check = bytes.fromhex("0d0a0d0a000d0a515549540a 20 00 0000")
    assert peer_of(broker, "c", raw(broker, health_check)).startswith("127.0.0.1:")


def test_before_tls(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "localhost")
    broker = start(kind="tls", certificate=certificate, key=key)
    context = authority.client_context()
    stream = context.wrap_socket(raw(broker, HEADER), server_hostname="localhost")
    assert peer_of(broker, "a", stream) == "192.0.2.7:51234"


def test_before_the_upgrade(start: Start) -> None:
    broker = start(kind="ws")
    assert peer_of(broker, "a", WebSocket(raw(broker, HEADER))) == "192.0.2.7:51234"


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({}, b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"),
        ({"proxy_protocol": "v2"}, HEADER),
        ({"proxy_networks": ["192.0.2.0/24"]}, HEADER),
        ({"connect_timeout_s": 0.5}, b"PROXY TCP4 192"),
        ({"connect_timeout_s": 0.5}, b""),
        ({"connect_timeout_s": 0.5}, bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 0800")),
    ],
)
def test_without_the_header_there_is_no_connection(
    start: Start, settings: dict[str, Any], first: bytes
) -> None:
    broker = start(**settings)
    with RawClient(("", 0), 5, raw(broker, first)) as client:
        client.expect_end()
    assert "connected from" not in broker.log()
