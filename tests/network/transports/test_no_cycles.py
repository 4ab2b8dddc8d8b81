"""A client that leaves is freed by reference counts: see ``penstock.services.garbage``.

A cycle that each of a few clients leaves is found as often as there were clients.
"""

import json
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from penstock.protocol.packets import Will
from tests.network.transports.conftest import TRANSPORTS, Transports, listeners
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.dial import Authority, dial_stream
from tests.support.raw_client import RawClient

CLIENTS: Final = 10
JUNK: Final = b"\x00\x01\x02junk\r\n\r\n"


@pytest.fixture(scope="module")
def uncollected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transports]:
    """A broker whose garbage collector rests."""
    directory = tmp_path_factory.mktemp("uncollected")
    authority = Authority(directory)
    settings = {"listener.others": json.dumps(listeners(directory, authority))}
    command = (sys.executable, "-m", "tests.support.uncollected_broker", "serve")
    broker = Broker(directory, settings, command=command)
    try:
        broker.start()
        yield Transports(broker, authority, dict(zip(TRANSPORTS, broker.urls, strict=True)))
    finally:
        broker.close()


def garbage(broker: Broker) -> dict[str, int]:
    """What only the collector can free, by type."""

    def found() -> list[str]:
        return [line for line in broker.log().splitlines() if line.startswith("garbage {")]

    before = len(found())
    broker.process.send_signal(signal.SIGUSR1)
    line = wait_for("the collection", lambda: found()[before:])[0]
    types: dict[str, int] = json.loads(line[line.index("{") :])
    return types


def send_junk(stream: socket.socket) -> None:
    """What is nothing to any of them, until the broker hangs up."""
    with stream:
        try:
            stream.sendall(JUNK)
            while stream.recv(1000):
                pass
        except ConnectionError:
            pass


def left_by_each(transports: Transports) -> dict[str, int]:
    """What only the collector can free, and as much of it as every client may have left."""
    found = garbage(transports.broker)
    return {kind: count for kind, count in found.items() if count >= CLIENTS // 2}


def leave_politely(client: RawClient) -> None:
    client.disconnect()


def vanish(client: RawClient) -> None:
    client.drop()


def break_the_protocol(client: RawClient) -> None:
    client.send_bytes(b"\xff\xff\xff\xff\xff\xff")
    client.expect_disconnect(0x81)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("end", [leave_politely, vanish, break_the_protocol])
def test_a_client_leaves_no_cycle(
    uncollected: Transports, transport: str, end: object, name: str
) -> None:
    broker = uncollected.broker
    garbage(broker)  # of the start, and of other tests
    assert callable(end)
    names = [f"{name}-{number}" for number in range(CLIENTS)]
    for client_id in names:
        with uncollected.open(transport) as client:
            client.connect(client_id, will=Will(f"{name}/will", b"gone"))
            client.subscribe(f"{name}/+", qos=2)
            client.publish(f"{name}/t", b"payload", 2)
            assert client.take().payload == b"payload"
            end(client)
    wait_for(
        "all to be gone",
        lambda: all(f"client {client_id} left" in broker.log() for client_id in names),
    )
    assert left_by_each(uncollected) == {}


@pytest.mark.parametrize(
    ("transport", "is_encrypted"),
    [("tls", False), ("wss", False), ("ws", False), ("wss", True), ("tls", True)],
    ids=["for-tls", "for-wss", "for-the-upgrade", "for-the-upgrade-in-tls", "for-connect-in-tls"],
)
def test_junk_leaves_no_cycle(uncollected: Transports, transport: str, is_encrypted: bool) -> None:
    """Before there is a client: instead of TLS, of the upgrade to WebSocket, of CONNECT."""
    garbage(uncollected.broker)
    url = uncollected.urls[transport]
    if not is_encrypted:
        url = url.replace("mqtts:", "mqtt:").replace("wss:", "ws:")
    for _ in range(CLIENTS):
        send_junk(dial_stream(url, uncollected.authority.client_context())[0])
    assert left_by_each(uncollected) == {}
