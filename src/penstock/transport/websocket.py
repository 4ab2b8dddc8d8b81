"""MQTT over WebSocket (MQTT 5 §6), the server's side::

     UPGRADE ──GET, subprotocol mqtt──▶ OPEN ──close frame, text, error──▶ CLOSING ──▶ gone
        │ not ours: 4xx                   ▲│ binary frames: MQTT bytes
        │ connect_timeout_s               ╰╯ ping: pong; ws_ping_s: ping
        ╰──────────────────────────────────────────────────────────────▶ CLOSING

The endpoint of the wire is made once the upgrade is done: a request that is no WebSocket upgrade
never reaches MQTT. Compression is not accepted: it would let a small frame expand to a large one.
Server and client share ``websocket_frames``.
"""

from __future__ import annotations

import asyncio
from typing import final

from wsproto import ConnectionType
from wsproto.events import AcceptConnection, Event, Ping, RejectConnection, RejectData, Request
from wsproto.utilities import RemoteProtocolError

from penstock.config.listener import Listener
from penstock.config.values import ANY_PATH
from penstock.transport.admission import ConnectionSlot
from penstock.transport.refusals import Refusals
from penstock.transport.websocket_frames import SUBPROTOCOLS, WebSocketStream
from penstock.transport.wire import Accept


@final
class WebSocketWire(WebSocketStream):
    """The wire of one accepted WebSocket connection.

    Args:
        peer: the name of the peer, for logs.
        listener: the name of the listener.
        settings: the settings of the listener.
        accept: makes the endpoint of the wire.
        slot: the connection's slot, released when the connection is closed.
        refusals: logs upgrades that are refused.
    """

    def __init__(
        self,
        peer: str,
        listener: str,
        settings: Listener,
        accept: Accept,
        slot: ConnectionSlot,
        refusals: Refusals,
    ) -> None:
        super().__init__(
            ConnectionType.SERVER,
            peer,
            listener,
            settings.write_buffer_bytes_max,
            settings.connect_timeout_s,
        )
        self._settings = settings
        self._accept = accept
        self._slot = slot
        self._refusals = refusals
        self._ping_timer: asyncio.TimerHandle | None = None  # from the upgrade on

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slot, and tell the endpoint that the connection is closed."""
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._slot.release()
        super().connection_lost(exc)

    def _handle_upgrade(self, event: Event) -> None:
        if not isinstance(event, Request):
            return
        refusal = self._refusal(event)
        if refusal is not None:
            status_code, text = refusal
            self._reject(status_code, text)
            return
        subprotocol = next(name for name in SUBPROTOCOLS if name in event.subprotocols)
        self._send(AcceptConnection(subprotocol=subprotocol))  # [MQTT-6.0.0-4]
        self._finish_upgrade(self._accept(self))
        self._schedule_ping()

    def _schedule_ping(self) -> None:
        if self._settings.ws_ping_s > 0:
            loop = asyncio.get_running_loop()
            self._ping_timer = loop.call_later(self._settings.ws_ping_s / 2, self._ping)

    def _ping(self) -> None:
        """Send a ping if nothing was sent since the last call."""
        if self._transport is None or self._is_closing:
            return
        if self._is_quiet and not self._is_congested:
            self._send(Ping())
        self._is_quiet = True
        self._schedule_ping()

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Return the HTTP status code and the text with which an upgrade is refused; None if it is
        accepted."""
        settings = self._settings
        path = request.target.partition("?")[0]
        if settings.path not in (ANY_PATH, path) and path.rstrip("/") != settings.path.rstrip("/"):
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
        self._refusals.log_refusal(self.peer, f"its upgrade is refused, {text}")
        body = f"{text}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        self._send(RejectConnection(status_code=status_code, headers=headers, has_body=True))
        self._send(RejectData(data=body))
        self._close_socket()

    def _refuse(self, error: RemoteProtocolError) -> None:
        hint = error.event_hint
        if self._endpoint is None and isinstance(hint, RejectConnection):
            status_code = hint.status_code
            headers = [*hint.headers, (b"content-length", b"0"), (b"connection", b"close")]
            self._send(RejectConnection(status_code=status_code, headers=headers))
        super()._refuse(error)
