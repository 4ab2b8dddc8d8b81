"""Publishes as fast as acknowledgements allow, and measures rate and CPU time of the broker.

Each publisher sends a window of QoS 1 messages as one block of encoded PUBLISH packets, and the
next block when the whole block is acknowledged. The packets are encoded once, so that the load
generator takes little CPU time.
"""

from __future__ import annotations

import math
import os
import random
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.broker import Broker
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Publish

WINDOW = 100
PAYLOAD = b"x" * 64
WARM_UP_S = 1.0
PAYLOAD_BYTES: Final = len(PAYLOAD)
_PUBACK_LENGTH_BYTES = 4
_CONNACK_LENGTH_BYTES = 4
_VERSION = 4


def _reading() -> bytes:
    """Return what a sensor may send, in JSON."""
    temperature, humidity = random.gauss(21, 3), random.uniform(20, 80)
    at_s = random.uniform(1.7e9, 1.8e9)
    text = f'{{"at":{at_s:.3f},"temperature":{temperature:.2f},"humidity":{humidity:.1f}}}'
    return text.encode().ljust(PAYLOAD_BYTES)


PAYLOADS: Final[Mapping[str, Callable[[], bytes]]] = {
    "same": lambda: PAYLOAD,
    "readings": _reading,
    "random": lambda: os.urandom(PAYLOAD_BYTES),
}
"""Kinds of payloads, all of one length, which compress more or less well."""


@dataclass(frozen=True)
class Measurement:
    """The figures of one run."""

    messages_per_s: float
    messages: int  # acknowledged messages, with those of the warm-up
    cpu_us_per_message: float
    resident_mib: float


def publish(
    broker: Broker,
    publishers: int,
    seconds: float,
    window: int = WINDOW,
    payload: Callable[[], bytes] = PAYLOADS["same"],
) -> Measurement:
    """Publish with QoS 1 from ``publishers`` connections for ``seconds``; ``payload`` is called for
    each message of the ready-made packets."""
    load = _Load(broker, publishers, window=window, payload=payload)
    warm_up_messages, _ = load.run(WARM_UP_S)
    cpu_before_s = broker.cpu_s()
    acknowledged, elapsed_s = load.run(seconds)
    cpu_s = broker.cpu_s() - cpu_before_s
    measured = Measurement(
        acknowledged / elapsed_s,
        warm_up_messages + acknowledged,
        cpu_s / max(1, acknowledged) * 1e6,
        broker.resident_mib(),
    )
    load.close()
    return measured


def publish_messages(
    broker: Broker, publishers: int, messages: int, payloads: Iterator[bytes] | None = None
) -> None:
    """Publish at least ``messages`` with QoS 1, and wait until all sent ones are acknowledged.

    It sends up to a window of each publisher more. Each message takes the next of ``payloads``.
    """
    load = _Load(broker, publishers, payloads)
    load.run(math.inf, messages)
    load.finish()
    load.close()


class _Load:
    """Publishers that send a full window as soon as the one before is acknowledged."""

    def __init__(
        self,
        broker: Broker,
        publishers: int,
        payloads: Iterator[bytes] | None = None,
        window: int = WINDOW,
        payload: Callable[[], bytes] = PAYLOADS["same"],
    ) -> None:
        self._payloads = payloads
        self._window = window
        self._selector = selectors.DefaultSelector()
        self._unacknowledged_bytes: dict[socket.socket, int] = {}
        self._blocks: dict[socket.socket, bytes] = {}
        self._numbers: dict[socket.socket, int] = {}
        self._by_descriptor: dict[int, socket.socket] = {}
        for number in range(publishers):
            connection = _connect(broker.port, number)
            self._numbers[connection] = number
            self._blocks[connection] = _block(number, iter(payload, None), window)
            self._selector.register(connection, selectors.EVENT_READ)
            self._by_descriptor[connection.fileno()] = connection
        for connection in self._blocks:
            self._send(connection)

    def run(self, seconds: float, messages: float = math.inf) -> tuple[int, float]:
        """Publish for ``seconds`` or until ``messages`` are acknowledged.

        Returns:
            The number of acknowledged messages and the elapsed time, seconds.

        Raises:
            RuntimeError: the broker closed a connection.
        """
        started_s = time.monotonic()
        acknowledged = 0
        while (elapsed_s := time.monotonic() - started_s) < seconds and acknowledged < messages:
            for key, _ in self._selector.select(1.0):
                connection = self._by_descriptor[key.fd]
                received = connection.recv(65536)
                if not received:
                    raise RuntimeError("the broker closed a connection")
                self._unacknowledged_bytes[connection] -= len(received)
                if self._unacknowledged_bytes[connection] == 0:
                    acknowledged += self._window
                    self._send(connection)
        return acknowledged, elapsed_s

    def finish(self) -> None:
        """Wait until every message is acknowledged."""
        while any(self._unacknowledged_bytes.values()):
            for key, _ in self._selector.select(1.0):
                connection = self._by_descriptor[key.fd]
                self._unacknowledged_bytes[connection] -= len(connection.recv(65536))

    def close(self) -> None:
        """Close the connections."""
        for connection in self._blocks:
            connection.close()
        self._selector.close()

    def _send(self, connection: socket.socket) -> None:
        block = self._blocks[connection]
        if self._payloads is not None:
            block = _block(self._numbers[connection], self._payloads, self._window)
        connection.sendall(block)
        self._unacknowledged_bytes[connection] = self._window * _PUBACK_LENGTH_BYTES


def _block(number: int, payloads: Iterator[bytes], window: int) -> bytes:
    """Return a window of encoded PUBLISH packets of one publisher."""
    return b"".join(
        encode(Publish(f"bench/{number}", payload, 1, packet_id=packet_id), _VERSION)
        for packet_id, payload in zip(range(1, window + 1), payloads, strict=False)
    )


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
