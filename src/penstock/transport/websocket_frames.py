"""WebSocket frames on a stream socket, accepted or dialled; by the sans-I/O library wsproto.

Frames and packets need not begin or end together [MQTT-6.0.0-2]: the bytes of a frame are passed to
the endpoint as they arrive and are not buffered, so a frame may have any length, and only the limit
on the packet's length counts.

A frame costs some time even if it is small, so that one read of small frames is work for many turns
of the event loop::

      READ ── frames of one portion ──▶ endpoint ── more frames: reading pauses ─▶ the next turn
                                              ╰── too many idle frames ──────────▶ a little later

Idle frames are pings, pongs and empty fragments. Before the first byte of MQTT the connection is
closed after a few of them; later they are handled at the rate ``_IDLE_FRAMES_PER_S``.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from penstock.engine.values.limits import FREE_BYTES
from penstock.engine.values.rate_limit import TokenBucket
from penstock.telemetry.logs import get_logger
from penstock.transport.socket_wire import CLOSE_GRACE_S
from penstock.transport.stream import StreamWire
from penstock.transport.tls import client_certificate
from penstock.transport.wire import ClientCertificate, Endpoint

logger = get_logger(__name__)

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")  # [MQTT-6.0.0-3]; old clients ask for the second


FRAMES_PER_TURN_MAX: Final = 128  # of one connection
IDLE_FRAMES_AT_FIRST_MAX: Final = 16  # before the first byte of MQTT
_IDLE_FRAMES_PER_S: Final = 100.0  # after it; the burst is as large


class WebSocketStream(StreamWire):
    """The base of wires over WebSocket; its two subclasses handle the upgrade and make the
    endpoint.

    Args:
        role: server for an accepted connection, client for a dialled one.
        peer: the name of the peer, for logs.
        listener: the name of the listener, or of the dialling side, for logs.
        write_buffer_bytes_max: unsent bytes above which the endpoint must pause writing.
        connect_timeout_s: time limit of the upgrade, in seconds.
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
        self._is_closing = False
        self._is_congested = False
        self._close_reason = "connection closed by the peer"
        self._frames_wait = False  # received frames are left for a later turn
        self._is_quiet = False  # nothing was sent for a while, see ``WebSocketWire``
        self._has_payload = False  # a frame with bytes of MQTT has arrived
        self._idle_frames = 0  # in this portion, or before the first byte of MQTT
        self._idle_rate: TokenBucket | None = None  # made at its first use
        self._timer: asyncio.TimerHandle | None = None  # until the upgrade, and after close

    # -- for the subclasses ------------------------------------------------------------

    def _handle_upgrade(self, event: Event) -> None:
        """Handle an event of the upgrade."""

    def _refuse(self, error: RemoteProtocolError) -> None:
        """Close the connection: its bytes are neither an upgrade nor frames."""
        self._close_reason = f"not WebSocket: {error}"
        self._close_socket()

    def _finish_upgrade(self, endpoint: Endpoint) -> None:
        """Set the endpoint of the wire: the upgrade is done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._endpoint = endpoint
        if self._is_congested:
            endpoint.pause_writing()

    # -- asyncio's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the upgrade: the connection is open."""
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._transport = stream
        self.certificate = client_certificate(stream)
        stream.set_write_buffer_limits(high=min(FREE_BYTES, self._write_buffer_bytes_max))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connect_timeout_s, stream.abort)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the upgrade or of frames."""
        if self._is_closing:
            self._note_discarded()
        if self._ignores_input():
            return
        self._handle_portion(data)

    def _ignores_input(self) -> bool:
        """Return whether bytes that arrive are ignored from now on."""
        is_closed = self._endpoint is None or self._frames.state is ConnectionState.CLOSED
        return self._is_closing and is_closed

    def _handle_portion(self, data: bytes) -> None:
        """Handle the first ``FRAMES_PER_TURN_MAX`` frames; a later turn handles the others."""
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
            self._endpoint.data_received(b"".join(payloads))
        self._schedule_portion(count >= FRAMES_PER_TURN_MAX)

    def _schedule_portion(self, has_more: bool) -> None:
        """Schedule the next portion if frames are left or there were too many idle frames, and read
        nothing until then."""
        wait_s = self._idle_wait_s()
        if self._transport is None or self._is_closing or self._frames_wait:
            return
        if wait_s <= 0.0 and not has_more:
            return
        self._frames_wait = True
        self._block_reading()
        loop = asyncio.get_running_loop()
        if wait_s > 0.0:
            loop.call_later(wait_s, self._continue_frames)
        else:
            loop.call_soon(self._continue_frames)

    def _continue_frames(self) -> None:
        self._frames_wait = False
        if self._transport is None:
            return
        if not self._ignores_input():
            self._handle_portion(b"")
        if not self._frames_wait:
            self._unblock_reading()

    def _idle_wait_s(self) -> float:
        """Return the pause in seconds after the idle frames of this portion; close the connection
        after too many before the first byte of MQTT."""
        count = self._idle_frames
        if count == 0 or self._endpoint is None:
            return 0.0
        if not self._has_payload:
            if count > IDLE_FRAMES_AT_FIRST_MAX:
                self._close_reason = "many WebSocket frames and no MQTT"
                self._close(CloseReason.POLICY_VIOLATION, "too many frames without MQTT")
            return 0.0
        self._idle_frames = 0
        now_s = asyncio.get_running_loop().time()
        if self._idle_rate is None:
            self._idle_rate = TokenBucket(_IDLE_FRAMES_PER_S, now_s)
        return self._idle_rate.take(count, now_s)

    def pause_writing(self) -> None:
        """Tell the endpoint that the write buffer is full."""
        self._is_congested = True
        if self._endpoint is not None:
            self._endpoint.pause_writing()

    def resume_writing(self) -> None:
        """Tell the endpoint that the write buffer has room again."""
        self._is_congested = False
        if self._endpoint is not None:
            self._endpoint.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the endpoint that the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._forget_below()
        endpoint = self._endpoint
        self._endpoint = None
        if endpoint is not None:
            endpoint.connection_lost(self._close_reason if exc is None else str(exc))

    # -- events ------------------------------------------------------------------------

    def _handle(self, event: Event, payloads: list[bytes]) -> None:
        if isinstance(event, BytesMessage):
            if not event.data:
                self._idle_frames += 1
            elif not self._is_closing:
                self._has_payload = True
                payloads.append(bytes(event.data))
        elif isinstance(event, Pong):
            self._idle_frames += 1
        elif isinstance(event, Ping):
            self._idle_frames += 1
            # Of many pings only the last needs an answer (RFC 6455 §5.5.3).
            if not self._is_congested:
                self._send(event.response())
        elif isinstance(event, TextMessage):  # [MQTT-6.0.0-1]
            self._close_reason = "a WebSocket text frame"
            self._close(CloseReason.UNSUPPORTED_DATA, "MQTT travels in binary frames")
        elif isinstance(event, CloseConnection):
            self._handle_close(event)
        else:
            self._handle_upgrade(event)

    def _handle_close(self, event: CloseConnection) -> None:
        """Answer a close frame with the same code, and close the socket; wsproto reports frames
        that break the protocol as such a close, too."""
        if event.reason and not self._is_closing:
            self._close_reason = f"WebSocket closed: {event.reason}"
        if self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._send(event.response())
        self._close_socket()

    # -- the wire ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send ``data`` as one binary frame."""
        if self._transport is not None and not self._is_closing:
            self._is_quiet = False
            self._transport.write(self._frames.send(BytesMessage(data=data)))

    def close(self, lingers: bool = False) -> None:
        """Send a close frame, and close once everything is sent, at the latest after five
        seconds: see ``Wire``."""
        self._close(CloseReason.NORMAL_CLOSURE, "", lingers)

    def _close(self, code: CloseReason, reason: str, lingers: bool = False) -> None:
        if not self._is_closing:
            self._send(CloseConnection(code=code, reason=reason or None))
            self._close_socket(lingers)

    def _send(self, event: Event) -> None:
        if self._transport is not None:
            try:
                self._transport.write(self._frames.send(event))
            except LocalProtocolError as error:  # the other side closed meanwhile
                logger.debug("%s: %s not sent: %s", self.peer, type(event).__name__, error)

    def _close_socket(self, lingers: bool = False) -> None:
        """Close the socket once all written bytes are sent."""
        if self._transport is None or self._is_closing:
            return
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        transport = self._transport
        self._end(transport, lingers)
        self._timer = asyncio.get_running_loop().call_later(CLOSE_GRACE_S, transport.abort)


def _forget_frames(error: BaseException) -> None:
    """Drop the traceback of ``error`` and of its causes, so that no reference cycle is left.

    h11, below wsproto, raises errors from a method of the error: the method's frame refers to the
    error, whose traceback refers to the frame. Only the garbage collector would free them.
    """
    current: BaseException | None = error
    while current is not None:
        current.__traceback__ = None
        current = current.__context__
