"""A wire whose peer does not read, or has gone: all it holds is counted, and it ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final, cast, final

import pytest
import trustme
import uvloop

from penstock.transport.stream import StreamWire
from penstock.transport.tls_opening import open_tls
from tests.support.deadline import DEADLINE_S

# The system takes megabytes before our own buffers fill: the first lies in the lowest of them.
PIECES: Final = (bytes(10_000_000), bytes(1_000_000), bytes(1_000_000))
TAKEN_BYTES_MAX: Final = 500_000  # by the client: its system's buffer, and one read for its TLS
BUFFER_BYTES_MAX: Final = 1_000_000

AUTHORITY: Final = trustme.CA()


@final
class Congestible(StreamWire):
    """A wire that notes when it is told to write less."""

    def __init__(self) -> None:
        super().__init__()
        self.congested = False
        self.stands = asyncio.Event()
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        self.stands.set()

    def pause_writing(self) -> None:
        self.congested = True

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.gone.set()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def end(self) -> None:
        assert self._transport is not None
        self._end(self._transport, lingers=True)

    def abort(self) -> None:
        assert self._transport is not None
        self._transport.abort()


def deaf_pair() -> tuple[socket.socket, socket.socket]:
    """The broker's end, and a client's with the smallest receive buffer there is."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
    accepted.setblocking(False)
    return accepted, client


async def stand(wire: Congestible, is_encrypted: bool) -> socket.socket:
    """Open ``wire`` with a client that reads nothing; the client, to be closed."""
    loop = asyncio.get_running_loop()
    accepted, client = deaf_pair()
    if not is_encrypted:
        await loop.connect_accepted_socket(lambda: wire, accepted)
        return client
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    AUTHORITY.issue_cert("localhost").configure_cert(ours)
    AUTHORITY.configure_trust(theirs)
    shaking = loop.run_in_executor(
        None, lambda: theirs.wrap_socket(client, server_hostname="localhost")
    )
    await open_tls(accepted, lambda: wire, ours, DEADLINE_S)
    return await shaking


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_each_byte_that_a_deaf_peer_has_not_taken_is_counted(
    run: Callable[[Any], Any], is_encrypted: bool
) -> None:
    async def scene() -> None:
        wire = Congestible()
        client = await stand(wire, is_encrypted)
        await wire.stands.wait()
        try:
            for piece in PIECES:
                wire.write(piece)
            assert wire.congested
            assert wire.unwritten_bytes() > sum(map(len, PIECES)) - TAKEN_BYTES_MAX
            assert sum(map(len, PIECES[1:])) < wire.buffered_bytes() < wire.unwritten_bytes()
        finally:
            wire.abort()
            client.close()
        await wire.gone.wait()

    run(scene())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("reads", [True, False], ids=["reading", "paused"])
def test_a_wire_ends_whose_peer_reset_it_a_moment_before(
    run: Callable[[Any], Any], is_encrypted: bool, reads: bool
) -> None:
    """``write_eof`` of asyncio raises ENOTCONN where the loop has not met the reset yet."""

    async def scene() -> None:
        wire = Congestible()
        client = await stand(wire, is_encrypted)
        await wire.stands.wait()
        if not reads:
            wire.pause_reading()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        wire.end()
        async with asyncio.timeout(DEADLINE_S):
            await wire.gone.wait()

    run(scene())
