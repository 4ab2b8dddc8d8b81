"""A server of a few lines that says what a test tells it to: right things, and wrong ones.

It runs in the event loop of the test. What it gets is cut into packets, not decoded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, final

from penstock.client.options import VERSIONS
from penstock.protocol.encode import encode
from penstock.protocol.kinds import CONNECT, DISCONNECT, PINGREQ, PUBLISH, PUBREL, SUBSCRIBE, V5
from penstock.protocol.packets import (
    Connack,
    Pingresp,
    Puback,
    Pubcomp,
    Pubrec,
    Suback,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Address
from tests.support.seen_packets import UP, Seen, cut_in_packets, seen, version_of

_READ_BYTES: Final = 65_536

Answer = Callable[[Seen], bytes | None]
"""What is sent back for a packet; None ends the connection."""


def connack(
    code: int = 0, version: str = "5", present: bool = False, properties: Properties | None = None
) -> bytes:
    """CONNACK; the code is one of that version."""
    if version != "5":
        return bytes((0x20, 2, present, code))
    return encode(Connack(code, present, properties), V5)


def well_behaved(version: str = "5", accepts: Properties | None = None) -> Answer:
    """All that a publisher or a subscriber of one filter needs."""

    def answer(packet: Seen) -> bytes:
        level = VERSIONS[version]
        if packet.kind == CONNECT:
            return connack(0, version, properties=accepts)
        if packet.kind == SUBSCRIBE:
            return suback(packet, [1], level)
        if packet.kind == PUBLISH and packet.qos > 0:
            kind = Puback if packet.qos == 1 else Pubrec
            return encode(kind(packet.packet_id), level)
        if packet.kind == PUBREL:
            return encode(Pubcomp(packet.packet_id), level)
        return encode(Pingresp(), level) if packet.kind == PINGREQ else b""

    return answer


def suback(packet: Seen, codes: list[int], level: int = V5) -> bytes:
    """SUBACK for that SUBSCRIBE, which is shorter than 128 bytes."""
    return encode(Suback(int.from_bytes(packet.raw[2:4], "big"), codes), level)


def only_to(kind: int, said: bytes | Answer | None, otherwise: Answer | None = None) -> Answer:
    """``said`` to packets of one type, or as ``otherwise`` (well behaved, MQTT 5)."""
    others = otherwise or well_behaved()

    def answer(packet: Seen) -> bytes | None:
        if packet.kind != kind:
            return others(packet)
        return said(packet) if callable(said) else said

    return answer


def after_connack(said: bytes, version: str = "5") -> Answer:
    """``said`` right behind CONNACK."""
    return only_to(CONNECT, connack(0, version) + said, well_behaved(version))


@final
class FakeServer:
    """An async context manager.

    Args:
        answers: for each connection how it is answered; the last holds for all that follow.
    """

    def __init__(self, *answers: Answer) -> None:
        self.address: Address = ("127.0.0.1", 0)
        self.connections = 0
        self.seen: list[Seen] = []
        self._answers = answers or (well_behaved(),)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._came, *self.address)
        self.address = self._server.sockets[0].getsockname()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    def of(self, *kinds: int) -> list[Seen]:
        """The packets of these types."""
        return [packet for packet in self.seen if packet.kind in kinds]

    def dismissed_with(self) -> list[int]:
        """The reason codes of the DISCONNECT packets, MQTT 5."""
        return [one.raw[2] if len(one.raw) > 2 else 0 for one in self.of(DISCONNECT)]

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError):
                await self._serve(self.connections, reader, writer)
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _serve(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        answer = self._answers[min(number, len(self._answers)) - 1]
        data = b""
        version = V5
        while piece := await reader.read(_READ_BYTES):
            *whole, data = cut_in_packets(data + piece)
            for raw in whole:
                version = version_of(raw) if raw[0] >> 4 == CONNECT else version
                packet = seen(number, UP, raw, version)
                self.seen.append(packet)
                said = answer(packet)
                if said is None:
                    return
                writer.write(said)
            await writer.drain()
