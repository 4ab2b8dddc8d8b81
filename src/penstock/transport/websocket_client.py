"""MQTT over WebSocket (MQTT 5 §6), the side of the client::

     connected ─▶ GET, subprotocol mqtt ─▶ 101 with mqtt ─▶ OPEN
                          ╰── refused, another subprotocol, no HTTP ─▶ the upgrade failed

Frames we send are masked, as RFC 6455 §5.3 wants of a client; wsproto does it.
"""

from __future__ import annotations

import asyncio
from typing import final

from wsproto import ConnectionType
from wsproto.events import AcceptConnection, CloseConnection, Event, RejectConnection, Request
from wsproto.utilities import RemoteProtocolError

from penstock.config.remote_url import PORTS, RemoteUrl
from penstock.transport.api import Accept
from penstock.transport.websocket_frames import SUBPROTOCOLS, WebSocketStream

_LONGEST_S = 86_400.0  # the caller of ``dial`` has a time limit of its own


@final
class DialledWebSocket(WebSocketStream):
    """One connection.

    Args:
        url: the server.
        name: the name of the dialling side, for logs.
        accept: makes the user of the wire, once the server agreed.
        upgrade: done when it did; fails with ``ConnectionError`` when it did not.
        write_buffer_bytes_max: bytes not yet taken by the peer above which it is congested.
        headers: more of them for the request, such as Authorization.
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
        super().__init__(ConnectionType.CLIENT, str(url), name, write_buffer_bytes_max, _LONGEST_S)
        self._url = url
        self._accept = accept
        self._upgrade = upgrade
        self._headers = headers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for WebSocket: the connection stands."""
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
        """Report that the connection is gone."""
        self._fail(self._because if exc is None else str(exc))
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close at once: the upgrade failed, or took too long."""
        if self._transport is not None:
            self._transport.abort()

    def _upgrading(self, event: Event) -> None:
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
                self._opened(self._accept(self))
                self._upgrade.set_result(None)

    def _peer_closes(self, event: CloseConnection) -> None:
        self._fail(f"WebSocket closed: {event.reason or int(event.code)}")
        super()._peer_closes(event)

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._fail(f"no WebSocket there: {error}")
        super()._refuse(error)

    def _fail(self, why: str) -> None:
        if not self._upgrade.done():
            self._upgrade.set_exception(ConnectionError(why))
