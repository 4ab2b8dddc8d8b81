"""A client that does one thing at a time, for benchmarks that count waits or bytes."""

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
_SECONDS_AWAY: Final = 86_400


@final
class Client:
    """One MQTT 5 client that does a thing at a time."""

    def __init__(self, broker: Broker, client_id: str, kept: bool = False) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(1_048_576, _VERSION, server=False)
        properties = Properties(session_expiry_interval=_SECONDS_AWAY) if kept else None
        self.send(Connect(client_id, _VERSION, not kept, properties=properties))
        answer = self.read()
        assert isinstance(answer, Connack)
        assert answer.reason_code == 0, answer

    def send(self, packet: Packet) -> None:
        """Send ``packet``."""
        self.socket.sendall(encode(packet, _VERSION))

    def send_bytes(self, data: bytes) -> None:
        """Send packets that are encoded already."""
        self.socket.sendall(data)

    def read(self) -> Packet:
        """The next packet."""
        packet = self._decoder.next_packet()
        while packet is None:
            data = self.socket.recv(65_536)
            if not data:
                raise RuntimeError("the broker closed a connection")
            self._decoder.feed(data)
            packet = self._decoder.next_packet()
        return packet

    def subscribe(self, *filters: str) -> None:
        """Subscribe with QoS 1."""
        self.send(Subscribe(1, [Subscription(one, 1) for one in filters]))
        assert isinstance(self.read(), Suback)

    def publish_s(self, topic: str) -> float:
        """How long one QoS 1 message waits for its PUBACK, seconds."""
        started_s = time.perf_counter()
        self.send(Publish(topic, b"x" * 64, 1, packet_id=1))
        assert isinstance(self.read(), Puback)
        return time.perf_counter() - started_s

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()
