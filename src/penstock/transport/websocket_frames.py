"""WebSocket frames on a stream socket, whichever side opened it; by the sans-I/O library wsproto.

Frames and packets need not begin or end together [MQTT-6.0.0-2]: a frame's bytes go up as they
come and are kept nowhere, so a frame may be of any length and only the packet's own bound counts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from penstock.transport.api import ClientCertificate, Endpoint
from penstock.transport.socket_wire import CLOSE_GRACE_S
from penstock.transport.stream import StreamWire
from penstock.transport.tls import client_certificate

logger = logging.getLogger(__name__)

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")  # [MQTT-6.0.0-3]; the second is what old clients ask for


class WebSocketStream(StreamWire):
    """One connection over WebSocket; who makes its user, and when, is for the two kinds to say.

    Args:
        role: whether we answered or dialled.
        peer: the other side, for logs.
        listener: who listens or dials, for logs.
        write_buffer_bytes_max: bytes not yet taken by the peer above which it is congested.
        connect_timeout_s: time for the upgrade, seconds.
    """

    def __init__(
        self,
        role: ConnectionType,
        peer: str,
        listener: str,
        write_buffer_bytes_max: int,
        connect_timeout_s: float,
    ) -> None:
        super().__init__()
        self.peer = peer
        self.listener = listener
        self.certificate: ClientCertificate | None = None
        self._write_buffer_bytes_max = write_buffer_bytes_max
        self._connect_timeout_s = connect_timeout_s
        self._frames = WSConnection(role)
        self._endpoint: Endpoint | None = None
        self._closing = False
        self._congested = False
        self._because = "connection closed by the peer"
        self._timer: asyncio.TimerHandle | None = None  # until the upgrade, and after close

    # -- for the two kinds -------------------------------------------------------------

    def _upgrading(self, event: Event) -> None:
        """Something of the upgrade came."""

    def _refuse(self, error: RemoteProtocolError) -> None:
        """What came is neither an upgrade nor frames."""
        self._because = f"not WebSocket: {error}"
        self._shut()

    def _opened(self, endpoint: Endpoint) -> None:
        """The upgrade is done: ``endpoint`` uses the wire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._endpoint = endpoint
        if self._congested:
            endpoint.congested()

    # -- asyncio's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands; with TLS its handshake is done."""
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._transport = stream
        self.certificate = client_certificate(stream)
        stream.set_write_buffer_limits(high=self._write_buffer_bytes_max)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connect_timeout_s, stream.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived: a part of the upgrade, or of frames."""
        is_over = self._endpoint is None or self._frames.state is ConnectionState.CLOSED
        if self._closing and is_over:
            return
        payloads: list[bytes] = []
        try:
            self._frames.receive_data(data)
            for event in self._frames.events():
                self._handle(event, payloads)
        except RemoteProtocolError as error:
            _forget_frames(error)
            self._refuse(error)
        except (LocalProtocolError, UnicodeError) as error:  # of the upgrade's own headers
            _forget_frames(error)
            self._refuse(RemoteProtocolError(str(error)))
        if payloads and self._endpoint is not None:
            self._endpoint.received(b"".join(payloads))

    def pause_writing(self) -> None:
        """The write buffer is full."""
        self._congested = True
        if self._endpoint is not None:
            self._endpoint.congested()

    def resume_writing(self) -> None:
        """The write buffer has room again."""
        self._congested = False
        if self._endpoint is not None:
            self._endpoint.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._gone()
        endpoint = self._endpoint
        self._endpoint = None
        if endpoint is not None:
            endpoint.lost(self._because if exc is None else str(exc))

    # -- events ------------------------------------------------------------------------

    def _handle(self, event: Event, payloads: list[bytes]) -> None:
        if isinstance(event, BytesMessage):
            if not self._closing and event.data:
                payloads.append(bytes(event.data))
        elif isinstance(event, Ping):
            if not self._congested:  # of many pings only the last needs an answer, RFC 6455 §5.5.3
                self._send(event.response())
        elif isinstance(event, TextMessage):  # [MQTT-6.0.0-1]
            self._because = "a WebSocket text frame"
            self._close(CloseReason.UNSUPPORTED_DATA, "MQTT travels in binary frames")
        elif isinstance(event, CloseConnection):
            self._peer_closes(event)
        else:
            self._upgrading(event)

    def _peer_closes(self, event: CloseConnection) -> None:
        """A close frame, or frames that broke the rules; answered with the same code."""
        if event.reason and not self._closing:
            self._because = f"WebSocket closed: {event.reason}"
        if self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._send(event.response())
        self._shut()

    # -- the wire ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send ``data`` as one binary frame."""
        if self._transport is not None and not self._closing:
            self._transport.write(self._frames.send(BytesMessage(data=data)))

    def close(self) -> None:
        """Say goodbye and close once everything is sent, at the latest after five seconds."""
        self._close(CloseReason.NORMAL_CLOSURE, "")

    def _close(self, code: CloseReason, reason: str) -> None:
        if not self._closing:
            self._send(CloseConnection(code=code, reason=reason or None))
            self._shut()

    def _send(self, event: Event) -> None:
        if self._transport is not None:
            try:
                self._transport.write(self._frames.send(event))
            except LocalProtocolError as error:  # the other side closed meanwhile
                logger.debug("%s: %s not sent: %s", self.peer, type(event).__name__, error)

    def _shut(self) -> None:
        """Close the socket after what was written has left."""
        if self._transport is None or self._closing:
            return
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        transport = self._transport
        self._end(transport)
        self._timer = asyncio.get_running_loop().call_later(CLOSE_GRACE_S, transport.abort)


def _forget_frames(error: BaseException) -> None:
    """Let go of what ``error`` came through, us among it.

    h11, below wsproto, raises errors from a method of theirs: its frame holds the error, which
    holds its frames. Only the garbage collector would free them.
    """
    reached: BaseException | None = error
    while reached is not None:
        reached.__traceback__ = None
        reached = reached.__context__
