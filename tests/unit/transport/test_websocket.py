"""The WebSocket wire on a transport in memory: any bytes, and a peer that does not read."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Ping, Request, TextMessage

from penstock.config.address import Address
from penstock.config.listener import Listener
from penstock.transport.admission import Admission, Descriptors
from penstock.transport.refusals import Refusals
from penstock.transport.websocket import WebSocketWire
from penstock.transport.websocket_frames import (
    FRAMES_PER_TURN_MAX,
    IDLE_FRAMES_AT_FIRST_MAX,
)
from penstock.transport.wire import Wire

SETTINGS = Listener(kind="ws", bind=Address("127.0.0.1", 0), origins=("https://a.example",))


class Memory:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False
        self.is_read = True

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def get_extra_info(self, _: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None:
        assert not self.closed, "written after close"
        self.written += data

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Sink:
    """The user of a wire."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.data = b""
        self.ended: list[str] = []

    def data_received(self, data: bytes) -> None:
        assert not self.ended
        self.data += data
        if b"close" in data:
            self.wire.close()
            self.wire.write(b"too late")
        else:
            self.wire.write(data[:10])

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, reason: str) -> None:
        self.ended.append(reason)


class Rig:
    """One wire, its transport and its user."""

    def __init__(self) -> None:
        self.admission = Admission("ws", 1, Descriptors(1))
        slot = self.admission.admit("peer")
        assert slot is not None
        self.sinks: list[Sink] = []
        self.memory = Memory()
        self.wire = WebSocketWire("peer", "ws", SETTINGS, self._accept, slot, Refusals("ws"))
        self.wire.connection_made(cast(Any, self.memory))

    def _accept(self, wire: Wire) -> Sink:
        self.sinks.append(Sink(wire))
        return self.sinks[-1]

    def feed(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.wire.data_received(piece)

    def end(self) -> None:
        self.wire.connection_lost(None)
        assert self.admission.open_count == 0
        for sink in self.sinks:
            assert len(sink.ended) == 1


def asked_for(client: WSConnection, target: str = "/mqtt", subprotocol: str = "mqtt") -> bytes:
    """An upgrade."""
    origin = (b"Origin", b"https://a.example")
    return client.send(
        Request(host="h", target=target, subprotocols=[subprotocol], extra_headers=[origin])
    )


def conversation() -> list[bytes]:
    """What a client sends: an upgrade and one frame of each kind."""
    client = WSConnection(ConnectionType.CLIENT)
    upgrade = asked_for(client)
    rig = Rig()
    rig.feed([upgrade])
    client.receive_data(rig.memory.written)
    for _ in client.events():
        pass
    rig.end()
    return [
        upgrade,
        client.send(BytesMessage(b"packet" * 50)),
        client.send(Ping(b"ping")),
        client.send(BytesMessage(b"first", message_finished=False)),
        client.send(BytesMessage(b"rest")),
        client.send(TextMessage("text")),
        client.send(BytesMessage(b"please close")),
        client.send(CloseConnection(1000)),
        b"more",
    ]


async def test_a_congested_peer_gets_no_pongs() -> None:
    """Pings without end from a peer that does not read must not fill the memory."""
    upgrade, packet, ping = conversation()[:3]
    rig = Rig()
    rig.feed([upgrade, packet])
    before = len(rig.memory.written)
    rig.wire.pause_writing()
    rig.feed(1000 * [ping])
    assert len(rig.memory.written) == before
    rig.wire.resume_writing()
    rig.feed([ping])
    assert len(rig.memory.written) > before
    rig.end()


def is_read(rig: Rig) -> bool:
    """Whether the socket is read now."""
    return rig.memory.is_read


def is_closed(rig: Rig) -> bool:
    """Whether the socket was closed."""
    return rig.memory.closed


EMPTY_FRAMES = {
    "ping": b"\x89\x80mask",
    "pong": b"\x8a\x80mask",
    "binary": b"\x82\x80mask",
}


@pytest.mark.parametrize("kind", EMPTY_FRAMES)
async def test_before_connect_few_frames_that_carry_nothing_are_taken(kind: str) -> None:
    upgrade = conversation()[0]
    rig = Rig()
    rig.feed([upgrade, IDLE_FRAMES_AT_FIRST_MAX * EMPTY_FRAMES[kind]])
    assert not is_closed(rig)
    rig.feed([EMPTY_FRAMES[kind]])
    assert is_closed(rig)
    assert b"\x03\xf0too many frames" in rig.memory.written  # 1008, policy violation
    rig.end()


async def test_empty_fragments_count_as_frames_that_carry_nothing() -> None:
    rig = Rig()
    first, further = b"\x02\x80mask", b"\x00\x80mask"
    rig.feed([conversation()[0], first + IDLE_FRAMES_AT_FIRST_MAX * further])
    assert is_closed(rig)
    rig.end()


async def test_a_read_of_many_small_frames_is_work_for_several_turns() -> None:
    upgrade, packet = conversation()[:2]
    small = b"\x82\x81\0\0\0\0x"
    rig = Rig()
    rig.feed([upgrade, packet, (3 * FRAMES_PER_TURN_MAX + 1) * small])
    (sink,) = rig.sinks
    size = len(sink.data)
    for portion in range(1, 4):
        assert sink.data.count(b"x") == portion * FRAMES_PER_TURN_MAX
        assert not is_read(rig), "what is here comes first"
        await asyncio.sleep(0)
    assert len(sink.data) == size + 2 * FRAMES_PER_TURN_MAX + 1
    assert is_read(rig)
    rig.end()


async def test_a_wire_paused_meanwhile_is_not_read_once_the_frames_are_handled() -> None:
    upgrade, packet = conversation()[:2]
    rig = Rig()
    rig.feed([upgrade, packet, (FRAMES_PER_TURN_MAX + 1) * b"\x82\x81\0\0\0\0x"])
    rig.wire.pause_reading()
    await asyncio.sleep(0)
    assert not is_read(rig)
    rig.wire.resume_reading()
    assert is_read(rig)
    rig.end()


async def test_a_wire_resumed_meanwhile_is_not_read_until_the_frames_are_handled() -> None:
    upgrade, packet = conversation()[:2]
    rig = Rig()
    rig.feed([upgrade, packet, (FRAMES_PER_TURN_MAX + 1) * b"\x82\x81\0\0\0\0x"])
    rig.wire.pause_reading()
    rig.wire.resume_reading()
    assert not is_read(rig)
    await asyncio.sleep(0)
    assert is_read(rig)
    rig.end()


async def test_pings_without_end_are_not_read_as_fast_as_they_come() -> None:
    upgrade, packet, ping = conversation()[:3]
    rig = Rig()
    rig.feed([upgrade, packet])
    rig.feed(99 * [ping])
    assert is_read(rig), "so many may come at once"
    rig.feed(29 * [ping])
    await asyncio.sleep(0)
    assert not is_read(rig)
    assert not is_closed(rig)
    rig.end()


async def test_a_close_of_ours_is_a_close_frame_and_nothing_after_it() -> None:
    upgrade = conversation()[0]
    rig = Rig()
    rig.feed([upgrade])
    rig.wire.write(b"farewell")
    rig.wire.close()
    rig.wire.close()
    rig.wire.write(b"too late")
    assert is_closed(rig)
    assert rig.memory.written.endswith(b"farewell\x88\x02\x03\xe8")
    rig.end()


FRAGMENTS = [
    b"GET /mqtt HTTP/1.1\r\n",
    b"GET //[::1 HTTP/1.1\r\n",
    b"POST /mqtt HTTP/1.0\r\n",
    b"Host: \xff\xfe\r\n",
    b"Connection: Upgrade\r\n",
    b"Upgrade: websocket\r\n",
    b"Sec-WebSocket-Protocol: mqtt\r\n",
    b"Sec-WebSocket-Version: 13\r\n",
    b"Sec-WebSocket-Key: \x80\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"\r\n",
    b"0\r\n\r\n",
]


@given(st.data())
def test_no_error_gets_out_whatever_is_sent(data: st.DataObject) -> None:
    """Well-formed pieces in any order, cut anywhere, with bytes changed and junk between."""

    async def run() -> None:
        refused = asked_for(WSConnection(ConnectionType.CLIENT), "/other", "chat")
        known = [*conversation(), refused, *FRAGMENTS]
        piece = st.one_of(st.sampled_from(known), st.binary(max_size=40))
        begins = data.draw(st.booleans())
        sent = bytearray(known[0] if begins else b"")
        sent += b"".join(data.draw(st.lists(piece, max_size=12)))
        for position in data.draw(st.lists(st.integers(0, max(0, len(sent) - 1)), max_size=3)):
            if sent:
                sent[position] = data.draw(st.integers(0, 255))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
        edges = [0, *cuts, len(sent)]
        rig = Rig()
        rig.feed([bytes(sent[a:b]) for a, b in pairwise(edges) if a < b])
        if rig.memory.written:
            assert rig.memory.written.startswith((b"HTTP/1.1 101", b"HTTP/1.1 4"))
        assert len(rig.sinks) <= 1
        rig.end()

    asyncio.run(run())
