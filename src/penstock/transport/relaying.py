"""Relays connections to another machine: bytes in both directions, without parsing them.

::

      client ═══════ accepted socket │ relay │ dialled socket ═══════ another machine
                       client sends ────────▶ a PROXY header of version 2, then the client's bytes
               client sends its end ────────▶ the end of the stream
               client does not read ◀──────── the machine is not read: 64 KiB are buffered at most
                  both sent their end, or one is closed ──▶ both are closed
                                this process stops ──▶ *draining*: the client's bytes are discarded,
                                                       those of the machine are still passed on

TLS, WebSocket and MQTT are between client and machine, so the machine verifies the client's
certificate, and the client that of the machine. If the machine cannot be reached, nothing was read
of the connection yet, and the acceptor can still open it as any other.

What the machine has taken over it acknowledges, after its commit. So a connection that drains ends
only when the machine has been silent for ``SILENCE_S``; its client would send everything again that
was under way.

All reads use one buffer: bytes that were read are written, or copied, before the next read.
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
from penstock.transport.hang_up import BROKEN, peer_state, send_end
from penstock.transport.happy_eyeballs import connect
from penstock.transport.proxy_protocol import relayed_header
from penstock.transport.socket_wire import CLOSE_GRACE_S
from penstock.transport.tcp import set_keepalive

logger = get_logger(__name__)

READ_BYTES_MAX: Final = 65_536
BUFFER_BYTES_MAX: Final = 65_536
"""Unsent bytes to one side above which the other side is not read; one more read may be added."""

CHECK_INTERVAL_S: Final = 1.0
"""Time in seconds between two checks for broken connections and for a wrong destination."""

SILENCE_S: Final = 0.5
"""Time in seconds without a byte of the other machine after which a draining connection is over:
its commits take less."""

DRAIN_S_MAX: Final = 3.0
"""Longest time in seconds that a connection drains, for example where messages arrive for its
client all the time."""

LINGER_S: Final = 1.0
"""Time in seconds that a client has to close its side of a connection that drained."""

_DRAIN_STEP_S: Final = 0.05


@final
class _Side(asyncio.BufferedProtocol):
    """One of the two sockets of a relayed connection."""

    def __init__(self, pair: RelayedConnection, buffer: memoryview) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_lost = False  # the connection is closed
        self.is_reading = True
        self.has_ended = False  # its peer sends no more
        self._pair = pair
        self._buffer = buffer
        self._early_bytes = b""  # read before the other side was connected
        self._abort: asyncio.TimerHandle | None = None

    @property
    def _other(self) -> _Side:
        pair = self._pair
        return pair.primary if self is pair.client else pair.client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start reading, and write the bytes that the other side has read already."""
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        if self._pair.is_over:
            stream.abort()
            return
        self.transport = stream
        stream.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        self._other.flush_early_bytes()

    def flush_early_bytes(self) -> None:
        """Pass on the bytes that were read before the other side was connected; resume reading."""
        early_bytes, self._early_bytes = self._early_bytes, b""
        if early_bytes:
            self._other.write(early_bytes)
            self.resume_reading()
        if self.has_ended:
            self._other.end()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Write the bytes to the other side."""
        if self._pair.is_draining:
            if self is self._pair.client:
                return
            self._pair.silent_s = 0.0
        data = bytes(self._buffer[:nbytes])
        if self._other.transport is not None:
            self._other.write(data)
        elif not self._other.is_lost:
            self._early_bytes += data
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
        """Stop reading the other side: this side's write buffer is full."""
        self._other.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading the other side."""
        self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side, once it has read the bytes sent to it."""
        del exc
        self.is_lost = True
        self.transport = None
        if self._abort is not None:
            self._abort.cancel()
        self._pair.close_after_loss()

    # -- called by the other side ------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send ``data``, or buffer it."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """Send the end of the stream after the written bytes."""
        if self.transport is not None:
            send_end(self.transport)

    def pause_reading(self) -> None:
        """Stop reading, unless what is read is discarded."""
        if self._pair.is_draining and self is self._pair.client:
            return
        if self.transport is not None and self.is_reading and not self.has_ended:
            self.is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
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
        """Return whether the connection broke while its reading was paused."""
        if self.is_reading and not self.has_ended:
            return False  # the event loop reports it
        return peer_state(self.transport) == BROKEN


@final
class RelayedConnection:
    """The two sockets of one relayed connection.

    Args:
        destination: the address of the other machine.
        slot: the slot of the client's connection.
        buffer: the read buffer, shared by all relayed connections.
        on_end: called once both sockets are closed.
    """

    def __init__(
        self,
        destination: Address,
        slot: ConnectionSlot,
        buffer: memoryview,
        on_end: Callable[[RelayedConnection], None],
    ) -> None:
        self.destination = destination
        self.is_over = False
        self.is_draining = False
        self.silent_s = 0.0  # while it drains: since the other machine sent last
        self.client = _Side(self, buffer)
        self.primary = _Side(self, buffer)
        self._slot = slot
        self._on_end = on_end

    def close_after_loss(self) -> None:
        """Close the other socket after one is closed; release the slot once both are."""
        self.close()
        if self.client.transport is None and self.primary.transport is None:
            self._slot.release()
            self._on_end(self)

    def close(self) -> None:
        """Close both sides, once they have read the bytes sent to them."""
        self.is_over = True
        self.client.close()
        self.primary.close()

    def drain(self) -> None:
        """Discard what the client sends from now on; pass on what the other machine sends."""
        self.is_draining = True
        self.client.resume_reading()

    def end(self) -> None:
        """Send both sides the end of the stream."""
        self.client.end()
        self.primary.end()

    def abort(self) -> None:
        """Close both sides at once."""
        self.is_over = True
        self.client.abort()
        self.primary.abort()


@final
class Relaying:
    """The relayed connections of one process.

    Args:
        user_timeout_s: time in seconds for which the other machine may leave bytes
            unacknowledged, see ``tcp.set_keepalive``; 0 = the system's default.
    """

    def __init__(self, user_timeout_s: float = 0.0) -> None:
        self.relayed = 0
        """Number of connections that were relayed, since the start."""
        self.failed = 0
        """Number of connections for which the other machine was not reached, since the start; the
        caller of ``relay`` counts them."""
        self._user_timeout_s = user_timeout_s
        self._connections: set[RelayedConnection] = set()
        self._buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._limiter = RepeatLimiter()
        self._loop = asyncio.get_running_loop()
        self._closed = False

    @property
    def open_count(self) -> int:
        """The number of connections that are relayed now."""
        return len(self._connections)

    async def relay(
        self,
        connection: socket.socket,
        peer: str,
        slot: ConnectionSlot,
        destination: Address,
        timeout_s: float,
    ) -> bool:
        """Connect to another machine and relay an accepted connection to it.

        Args:
            connection: the accepted socket, non-blocking, of which nothing was read.
            peer: the client's name, for the PROXY header.
            slot: the connection's slot; if the connection is relayed, it is released at its end.
            destination: the address of the other machine.
            timeout_s: time limit for connecting to it, in seconds.

        Returns:
            True if the connection is relayed; False if the other machine was not reached, and
            nothing was read of the connection.
        """
        try:
            async with asyncio.timeout(timeout_s):
                dialled = await connect(destination.host, destination.port)
        except (OSError, ValueError) as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            warn_limited(
                logger,
                self._limiter,
                self._loop.time(),
                f"relay to {destination}",
                "clients cannot be relayed to the primary at %s: %s",
                destination,
                Sentence(why),
            )
            return False
        if self._closed:
            dialled.close()
            return False
        set_keepalive(dialled, self._user_timeout_s)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = peer_name(connection, connection.getsockname())
        pair = RelayedConnection(destination, slot, self._buffer, self._connections.discard)
        self._connections.add(pair)
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
            self._connections.discard(pair)
            raise

    async def watch(self, leads_to_primary: Callable[[RelayedConnection], bool]) -> None:
        """Close connections that broke while they were not read, and connections to a machine that
        is no longer the primary, until cancelled.

        Args:
            leads_to_primary: returns whether a connection leads to the present primary.
        """
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            for pair in list(self._connections):
                if pair.client.is_dead() or pair.primary.is_dead() or not leads_to_primary(pair):
                    pair.abort()

    async def drain(self) -> None:
        """Relay no more, and end all connections once the other machine has acknowledged what it
        has taken over; return when that is done, or took too long."""
        self._closed = True
        for pair in self._connections:
            pair.drain()
        left_s = DRAIN_S_MAX + LINGER_S
        while self._connections and left_s > 0.0:
            for pair in list(self._connections):
                if pair.silent_s >= SILENCE_S or left_s <= LINGER_S:
                    pair.end()
                pair.silent_s += _DRAIN_STEP_S
            left_s -= _DRAIN_STEP_S
            await asyncio.sleep(_DRAIN_STEP_S)

    def close(self) -> None:
        """Close all connections at once, and relay no more."""
        self._closed = True
        for pair in list(self._connections):
            pair.abort()
