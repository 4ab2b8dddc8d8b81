"""Publish as fast as acknowledgements allow: messages a second and broker CPU a message.

Each publisher keeps a window of QoS 1 messages: it sends a block of ready-made PUBLISH
packets and the next one when the whole block is acknowledged. The packets are encoded
once, so the generator costs little and the broker is what is measured.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass

from benchmarks.broker import Broker
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Publish

WINDOW = 100
PAYLOAD = b"x" * 64
WARM_UP_S = 1.0
_PUBACK_LENGTH_BYTES = 4
_CONNACK_LENGTH_BYTES = 4
_VERSION = 4


@dataclass(frozen=True)
class Measured:
    """One run."""

    messages_per_s: float
    cpu_us_per_message: float
    resident_mib: float


def publish(broker: Broker, publishers: int, seconds: float) -> Measured:
    """Publish with QoS 1 from ``publishers`` connections for ``seconds``."""
    connections = [_connect(broker.port, number) for number in range(publishers)]
    selector = selectors.DefaultSelector()
    owed: dict[socket.socket, int] = {}
    blocks: dict[socket.socket, bytes] = {}
    by_descriptor: dict[int, socket.socket] = {}
    for number, connection in enumerate(connections):
        topic = f"bench/{number}"
        blocks[connection] = b"".join(
            encode(Publish(topic, PAYLOAD, 1, False, False, packet_id), _VERSION)
            for packet_id in range(1, WINDOW + 1)
        )
        selector.register(connection, selectors.EVENT_READ)
        by_descriptor[connection.fileno()] = connection
    for connection in connections:
        connection.sendall(blocks[connection])
        owed[connection] = WINDOW * _PUBACK_LENGTH_BYTES
    _rounds(selector, by_descriptor, blocks, owed, WARM_UP_S)
    cpu_before_s = broker.cpu_s()
    acknowledged, elapsed_s = _rounds(selector, by_descriptor, blocks, owed, seconds)
    cpu_s = broker.cpu_s() - cpu_before_s
    measured = Measured(
        acknowledged / elapsed_s, cpu_s / max(1, acknowledged) * 1e6, broker.resident_mib()
    )
    for connection in connections:
        connection.close()
    return measured


def _rounds(
    selector: selectors.BaseSelector,
    by_descriptor: dict[int, socket.socket],
    blocks: dict[socket.socket, bytes],
    owed: dict[socket.socket, int],
    seconds: float,
) -> tuple[int, float]:
    """Keep every window full for ``seconds``; messages acknowledged, and how long it took."""
    started_s = time.monotonic()
    acknowledged = 0
    while (elapsed_s := time.monotonic() - started_s) < seconds:
        for key, _ in selector.select(1.0):
            connection = by_descriptor[key.fd]
            received = connection.recv(65536)
            if not received:
                raise RuntimeError("the broker closed a connection")
            owed[connection] -= len(received)
            if owed[connection] == 0:
                acknowledged += WINDOW
                connection.sendall(blocks[connection])
                owed[connection] = WINDOW * _PUBACK_LENGTH_BYTES
    return acknowledged, elapsed_s


def _connect(port: int, number: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(encode(Connect(f"bench-{number}", _VERSION), _VERSION))
    answer = b""
    while len(answer) < _CONNACK_LENGTH_BYTES:
        received = connection.recv(_CONNACK_LENGTH_BYTES)
        if not received:
            raise RuntimeError("the broker closed a connection")
        answer += received
    return connection
