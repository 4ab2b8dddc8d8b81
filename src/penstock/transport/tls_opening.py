"""Opens a wire over TLS on a connected socket, accepted or dialled.

::

      socket ─▶ transport below, paused ─▶ handshake ─▶ wire.below, wire.connection_made
                                               ╰─ bytes that arrived with its last packet ─▶ wire

The event loop could do this in one call, but would not give access to the transport below, which a
wire needs: see ``stream``.

A handshake that fails sends its alert, so that the peer can report the reason (RFC 8446 §6.2). The
event loops would close the connection and discard the alert: see ``alerting``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast, final

from penstock.transport.alerting import HandshakeFailure, report_next_handshake_to
from penstock.transport.hang_up import send_end
from penstock.transport.stream import StreamWire

_ALERT_S: Final = 1.0  # for the peer to read the alert and close


@final
class _PlainProtocol(asyncio.Protocol):
    """The protocol of the transport below, until TLS takes over."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by shape only

    def pause(self) -> None:
        """Pause reading until TLS takes over: bytes read before would be lost."""
        if self.transport is not None:
            self.transport.pause_reading()

    def half_close(self) -> None:
        """Close our half of the connection after the alert is sent; abort if the peer does not
        close in time."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self._send_end)
        loop.call_later(_ALERT_S, self.abort)

    def _send_end(self) -> None:
        if self.transport is not None:
            send_end(self.transport)

    def abort(self) -> None:
        """Close at once: opening has failed."""
        if self.transport is not None:
            self.transport.abort()


@final
class _HandshakeBuffer(asyncio.Protocol):
    """The protocol of the connection during the handshake; it buffers bytes that arrive before the
    wire is made."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, _: Exception | None) -> None:
        self.is_lost = True


async def open_tls(
    connection: socket.socket,
    make_wire: Callable[[], StreamWire],
    context: ssl.SSLContext,
    timeout_s: float,
    server_name: str | None = None,
) -> None:
    """Do the TLS handshake on ``connection``; return when its wire is connected.

    Args:
        connection: a non-blocking connected socket.
        make_wire: makes the wire when the handshake is done.
        context: a TLS context prepared by ``send_alerts``.
        timeout_s: time limit of the handshake, in seconds.
        server_name: the host that we dialled; None for an accepted connection.

    Raises:
        ConnectionRefusedError: the handshake failed, with OpenSSL's reason.
        OSError: the peer closed the connection, or was too slow.
        Exception: ``make_wire`` failed; the connection is closed.
    """
    loop = asyncio.get_running_loop()
    below, buffer = _PlainProtocol(), _HandshakeBuffer()
    failure = HandshakeFailure(below.half_close)
    opening = loop.create_task(loop.connect_accepted_socket(lambda: below, connection))
    # The loop starts to read after ``connection_made``; the pause follows before the loop polls its
    # sockets, because ``call_soon`` keeps the order of calls.
    loop.call_soon(loop.call_soon, below.pause)
    try:
        transport, _ = await opening
        loop.call_soon(
            report_next_handshake_to, failure
        )  # runs just before the first step of the handshake
        encrypted = await loop.start_tls(
            transport,
            buffer,
            context,
            server_side=server_name is None,
            server_hostname=server_name,
            ssl_handshake_timeout=timeout_s,
        )
        if encrypted is None or buffer.is_lost:
            raise ConnectionResetError("the peer was gone after the TLS handshake")
        wire = make_wire()
        wire.below = transport
        encrypted.set_protocol(wire)
        wire.connection_made(encrypted)
        if buffer.data:
            wire.data_received(buffer.data)
    except BaseException as error:
        below.abort()
        if failure.error is not None and isinstance(error, Exception):
            raise ConnectionRefusedError(failure.reason) from None
        raise
