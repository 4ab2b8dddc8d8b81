"""A server that says what a test tells it to, to clients in the same event loop.

::

      Client ══▶ Visit ── packet ─▶ script ── True: it answered, or will not ─▶ nothing more
                                      ╰────── False ─▶ what any server answers

It grants what is asked for, acknowledges what is published, and keeps nothing.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar, Unpack, cast, final

from penstock import Client
from penstock.client.client_engine import ClientEngine
from penstock.client.options import Settings
from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tests.support.deadline import DEADLINE_S

Kind = TypeVar("Kind", bound=Packet)

NOBODY: Final = "mqtt://127.0.0.1:1"
"""Where no server is."""

SOON_S: Final = 0.002  # between two attempts


@final
class Visit(asyncio.Protocol):
    """One connection, as its server sees it.

    Attributes:
        number: among those of the server, from 1.
        received: all packets, oldest first.
        is_over: the connection is.
    """

    def __init__(self, server: ScriptedServer) -> None:
        self.number = len(server.visits) + 1
        self.received: list[Packet] = []
        self.is_over = False
        self._server = server
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The packets of this kind that were received."""
        return [packet for packet in self.received if isinstance(packet, kind)]

    def send(self, *packets: Packet) -> None:
        """Send packets, in one write."""
        assert self._transport is not None
        self._transport.write(b"".join(encode(one, self._decoder.version) for one in packets))

    def unacknowledged_bytes(self) -> int:
        """What the client has written and this server, in the same loop, could not read yet."""
        assert self._transport is not None
        count = array.array("i", [0])
        fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.FIONREAD, count)
        return count[0]

    def end(self) -> None:
        """Close the connection: nothing that comes later is received."""
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()

    def end_soon(self) -> None:
        """Close the connection once what was sent has left."""
        self.is_over = True
        if self._transport is not None:
            self._transport.close()

    # -- asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.visits.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone."""
        del error
        self.is_over = True

    def data_received(self, data: bytes) -> None:
        """Some of what it says."""
        self._decoder.feed(data)
        while not self.is_over:
            packet = self._decoder.next_packet()
            if packet is None:
                return
            self.received.append(packet)
            if not self._server.script(self, packet):
                answer = usual_answer(packet)
                if answer is not None:
                    self.send(answer)


Script = Callable[[Visit, Packet], bool]


def usual_answer(packet: Packet) -> Packet | None:
    """What any server answers, if anything."""
    match packet:
        case Connect():
            return Connack()
        case Publish(qos=1):
            return Puback(packet.packet_id)
        case Publish(qos=2):
            return Pubrec(packet.packet_id)
        case Pubrel():
            return Pubcomp(packet.packet_id)
        case Subscribe():
            return Suback(packet.packet_id, [one.qos for one in packet.subscriptions])
        case Unsubscribe():
            return Unsuback(packet.packet_id, [0] * len(packet.topic_filters))
        case Pingreq():
            return Pingresp()
    return None


@final
class Door:
    """The script of a server that lets nobody in while it is not open."""

    def __init__(self) -> None:
        self.is_open = False

    def __call__(self, visit: Visit, packet: Packet) -> bool:
        """End the visit of one that says CONNECT."""
        if self.is_open or not isinstance(packet, Connect):
            return False
        visit.end()
        return True


def nothing_special(visit: Visit, packet: Packet) -> bool:
    """The script of a server like any other."""
    del visit, packet
    return False


@final
class ScriptedServer:
    """The server.

    Args:
        script: gets each packet first; whether it needs no answer any more.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.visits: list[Visit] = []
        self.url = ""

    @property
    def visit(self) -> Visit:
        """The latest connection."""
        return self.visits[-1]

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The packets of this kind that were received, on all connections."""
        return [packet for visit in self.visits for packet in visit.of(kind)]


@asynccontextmanager
async def scripted_server(script: Script = nothing_special) -> AsyncIterator[ScriptedServer]:
    """A server on a free port; its connections end with it."""
    scripted = ScriptedServer(script)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Visit(scripted), "127.0.0.1", 0)
    async with server:
        scripted.url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield scripted
        finally:
            for visit in scripted.visits:
                visit.end()
            await asyncio.sleep(0)  # their sockets close


def engine_of(client: Client) -> ClientEngine:
    """What is beneath an open client."""
    engine = client._engine
    assert engine is not None
    return engine


@asynccontextmanager
async def opened(
    script: Script = nothing_special, **settings: Unpack[Settings]
) -> AsyncIterator[tuple[Client, ScriptedServer]]:
    """A client of such a server, which dials again at once; none of it for longer than a test
    may take."""
    soon: Settings = {"reconnect_s_min": SOON_S, "reconnect_s_max": SOON_S}
    chosen = cast("Settings", {**soon, **settings})
    async with (
        asyncio.timeout(DEADLINE_S),
        scripted_server(script) as server,
        Client(server.url, **chosen) as client,
    ):
        yield client, server
