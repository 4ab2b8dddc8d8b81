"""MQTT over WebSocket (MQTT 5 §6), by the sans-I/O library wsproto::

     UPGRADE ──GET, subprotocol mqtt──▶ OPEN ──close frame, text, error──▶ CLOSING ──▶ gone
        │ not ours: 4xx                   ▲│ binary frames: MQTT bytes
        │ connect_timeout_s               ╰╯ ping: pong
        ╰──────────────────────────────────────────────────────────────▶ CLOSING

The user of the wire is made once the upgrade is done: what is no WebSocket never reaches MQTT.
Frames and packets need not begin or end together [MQTT-6.0.0-2]: a frame's bytes go up as they
come and are kept nowhere, so a frame may be of any length and only the packet's own bound counts.
Compression is not accepted: it would let a small frame become a large one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast, final

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from penstock.config import Listener
from penstock.transport.admission import Place
from penstock.transport.api import Accept, ClientCertificate, Endpoint
from penstock.transport.socket_wire import CLOSE_GRACE_S
from penstock.transport.stream import StreamWire
from penstock.transport.tls import client_certificate

logger = logging.getLogger(__name__)

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")  # [MQTT-6.0.0-3]; the second is what old clients ask for


@final
class WebSocketWire(StreamWire):
    """One connection.

    Args:
        peer: the other side, for logs.
        listener: name of the listener.
        settings: of the listener.
        accept: makes the user of the wire.
        place: among the listener's connections; given back when this one is gone.
    """

    def __init__(
        self, peer: str, listener: str, settings: Listener, accept: Accept, place: Place
    ) -> None:
        super().__init__()
        self.peer = peer
        self.listener = listener
        self.certificate: ClientCertificate | None = None
        self._settings = settings
        self._accept = accept
        self._place = place
        self._frames = WSConnection(ConnectionType.SERVER)
        self._endpoint: Endpoint | None = None
        self._closing = False
        self._congested = False
        self._because = "connection closed by the peer"
        self._timer: asyncio.TimerHandle | None = None  # until the upgrade, and after close

    # -- asyncio's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands; with TLS its handshake is done."""
        stream = cast(asyncio.Transport, transport)  # uvloop's is one by shape only
        self._transport = stream
        self.certificate = client_certificate(stream)
        stream.set_write_buffer_limits(high=self._settings.write_buffer_bytes_max)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._settings.connect_timeout_s, stream.abort)

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
        self._place.release()
        if endpoint is not None:
            endpoint.lost(self._because if exc is None else str(exc))

    # -- events ------------------------------------------------------------------------

    def _handle(self, event: Event, payloads: list[bytes]) -> None:
        if isinstance(event, BytesMessage):
            if not self._closing and event.data:
                payloads.append(bytes(event.data))
        elif isinstance(event, Request):
            self._upgrade(event)
        elif isinstance(event, Ping):
            if not self._congested:  # of many pings only the last needs an answer, RFC 6455 §5.5.3
                self._send(event.response())
        elif isinstance(event, TextMessage):  # [MQTT-6.0.0-1]
            self._because = "a WebSocket text frame"
            self._close(CloseReason.UNSUPPORTED_DATA, "MQTT travels in binary frames")
        elif isinstance(event, CloseConnection):
            self._peer_closes(event)

    def _upgrade(self, request: Request) -> None:
        refusal = self._refusal(request)
        if refusal is not None:
            status_code, text = refusal
            self._reject(status_code, text)
            return
        subprotocol = next(name for name in SUBPROTOCOLS if name in request.subprotocols)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send(AcceptConnection(subprotocol=subprotocol))  # [MQTT-6.0.0-4]
        self._endpoint = self._accept(self)
        if self._congested:
            self._endpoint.congested()

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Status code and sentence for an upgrade that is not granted."""
        settings = self._settings
        if request.target.partition("?")[0] != settings.path:
            return 404, f"MQTT is at {settings.path}"
        if not any(name in request.subprotocols for name in SUBPROTOCOLS):
            return 400, "offer the subprotocol mqtt (Sec-WebSocket-Protocol: mqtt)"
        if settings.origins:
            headers = request.extra_headers
            origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
            if any(origin not in settings.origins for origin in origins):
                return 403, "web pages of this origin may not connect"
        return None

    def _reject(self, status_code: int, text: str) -> None:
        logger.debug("listener %s refused an upgrade by %s: %s", self.listener, self.peer, text)
        body = f"{text}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        self._send(RejectConnection(status_code=status_code, headers=headers, has_body=True))
        self._send(RejectData(data=body))
        self._shut()

    def _refuse(self, error: RemoteProtocolError) -> None:
        """What came is neither an upgrade nor frames."""
        self._because = f"not WebSocket: {error}"
        hint = error.event_hint
        if self._endpoint is None and isinstance(hint, RejectConnection):
            status_code = hint.status_code
            headers = [*hint.headers, (b"content-length", b"0"), (b"connection", b"close")]
            self._send(RejectConnection(status_code=status_code, headers=headers))
        self._shut()

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
