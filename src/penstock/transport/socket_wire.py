"""The wire over a stream socket: TCP, TLS and Unix are the same once the connection is open.

A dialled connection without TLS reads into a buffer of its own: asyncio otherwise allocates 256 KiB
for each read, which costs more than the read. Accepted connections are too many for a buffer each.
Connections with TLS have no such buffer, because asyncio's TLS drops the last bytes of the peer if
they are longer than the buffer (``_do_read__buffered`` and ``_do_flush`` in its sslproto.py).
uvloop does not use the buffer.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast, final

from penstock.engine.values.limits import FREE_BYTES
from penstock.transport.admission import ConnectionSlot
from penstock.transport.stream import StreamWire
from penstock.transport.tls import client_certificate
from penstock.transport.wire import Accept, ClientCertificate, Endpoint, failure_text

_READ_BYTES_MAX: Final = 65_536  # of a dialled connection

CLOSE_GRACE_S: Final = 5.0  # for a peer that does not read its last bytes


class SocketWire(StreamWire):
    """The wire of one connection over TCP, TLS or a Unix socket.

    Args:
        peer: the name of the peer, for logs.
        listener: the name of the listener.
        accept: makes the endpoint of the wire.
        slot: the connection's slot, released when the connection is closed; None if it was dialled.
        write_buffer_bytes_max: unsent bytes above which the endpoint must pause writing.
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
        """Make the endpoint: the connection is open, and with TLS its handshake is done."""
        assert self._endpoint is None, "a wire has one endpoint"
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._transport = stream
        self.certificate = client_certificate(stream)
        stream.set_write_buffer_limits(high=min(FREE_BYTES, self._write_buffer_bytes_max))
        self._endpoint = self._accept(self)

    def data_received(self, data: bytes) -> None:
        """Pass bytes that arrived to the endpoint."""
        assert self._endpoint is not None
        if self._abort is None:
            self._endpoint.data_received(data)
        else:
            self._note_discarded()

    def pause_writing(self) -> None:
        """Tell the endpoint that the write buffer is full."""
        assert self._endpoint is not None
        self._endpoint.pause_writing()

    def resume_writing(self) -> None:
        """Tell the endpoint that the write buffer has room again."""
        assert self._endpoint is not None
        self._endpoint.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the endpoint that the connection is closed, and release the slot."""
        endpoint = self._endpoint
        if self._abort is not None:
            self._abort.cancel()
        self._forget_below()
        self._endpoint = None
        if self._slot is not None:
            self._slot.release()
        if endpoint is not None:
            endpoint.connection_lost(
                "connection closed by the peer" if exc is None else failure_text(exc)
            )

    # -- the wire ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self._transport is not None and self._abort is None:
            self._transport.write(data)

    def close(self, lingers: bool = False) -> None:
        """Close once everything is sent, at the latest after five seconds: see ``Wire``."""
        transport = self._transport
        if transport is not None and self._abort is None:
            loop = asyncio.get_running_loop()
            self._abort = loop.call_later(CLOSE_GRACE_S, transport.abort)
            self._end(transport, lingers)


@final
class DialledSocketWire(SocketWire, asyncio.BufferedProtocol):
    """The wire of a dialled connection without TLS; the arguments are as for ``SocketWire``."""

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
        """Pass bytes that arrived to the endpoint."""
        assert self._buffer is not None
        self.data_received(bytes(self._buffer[:nbytes]))
