"""Relays connections as they come: bytes both ways, and nothing read of them.

::

      client ═══════ accepted socket │ relay │ dialled socket ═══════ another machine
                          its bytes ────────▶ a PROXY header of version 2, then its bytes
                          its end   ────────▶ the end of the stream
                  it does not read  ◀──────── the other is not read: 64 KiB wait here at most
                  both have ended, or one is gone ──▶ both are closed

TLS, WebSocket and MQTT are the business of the two ends, so a client keeps its certificate and its
checks of the server's. Where the other machine cannot be reached nothing was read yet, and the
connection can still be answered by whoever accepted it.

All reads go into one buffer: what was read is written on, or kept, before the next read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast, final

from penstock.config.address import Address
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, warn_limited
from penstock.transport.acceptor import peer_name
from penstock.transport.admission import ConnectionSlot
from penstock.transport.hang_up import BROKEN, peer_state
from penstock.transport.happy_eyeballs import connect
from penstock.transport.proxy_protocol import relayed_header
from penstock.transport.socket_wire import CLOSE_GRACE_S
from penstock.transport.tcp import set_keepalive

logger = get_logger(__name__)

READ_BYTES_MAX: Final = 65_536
BUFFER_BYTES_MAX: Final = 65_536
"""Bytes that one side has not taken yet above which the other is not read; one more read may come
on top."""

LOOK_S: Final = 1.0
"""Time between two looks for connections that are dead, or lead to the wrong machine."""


@final
class _Side(asyncio.BufferedProtocol):
    """One of the two sockets of a relayed connection."""

    def __init__(self, pair: RelayedConnection, buffer: memoryview) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_gone = False
        self.is_reading = True
        self.has_ended = False  # its peer sends no more
        self._pair = pair
        self._buffer = buffer
        self._early = b""  # read before the other side was there
        self._abort: asyncio.TimerHandle | None = None

    @property
    def _other(self) -> _Side:
        pair = self._pair
        return pair.primary if self is pair.client else pair.client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start, with the bytes that the other side has read already."""
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        if self._pair.is_over:
            stream.abort()
            return
        self.transport = stream
        stream.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        self._other.hand_over_early_bytes()

    def hand_over_early_bytes(self) -> None:
        """Pass on the bytes that were read before the other side was there, and read again."""
        early, self._early = self._early, b""
        if early:
            self._other.write(early)
            self.resume_reading()
        if self.has_ended:
            self._other.end()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass bytes on."""
        data = bytes(self._buffer[:nbytes])
        if self._other.transport is not None:
            self._other.write(data)
        elif not self._other.is_gone:
            self._early += data
            self.pause_reading()

    def eof_received(self) -> bool:
        """Pass the end of the stream on; this side can still be written to."""
        self.has_ended = True
        if self._other.transport is not None:
            self._other.end()
        if self._other.has_ended:
            self._pair.close()
        return True

    def pause_writing(self) -> None:
        """Read no more of the other side: this side does not take its bytes."""
        self._other.pause_reading()

    def resume_writing(self) -> None:
        """Read the other side again."""
        self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other side, once it has taken the bytes sent to it."""
        del exc
        self.is_gone = True
        self.transport = None
        if self._abort is not None:
            self._abort.cancel()
        self._pair.lost()

    # -- what the other side asks for --------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send ``data``, or buffer it."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """Send the end of the stream behind the written bytes."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write_eof()

    def pause_reading(self) -> None:
        """Read nothing."""
        if self.transport is not None and self.is_reading and not self.has_ended:
            self.is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self.transport is not None and not self.is_reading and not self.has_ended:
            self.is_reading = True
            self.transport.resume_reading()

    def close(self) -> None:
        """Close once everything is sent, at the latest after five seconds."""
        if self.transport is not None and self._abort is None:
            self.transport.close()
            loop = asyncio.get_running_loop()
            self._abort = loop.call_later(CLOSE_GRACE_S, self.transport.abort)

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def is_dead(self) -> bool:
        """Return whether the connection broke while it was not read."""
        if self.is_reading and not self.has_ended:
            return False  # the loop reports it
        return peer_state(self.transport) == BROKEN


@final
class RelayedConnection:
    """A client and the other machine.

    Args:
        leads_to: the other machine.
        slot: of the client among the listener's connections.
        buffer: for reading, common to all.
        ended: called once both sockets are gone.
    """

    def __init__(
        self,
        leads_to: Address,
        slot: ConnectionSlot,
        buffer: memoryview,
        ended: Callable[[RelayedConnection], None],
    ) -> None:
        self.leads_to = leads_to
        self.is_over = False
        self.client = _Side(self, buffer)
        self.primary = _Side(self, buffer)
        self._slot = slot
        self._ended = ended

    def lost(self) -> None:
        """Note that one of the sockets is gone: the other one follows."""
        self.close()
        if self.client.transport is None and self.primary.transport is None:
            self._slot.release()
            self._ended(self)

    def close(self) -> None:
        """Close both sides, once they have taken the bytes sent to them."""
        self.is_over = True
        self.client.close()
        self.primary.close()

    def abort(self) -> None:
        """Close both sides at once."""
        self.is_over = True
        self.client.abort()
        self.primary.abort()


@final
class Relaying:
    """The relayed connections of one process.

    Args:
        user_timeout_s: how long the other machine may leave bytes unacknowledged, see
            ``tcp.set_keepalive``; 0 = the system's own patience.
    """

    def __init__(self, user_timeout_s: float = 0.0) -> None:
        self.relayed = 0
        """Connections that were relayed, since the start."""
        self.failed = 0
        """Connections for which the other machine was not reached, since the start; counted by
        whoever tries."""
        self._user_timeout_s = user_timeout_s
        self._open: set[RelayedConnection] = set()
        self._buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._limiter = RepeatLimiter()
        self._loop = asyncio.get_running_loop()
        self._closed = False

    @property
    def open(self) -> int:
        """Connections that are relayed now."""
        return len(self._open)

    async def relay(
        self,
        connection: socket.socket,
        peer: str,
        slot: ConnectionSlot,
        to: Address,
        within_s: float,
    ) -> bool:
        """Take an accepted connection over.

        Args:
            connection: not blocking, and not read yet.
            peer: the client's name, for the PROXY header.
            slot: given back when the connection is gone, if it was taken over.
            to: the other machine.
            within_s: time for reaching it, in seconds.

        Returns:
            Whether it was taken over; if not, the other machine was not reached, and nothing of the
            connection has been read.
        """
        try:
            async with asyncio.timeout(within_s):
                dialled = await connect(to.host, to.port)
        except (OSError, ValueError) as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            key = f"relay to {to}"
            text = "clients cannot be relayed to the primary at %s: %s"
            warn_limited(logger, self._limiter, self._loop.time(), key, text, to, Sentence(why))
            return False
        if self._closed:
            dialled.close()
            return False
        set_keepalive(dialled, self._user_timeout_s)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = peer_name(connection, connection.getsockname())
        pair = RelayedConnection(to, slot, self._buffer, self._open.discard)
        self._open.add(pair)
        self.relayed += 1
        joining = self._loop.create_task(
            self._join(pair, connection, dialled, relayed_header(peer, own))
        )
        try:
            await asyncio.shield(joining)
        except asyncio.CancelledError:  # see ``Acceptor._open_plain``
            await joining
        return True

    async def _join(
        self,
        pair: RelayedConnection,
        connection: socket.socket,
        dialled: socket.socket,
        header: bytes,
    ) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: pair.primary, dialled)
            pair.primary.write(header)
            await self._loop.connect_accepted_socket(lambda: pair.client, connection)
        except BaseException:
            dialled.close()
            pair.abort()
            self._open.discard(pair)
            raise

    async def watch(self, leads_to: Callable[[RelayedConnection], bool]) -> None:
        """Close connections that broke while they were not read, and connections to a machine that
        is no longer the primary, until cancelled.

        Args:
            leads_to: returns whether a connection still leads to where it should.
        """
        while True:
            await asyncio.sleep(LOOK_S)
            for pair in list(self._open):
                if pair.client.is_dead() or pair.primary.is_dead() or not leads_to(pair):
                    pair.abort()

    def close(self) -> None:
        """Close all connections at once, and take no more."""
        self._closed = True
        for pair in list(self._open):
            pair.abort()
