"""MQTT over WebSocket (MQTT 5 §6), the client's side::

     connected ─▶ GET, subprotocol mqtt ─▶ 101 with mqtt ─▶ OPEN
                          ╰── refused, another subprotocol, no HTTP ─▶ the upgrade failed

wsproto masks the frames that we send, as RFC 6455 §5.3 requires of a client.
"""

from __future__ import annotations

import asyncio
from typing import final

from wsproto import ConnectionType
from wsproto.events import AcceptConnection, CloseConnection, Event, RejectConnection, Request
from wsproto.utilities import RemoteProtocolError

from penstock.config.remote_url import PORTS, RemoteUrl
from penstock.transport.websocket_frames import SUBPROTOCOLS, WebSocketStream
from penstock.transport.wire import Accept

_UPGRADE_S_MAX = 86_400.0  # no limit here: ``dial`` has its own


@final
class DialledWebSocket(WebSocketStream):
    """The wire of one dialled WebSocket connection.

    Args:
        url: the server.
        name: the name of the dialling side, for logs.
        accept: makes the endpoint of the wire, once the server accepted the upgrade.
        upgrade: a future that is done when the server accepted the upgrade, and fails with
            ``ConnectionError`` if it did not.
        write_buffer_bytes_max: unsent bytes above which the endpoint must pause writing.
        headers: additional headers for the request, such as Authorization.
    """

    def __init__(
        self,
        url: RemoteUrl,
        name: str,
        accept: Accept,
        upgrade: asyncio.Future[None],
        write_buffer_bytes_max: int,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(
            ConnectionType.CLIENT, str(url), name, write_buffer_bytes_max, _UPGRADE_S_MAX
        )
        self._url = url
        self._accept = accept
        self._upgrade = upgrade
        self._headers = headers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the upgrade request: the connection is open."""
        super().connection_made(transport)
        host = str(self._url.address).removesuffix(f":{PORTS[self._url.scheme]}")
        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers
        ]
        self._send(
            Request(
                host=host,
                target=self._url.path,
                subprotocols=[SUBPROTOCOLS[0]],
                extra_headers=headers,
            )
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail an unfinished upgrade, and tell the endpoint that the connection is closed."""
        self._fail(self._close_reason if exc is None else str(exc))
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close at once: the upgrade failed, or took too long."""
        if self._transport is not None:
            self._transport.abort()

    def _handle_upgrade(self, event: Event) -> None:
        if isinstance(event, RejectConnection):
            self._fail(
                f"the server refused WebSocket at {self._url.path} with status"
                f" {event.status_code}; is it the right path?"
            )
            self._close_socket()
        elif isinstance(event, AcceptConnection):
            if event.subprotocol != SUBPROTOCOLS[0]:  # [MQTT-6.0.0-4]
                self._fail("the server does not speak MQTT over WebSocket")
                self._close_socket()
            elif not self._upgrade.done():
                self._finish_upgrade(self._accept(self))
                self._upgrade.set_result(None)

    def _handle_close(self, event: CloseConnection) -> None:
        self._fail(f"WebSocket closed: {event.reason or int(event.code)}")
        super()._handle_close(event)

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._fail(f"no WebSocket there: {error}")
        super()._refuse(error)

    def _fail(self, why: str) -> None:
        if not self._upgrade.done():
            self._upgrade.set_exception(ConnectionError(why))
