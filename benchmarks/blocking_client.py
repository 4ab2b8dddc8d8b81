"""A blocking MQTT client, for benchmarks that measure latencies or count bytes."""

from __future__ import annotations

import socket
import time
from typing import Final, final

from benchmarks.broker import Broker
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties

_VERSION: Final = 5
_TIMEOUT_S: Final = 120.0
_SESSION_EXPIRY_S: Final = 86_400


@final
class Client:
    """A blocking MQTT 5 client.

    Args:
        broker: the broker to connect to.
        client_id: the client identifier.
        is_persistent: whether the session outlives the connection, by a day.
    """

    def __init__(self, broker: Broker, client_id: str, is_persistent: bool = False) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(1_048_576, _VERSION, server=False)
        properties = (
            Properties(session_expiry_interval=_SESSION_EXPIRY_S) if is_persistent else None
        )
        self.send(Connect(client_id, _VERSION, not is_persistent, properties=properties))
        answer = self.read()
        assert isinstance(answer, Connack)
        assert answer.reason_code == 0, answer

    def send(self, packet: Packet) -> None:
        """Encode ``packet`` and send it."""
        self.socket.sendall(encode(packet, _VERSION))

    def send_bytes(self, data: bytes) -> None:
        """Send ``data``, which is encoded packets."""
        self.socket.sendall(data)

    def read(self) -> Packet:
        """Wait for the next packet and return it.

        Raises:
            RuntimeError: the broker closed the connection.
        """
        packet = self._decoder.next_packet()
        while packet is None:
            data = self.socket.recv(65_536)
            if not data:
                raise RuntimeError("the broker closed a connection")
            self._decoder.feed(data)
            packet = self._decoder.next_packet()
        return packet

    def subscribe(self, *filters: str) -> None:
        """Subscribe to ``filters`` with QoS 1, and wait for the SUBACK."""
        self.send(Subscribe(1, [Subscription(topic_filter, 1) for topic_filter in filters]))
        assert isinstance(self.read(), Suback)

    def measure_puback_s(self, topic: str) -> float:
        """Publish a message of QoS 1; return the time until its PUBACK, seconds."""
        started_s = time.perf_counter()
        self.send(Publish(topic, b"x" * 64, 1, packet_id=1))
        assert isinstance(self.read(), Puback)
        return time.perf_counter() - started_s

    def close(self) -> None:
        """Close the connection without a DISCONNECT."""
        self.socket.close()
