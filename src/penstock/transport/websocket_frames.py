"""WebSocket frames on a stream socket, whichever side opened it; by the sans-I/O library wsproto.

Frames and packets need not begin or end together [MQTT-6.0.0-2]: a frame's bytes go up as they
come and are kept nowhere, so a frame may be of any length and only the packet's own bound counts.

A frame costs some time, however little is in it, so that a read of small ones is work for many
turns of the loop::

      READ ── frames of one portion ──▶ handed up ── more are here: not read ─▶ the next turn
                                              ╰── too many carry nothing ─────▶ a little later

Pings, pongs and empty fragments carry nothing. Before the first byte of MQTT a few of them are
enough, then the connection is closed; later they are taken at ``_IDLE_FRAMES_PER_S``.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from penstock.engine.limits import FREE_BYTES
from penstock.engine.rate_limit import TokenBucket
from penstock.telemetry.logs import get_logger
from penstock.transport.api import ClientCertificate, Endpoint
from penstock.transport.socket_wire import CLOSE_GRACE_S
from penstock.transport.stream import StreamWire
from penstock.transport.tls import client_certificate

logger = get_logger(__name__)

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")  # [MQTT-6.0.0-3]; old clients ask for the second


FRAMES_PER_TURN_MAX: Final = 128  # of one connection
IDLE_FRAMES_AT_FIRST_MAX: Final = 16  # that carry nothing, before the first byte of MQTT
_IDLE_FRAMES_PER_S: Final = 100.0  # later; as many may come at once


class WebSocketStream(StreamWire):
    """One connection over WebSocket; the two subclasses say when its user is made, and which.

    Args:
        role: server where we accepted, client where we dialled.
        peer: the other side, for logs.
        listener: the name of the listener, or of the dialling side, for logs.
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
        self._frames_wait = False  # more were received than a portion: the rest goes on later
        self._carried = False  # a frame with something in it came
        self._idle_frames = 0  # that carry nothing, in this portion or before the first other
        self._idle_rate: TokenBucket | None = None  # made when it is needed first
        self._timer: asyncio.TimerHandle | None = None  # until the upgrade, and after close

    # -- for the two kinds -------------------------------------------------------------

    def _upgrading(self, event: Event) -> None:
        """Take an event of the upgrade."""

    def _refuse(self, error: RemoteProtocolError) -> None:
        """Refuse bytes that are neither an upgrade nor frames."""
        self._because = f"not WebSocket: {error}"
        self._close_socket()

    def _opened(self, endpoint: Endpoint) -> None:
        """Let ``endpoint`` use the wire: the upgrade is done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._endpoint = endpoint
        if self._congested:
            endpoint.congested()

    # -- asyncio's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: the connection stands, and with TLS its handshake is done."""
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._transport = stream
        self.certificate = client_certificate(stream)
        stream.set_write_buffer_limits(high=min(FREE_BYTES, self._write_buffer_bytes_max))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connect_timeout_s, stream.abort)

    def data_received(self, data: bytes) -> None:
        """Take bytes that arrived: a part of the upgrade, or of frames."""
        if self._ignores_input():
            return
        self._take_portion(data)

    def _ignores_input(self) -> bool:
        """Return whether bytes that arrive are ignored from now on."""
        is_closed = self._endpoint is None or self._frames.state is ConnectionState.CLOSED
        return self._closing and is_closed

    def _take_portion(self, data: bytes) -> None:
        """Handle the first frames of the received bytes; the rest follows in a later turn."""
        payloads: list[bytes] = []
        count = 0
        try:
            if data:
                self._frames.receive_data(data)
            for event in self._frames.events():
                self._handle(event, payloads)
                count += 1
                if count >= FRAMES_PER_TURN_MAX:
                    break
        except RemoteProtocolError as error:
            _forget_frames(error)
            self._refuse(error)
        except (LocalProtocolError, UnicodeError) as error:  # of the upgrade's own headers
            _forget_frames(error)
            self._refuse(RemoteProtocolError(str(error)))
        if payloads and self._endpoint is not None:
            self._endpoint.received(b"".join(payloads))
        self._schedule_rest(count >= FRAMES_PER_TURN_MAX)

    def _schedule_rest(self, has_more: bool) -> None:
        """Have the rest handled in a later turn, and read nothing until then."""
        wait_s = self._idle_wait_s()
        if self._transport is None or self._closing or self._frames_wait:
            return
        if wait_s <= 0.0 and not has_more:
            return
        self._frames_wait = True
        self._block_reading()
        loop = asyncio.get_running_loop()
        if wait_s > 0.0:
            loop.call_later(wait_s, self._resume)
        else:
            loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._frames_wait = False
        if self._transport is None:
            return
        if not self._ignores_input():
            self._take_portion(b"")
        if not self._frames_wait:
            self._unblock_reading()

    def _idle_wait_s(self) -> float:
        """Return how long to wait, in seconds, for frames that carried nothing; close after too
        many at first."""
        count = self._idle_frames
        if count == 0 or self._endpoint is None:
            return 0.0
        if not self._carried:
            if count > IDLE_FRAMES_AT_FIRST_MAX:
                self._because = "many WebSocket frames and no MQTT"
                self._close(CloseReason.POLICY_VIOLATION, "too many frames without MQTT")
            return 0.0
        self._idle_frames = 0
        now_s = asyncio.get_running_loop().time()
        if self._idle_rate is None:
            self._idle_rate = TokenBucket(_IDLE_FRAMES_PER_S, now_s)
        return self._idle_rate.take(count, now_s)

    def pause_writing(self) -> None:
        """Report that the write buffer is full."""
        self._congested = True
        if self._endpoint is not None:
            self._endpoint.congested()

    def resume_writing(self) -> None:
        """Report that the write buffer has room again."""
        self._congested = False
        if self._endpoint is not None:
            self._endpoint.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._forget_below()
        endpoint = self._endpoint
        self._endpoint = None
        if endpoint is not None:
            endpoint.lost(self._because if exc is None else str(exc))

    # -- events ------------------------------------------------------------------------

    def _handle(self, event: Event, payloads: list[bytes]) -> None:
        if isinstance(event, BytesMessage):
            if not event.data:
                self._idle_frames += 1
            elif not self._closing:
                self._carried = True
                payloads.append(bytes(event.data))
        elif isinstance(event, Pong):
            self._idle_frames += 1
        elif isinstance(event, Ping):
            self._idle_frames += 1
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
        """Answer a close frame, or frames that broke the rules, with the same code."""
        if event.reason and not self._closing:
            self._because = f"WebSocket closed: {event.reason}"
        if self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._send(event.response())
        self._close_socket()

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
            self._close_socket()

    def _send(self, event: Event) -> None:
        if self._transport is not None:
            try:
                self._transport.write(self._frames.send(event))
            except LocalProtocolError as error:  # the other side closed meanwhile
                logger.debug("%s: %s not sent: %s", self.peer, type(event).__name__, error)

    def _close_socket(self) -> None:
        """Close the socket once everything written has been sent."""
        if self._transport is None or self._closing:
            return
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        transport = self._transport
        self._end(transport)
        self._timer = asyncio.get_running_loop().call_later(CLOSE_GRACE_S, transport.abort)


def _forget_frames(error: BaseException) -> None:
    """Release the frames that ``error`` passed through, ours among them.

    h11, below wsproto, raises errors from a method of theirs: its frame holds the error, which
    holds its frames. Only the garbage collector would free them.
    """
    reached: BaseException | None = error
    while reached is not None:
        reached.__traceback__ = None
        reached = reached.__context__
