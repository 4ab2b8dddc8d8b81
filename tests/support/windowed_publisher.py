"""A publisher that keeps its whole window unacknowledged for as long as the broker lets it.

It counts what the broker acknowledged until the very end of the connection: every byte that came
counts, also those behind the last message that it could send.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from typing import Final, final

from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Address

_READ_BYTES: Final = 65_536
_IDENTIFIERS: Final = 65_535
_EXPIRY_S: Final = 3600


@final
class WindowedPublisher:
    """One connection that publishes to ``topic`` until the broker ends it.

    Args:
        client_id: client identifier.
        version: protocol level, 3, 4 or 5.
        qos: 1 or 2.
        window: messages that are sent and not completed, at any time.

    Attributes:
        acknowledged: payloads with a PUBACK or PUBREC.
        completed: payloads with a PUBACK or PUBCOMP.
        farewell: the reason code of the broker's DISCONNECT; None without one.
        is_whole: whether the bytes of the connection ended with a whole packet.
    """

    def __init__(self, client_id: str, version: int, qos: int, window: int) -> None:
        self.client_id = client_id
        self.version = version
        self.qos = qos
        self.window = window
        self.topic = f"load/{client_id}"
        self.acknowledged: set[str] = set()
        self.completed: set[str] = set()
        self.farewell: int | None = None
        self.is_whole = False
        self._sent = 0
        self._in_flight: dict[int, str] = {}
        self._unsent = bytearray()
        self._may_write = asyncio.Event()

    async def run(self, address: Address, source: str = "") -> None:
        """Connect, from the address ``source`` if there is one, and publish until the broker ends
        the connection."""
        loop = asyncio.get_running_loop()
        decoder = Decoder(PACKET_SIZE_BYTES_MAX, self.version, server=False)
        properties = Properties(session_expiry_interval=_EXPIRY_S) if self.version == V5 else None
        self._write([Connect(self.client_id, self.version, False, 0, properties=properties)])
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.bind((source, 0))
            await loop.sock_connect(connection, address)
            writing = asyncio.create_task(self._send_all(connection))
            try:
                while data := await loop.sock_recv(connection, _READ_BYTES):
                    decoder.feed(data)
                    while (packet := decoder.next_packet()) is not None:
                        self._handle(packet)
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
        self.is_whole = decoder.incomplete_bytes() == 0

    async def _send_all(self, connection: socket.socket) -> None:
        """Send what is to be sent. If that fails, reading goes on: it tells of the end."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            while await self._may_write.wait():
                self._may_write.clear()
                data = bytes(self._unsent)
                self._unsent.clear()
                await loop.sock_sendall(connection, data)

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            assert packet.reason_code == 0, packet
        elif isinstance(packet, Puback):
            self._complete(packet.packet_id)
        elif isinstance(packet, Pubrec):
            self.acknowledged.add(self._in_flight[packet.packet_id])
            self._write([Pubrel(packet.packet_id)])
        elif isinstance(packet, Pubcomp):
            self._complete(packet.packet_id)
        else:
            assert isinstance(packet, Disconnect), packet
            self.farewell = packet.reason_code
        self._fill()

    def _complete(self, packet_id: int) -> None:
        payload = self._in_flight.pop(packet_id)
        self.acknowledged.add(payload)
        self.completed.add(payload)

    def _fill(self) -> None:
        packets: list[Packet] = []
        while len(self._in_flight) < self.window:
            packet_id = self._sent % _IDENTIFIERS + 1
            payload = f"{self.client_id}|{self._sent}"
            self._sent += 1
            self._in_flight[packet_id] = payload
            packets.append(Publish(self.topic, payload.encode(), self.qos, packet_id=packet_id))
        self._write(packets)

    def _write(self, packets: Iterable[Packet]) -> None:
        self._unsent += b"".join(encode(packet, self.version) for packet in packets)
        self._may_write.set()
