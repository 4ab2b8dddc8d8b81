"""The listeners of a standby: they accept connections as a broker's do, and refer or relay clients
to the primary.

::

      accepted ─▶ admitted, PROXY header ─▶ refer: TLS, WebSocket ─▶ CONNECT ─▶ CONNACK, closed
                                         ╰▶ relay: bytes both ways, to the primary's listener
                                                    ╰── no primary in time: CONNACK with 0x88
      takeover: ``detach`` ─▶ the sockets, still listening ─▶ the broker's listeners
      the end: ``drain``, then ``detach``

The listening sockets are passed on in both directions, at a takeover and when a primary becomes a
standby. While no listener accepts on them, the system queues new connections, and no client is
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, final

from penstock.app.composing import engine_limits
from penstock.config.address import Address, SocketFile
from penstock.config.listener import MainListener, OtherListener
from penstock.config.settings import Settings
from penstock.control.metric_families import MetricSample
from penstock.engine.values.addresses import ip_of
from penstock.services.referring import ReferralService
from penstock.transport.acceptor import Relay
from penstock.transport.admission import ConnectionSlot, Descriptors
from penstock.transport.descriptors import prepare_descriptors
from penstock.transport.listener import ListeningSockets, OpenListener, open_listener
from penstock.transport.relaying import RelayedConnection, Relaying
from penstock.transport.tls import certificates_of
from penstock.transport.wire import Accept

WAIT_S: Final = 5.0
"""Longest time in seconds that a relayed client waits for a primary; a takeover takes less."""

ATTEMPT_S: Final = 1.0
"""Longest time in seconds of one attempt to reach the primary: its machine may have failed, and
another machine may become the primary meanwhile."""

PAUSE_S: Final = 0.1
"""Time in seconds between two attempts to reach the primary."""


@final
class StandbyListeners:
    """The listeners of the settings, on a machine that is not the primary.

    Args:
        settings: the settings of this machine; all machines have the same, except addresses.
        primary: returns HOST:PORT at which clients reach the main listener of the primary; empty
            while no primary is known.
        on_new_certificates: called with the name of a listener that has read its certificates
            again.
    """

    def __init__(
        self,
        settings: Settings,
        primary: Callable[[], str],
        on_new_certificates: Callable[[str], None],
    ) -> None:
        self._on_new_certificates = on_new_certificates
        self._settings = settings
        self._primary = primary
        self._is_relaying = settings.cluster.standby_clients == "relay"
        self._listeners: list[OpenListener] = []
        self._referring: ReferralService | None = None
        self._relaying: Relaying | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, inherited: Mapping[str, ListeningSockets] | None = None) -> None:
        """Open all listeners.

        Args:
            inherited: sockets that listen already, by the listener's name.

        Raises:
            ConfigError: an address cannot be listened on, or certificates cannot be used; all
                listeners and inherited sockets are closed then.
        """
        settings = self._settings
        self._referring = ReferralService()
        self._relaying = Relaying(2 * settings.listener.slow_peer_timeout_s)
        sockets = dict(inherited or {})
        descriptors = prepare_descriptors(settings)
        if self._is_relaying:  # a relayed connection is two sockets
            descriptors = Descriptors(max(1, descriptors.connections_max // 2))
        try:
            for listener in settings.listener.enabled_listeners():
                self._listeners.append(
                    await open_listener(
                        listener.name,
                        listener,
                        self._accept(listener, self._referring),
                        descriptors,
                        self._relay_of(listener, self._relaying),
                        sockets.pop(listener.name, None),
                    )
                )
        except BaseException:
            self.close()
            raise
        finally:
            for listening in sockets.values():
                listening.close()
        self._tasks = [
            asyncio.create_task(one.watch(self._on_new_certificates)) for one in self._listeners
        ]
        self._tasks.append(asyncio.create_task(self._relaying.watch(self._leads_to_primary)))

    def _accept(self, listener: MainListener | OtherListener, referring: ReferralService) -> Accept:
        return partial(
            referring.accept,
            limits=engine_limits(self._settings, listener),
            primary=partial(self._reference, listener),
        )

    def apply_settings(self, settings: Settings) -> None:
        """Use other limits and certificates for connections accepted from now on.

        Raises:
            ConfigError: certificates cannot be used; nothing has changed.
        """
        listeners = [
            (opened, listener, certificates_of(listener.name, listener))
            for opened, listener in zip(
                self._listeners, settings.listener.enabled_listeners(), strict=False
            )
        ]
        self._settings = settings
        assert self._referring is not None
        for opened, listener, certificates in listeners:
            opened.apply_settings(listener, self._accept(listener, self._referring), certificates)

    @property
    def urls(self) -> list[str]:
        """The URLs on which the listeners accept connections."""
        return [url for listener in self._listeners for url in listener.urls]

    async def drain(self) -> None:
        """Relay no more clients; pass on what the primary still acknowledges to those that are
        relayed, then end their connections."""
        if self._relaying is not None:
            await self._relaying.drain()

    def detach(self) -> dict[str, ListeningSockets]:
        """Stop accepting, close all connections, and return the listening sockets, by the
        listener's name.

        The sockets are for ``open_listener`` of the broker. Until the broker accepts, clients that
        connect wait in the system's queue.
        """
        detached = {listener.name: listener.detach() for listener in self._listeners}
        self._listeners.clear()
        self._end()
        return detached

    def close(self) -> None:
        """Stop listening, and close all connections at once."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._end()

    def samples(self) -> Iterator[MetricSample]:
        """Yield the samples for a scrape."""
        for listener in self._listeners:
            yield "listener_connections", (listener.name,), listener.connections
            yield "listener_connections_refused", (listener.name,), listener.refused
        if self._referring is not None and self._relaying is not None:
            yield "standby_clients_referred", (), self._referring.referred
            yield "standby_clients_refused", (), self._referring.refused
            yield "standby_clients_relayed", (), self._relaying.relayed
            yield "standby_relays_failed", (), self._relaying.failed
            yield "standby_relays", (), self._relaying.open_count

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        if self._relaying is not None:
            self._relaying.close()
        if self._referring is not None:
            self._referring.close()

    # -- where clients are sent --------------------------------------------------------

    def _reference(self, listener: MainListener | OtherListener) -> str:
        """Return the address of the primary for a client of ``listener``; empty if it is not known,
        or if the client should have been relayed and shall try again."""
        address = None if self._is_relaying else primary_address(listener, self._primary())
        return "" if address is None else str(address)

    def _relay_of(self, listener: MainListener | OtherListener, relaying: Relaying) -> Relay | None:
        if not self._is_relaying or not isinstance(listener.bind, Address):
            return None
        return partial(self._relay, listener, relaying)

    async def _relay(
        self,
        listener: MainListener | OtherListener,
        relaying: Relaying,
        connection: socket.socket,
        peer: str,
        slot: ConnectionSlot,
    ) -> bool:
        """Relay a connection as soon as a primary is reached; return False if none is reached in
        time.

        A client that lost its primary reconnects at once, and several client libraries give up if a
        server refuses them; so the connection waits for the next primary.
        """
        loop = asyncio.get_running_loop()
        wait_s = min(WAIT_S, listener.connect_timeout_s / 2)  # the other half is for the answer
        ends_s = loop.time() + wait_s
        was_tried = False
        while (left_s := ends_s - loop.time()) > 0.0:
            address = primary_address(listener, self._primary())
            if address is not None:
                was_tried = True
                if await relaying.relay(connection, peer, slot, address, min(ATTEMPT_S, left_s)):
                    return True
            await asyncio.sleep(PAUSE_S)
        relaying.failed += was_tried
        return False

    def _leads_to_primary(self, pair: RelayedConnection) -> bool:
        """Return whether a relayed connection leads to the primary; True if none is known."""
        primary = parse_primary(self._primary())
        return primary is None or primary.host == pair.destination.host


def primary_address(listener: MainListener | OtherListener, primary: str) -> Address | None:
    """Return the address of the primary's listener of the same name.

    The primary publishes the address of its main listener. Each other listener has its own port on
    the same host, because all machines have the same settings. A client of a Unix socket is
    referred to the main listener.

    Args:
        listener: the listener to which the client connected.
        primary: HOST:PORT of the primary's main listener; empty if no primary is known.

    Returns:
        The address; None if no primary is known, or the listener's port is 0 in the settings.
    """
    found = parse_primary(primary)
    if found is None or isinstance(listener, MainListener) or isinstance(listener.bind, SocketFile):
        return found
    return Address(found.host, listener.bind.port) if listener.bind.port else None


def references(settings: Settings, primary: str) -> dict[str, str]:
    """Return the primary's address for the clients of each listener, by the listener's name, for
    ``Driver.stop`` at a planned handover; empty where the address is not known."""
    found = {
        one.name: primary_address(one, primary) for one in settings.listener.enabled_listeners()
    }
    return {name: "" if address is None else str(address) for name, address in found.items()}


def parse_primary(primary: str) -> Address | None:
    """Return the address of a primary from HOST:PORT; None if the text is empty or malformed, the
    port is 0, or the host is an unspecified address such as 0.0.0.0."""
    with contextlib.suppress(ValueError):
        found = Address.parse(primary)
        address = ip_of(found.host)
        if found.port != 0 and (address is None or not address.is_unspecified):
            return found
    return None
