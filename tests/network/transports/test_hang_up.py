"""A client that sends and hangs up while it is not read: all of it counts, on every transport."""

import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Disconnect, Publish, Will
from tests.network.transports.conftest import TRANSPORTS, Transports, listeners
from tests.support.deadline import wait_for
from tests.support.dial import Authority, WebSocket, dial_stream
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import ByteStream, RawClient

FIRST_BYTES = 200_000
MESSAGES = 50


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transports]:
    """A broker that reads little a second from each client, through every listener."""
    directory = tmp_path_factory.mktemp("limited")
    authority = Authority(directory)
    settings = {
        "listener.others": json.dumps(listeners(directory, authority)),
        "limits.bytes_per_s_max": 20_000,
    }
    with running_broker(directory, settings, persistence="memory") as broker:
        yield Transports(broker, authority, dict(zip(TRANSPORTS, broker.urls, strict=True)))


def hang_up(stream: socket.socket, how: str) -> None:
    if how == "close notify" and isinstance(stream, ssl.SSLSocket):
        stream.settimeout(0.1)
        with contextlib.suppress(OSError):  # nobody answers: we are not read
            stream.unwrap()
    elif how == "half closed":
        stream.shutdown(socket.SHUT_WR)
        return
    elif how == "reset":
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def paused(
    limited: Transports, kind: str, client_id: str, topic: str, size_bytes: int
) -> tuple[ByteStream, socket.socket]:
    """A client of one keep alive a second that has sent too much and is not read: its stream,
    and that below its frames."""
    below, path = dial_stream(limited.urls[kind], limited.authority.client_context())
    stream = WebSocket(below, path) if kind in ("ws", "wss") else below
    connect = Connect(client_id, 4, True, 1, Will(f"{topic}/will", b"gone"))
    stream.sendall(encode(connect, 4))
    assert stream.recv(4) == b"\x20\x02\x00\x00"
    stream.sendall(encode(Publish(topic, bytes(size_bytes)), 4))
    wait_for("the broker to pause", lambda: f"client {client_id} from" in limited.broker.log())
    return stream, below


def drop_handler(limited: Transports, clients: Clients, topic: str) -> RawClient:
    client = clients.join(limited.broker, topic.replace("/", "-"), 4)
    client.subscribe(f"{topic}/#")
    return client


@pytest.mark.parametrize("how", ["closed", "half closed", "close notify"])
def test_packets_sent_before_the_end_are_handled(
    limited: Transports, clients: Clients, name: str, how: str
) -> None:
    """QoS 0 messages and the DISCONNECT that lay unread: all arrive, and no will does."""
    heirs = {kind: drop_handler(limited, clients, f"{name}/{kind}") for kind in TRANSPORTS}
    opened = []
    for kind in TRANSPORTS:
        topic = f"{name}/{kind}"
        stream, below = paused(limited, kind, f"{name}{kind}", topic, FIRST_BYTES)
        for number in range(MESSAGES):
            stream.sendall(encode(Publish(topic, b"%d" % number), 4))
        stream.sendall(encode(Disconnect(), 4))
        hang_up(below, how)
        opened.append(below)
    for kind in TRANSPORTS:
        assert len(heirs[kind].take().payload) == FIRST_BYTES, kind
        last = [heirs[kind].take().payload for _ in range(MESSAGES)]
        assert last == [b"%d" % number for number in range(MESSAGES)], kind
        assert heirs[kind].settle() == [], kind
    for below in opened:
        below.close()


def test_a_connection_that_breaks_is_noticed(
    limited: Transports, clients: Clients, name: str
) -> None:
    """Not read for half a minute, and reset: its will is published long before."""
    heirs = {kind: drop_handler(limited, clients, f"{name}/{kind}") for kind in TRANSPORTS}
    for kind in TRANSPORTS:
        _, below = paused(limited, kind, f"{name}{kind}", f"{name}/{kind}", 600_000)
        hang_up(below, "reset")
    for kind in TRANSPORTS:
        last = heirs[kind].take()
        if last.topic != f"{name}/{kind}/will":  # all of it had left the client's system
            last = heirs[kind].take()
        assert last.payload == b"gone", kind
