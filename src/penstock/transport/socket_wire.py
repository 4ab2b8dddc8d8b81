"""The wire over a stream socket: TCP, TLS and Unix are the same once the connection stands.

One that was dialled is read into a buffer of its own: asyncio otherwise asks the system for memory
of 256 KiB for each read, which costs more than what is read. Of connections that are accepted there
are too many for that. Nor is it for TLS: what the peer sends last, and is longer than the buffer,
asyncio's TLS drops when the connection ends (``_do_read__buffered`` and ``_do_flush`` in its
sslproto.py). uvloop does not ask for the buffer.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast, final

from penstock.engine.limits import FREE_BYTES
from penstock.transport.admission import ConnectionSlot
from penstock.transport.api import Accept, ClientCertificate, Endpoint
from penstock.transport.stream import StreamWire
from penstock.transport.tls import client_certificate

_READ_BYTES_MAX: Final = 65_536  # at once, of one that was dialled

CLOSE_GRACE_S: Final = 5.0  # for a peer that does not read its farewell


class SocketWire(StreamWire):
    """One connection.

    Args:
        peer: the other side, for logs.
        listener: name of the listener.
        accept: makes the user of the wire.
        slot: among the listener's connections, given back when this one is gone; None for one
            that was dialled.
        write_buffer_bytes_max: bytes not yet taken by the peer above which it is congested.
    """

    def __init__(
        self,
        peer: str,
        listener: str,
        accept: Accept,
        slot: ConnectionSlot | None,
        write_buffer_bytes_max: int,
    ) -> None:
        super().__init__()
        self.peer = peer
        self.listener = listener
        self.certificate: ClientCertificate | None = None
        self._accept = accept
        self._slot = slot
        self._write_buffer_bytes_max = write_buffer_bytes_max
        self._endpoint: Endpoint | None = None
        self._abort: asyncio.TimerHandle | None = None

    # -- asyncio's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: the connection stands, and with TLS its handshake is done."""
        assert self._endpoint is None, "a wire has one user"
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._transport = stream
        self.certificate = client_certificate(stream)
        stream.set_write_buffer_limits(high=min(FREE_BYTES, self._write_buffer_bytes_max))
        self._endpoint = self._accept(self)

    def data_received(self, data: bytes) -> None:
        """Hand on bytes that arrived."""
        assert self._endpoint is not None
        self._endpoint.received(data)

    def pause_writing(self) -> None:
        """Report that the write buffer is full."""
        assert self._endpoint is not None
        self._endpoint.congested()

    def resume_writing(self) -> None:
        """Report that the write buffer has room again."""
        assert self._endpoint is not None
        self._endpoint.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the connection is gone."""
        endpoint = self._endpoint
        if self._abort is not None:
            self._abort.cancel()
        self._forget_below()
        self._endpoint = None
        if self._slot is not None:
            self._slot.release()
        if endpoint is not None:
            endpoint.lost("connection closed by the peer" if exc is None else str(exc))

    # -- the wire ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close once everything is sent, at the latest after five seconds."""
        transport = self._transport
        if transport is not None and self._abort is None:
            self._end(transport)
            loop = asyncio.get_running_loop()
            self._abort = loop.call_later(CLOSE_GRACE_S, transport.abort)


@final
class DialledSocketWire(SocketWire, asyncio.BufferedProtocol):
    """One connection that was dialled, without TLS; the arguments are as for ``SocketWire``."""

    def __init__(
        self, peer: str, listener: str, accept: Accept, write_buffer_bytes_max: int
    ) -> None:
        super().__init__(peer, listener, accept, None, write_buffer_bytes_max)
        self._buffer: memoryview | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        del sizehint
        if self._buffer is None:
            self._buffer = memoryview(bytearray(_READ_BYTES_MAX))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on bytes that arrived."""
        assert self._buffer is not None
        self.data_received(bytes(self._buffer[:nbytes]))
