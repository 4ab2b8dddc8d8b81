"""The listeners of a standby: they are open as the broker's are, and send clients to the primary.

::

      accepted ─▶ admitted, PROXY header ─▶ refer: TLS, WebSocket ─▶ CONNECT ─▶ CONNACK, closed
                                         ╰▶ relay: bytes both ways, to the primary's listener
                                                    ╰── not reached for a while: as refer, 0x88
      takeover: ``detach`` ─▶ the sockets, still listening ─▶ the broker's listeners

The listening sockets can be handed on in both directions, at a takeover and when a primary becomes
a standby. While nobody accepts on them, the system keeps connections that come, and no client is
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
from penstock.engine.addresses import ip_of
from penstock.services.referring import ReferralService
from penstock.transport.acceptor import Relay
from penstock.transport.admission import ConnectionSlot, Descriptors
from penstock.transport.api import Accept
from penstock.transport.descriptors import prepared
from penstock.transport.listener import ListeningSockets, OpenListener, open_listener
from penstock.transport.relaying import RelayedConnection, Relaying
from penstock.transport.tls import certificates_of

WAIT_S: Final = 5.0
"""Longest time in seconds that a client waits here for a primary; a takeover takes less."""

ATTEMPT_S: Final = 1.0
"""Longest time in seconds that one attempt to reach the primary takes: its machine may be gone, and
another one be the primary meanwhile."""

PAUSE_S: Final = 0.1
"""Time in seconds from one attempt to the next."""


@final
class StandbyListeners:
    """All listeners of the settings, on a machine that is not the primary.

    Args:
        settings: the settings of this machine; the same on all, but for addresses.
        primary: returns HOST:PORT at which clients reach the main listener of the primary, which
            its claim says; empty while no primary is known.
    """

    def __init__(self, settings: Settings, primary: Callable[[], str]) -> None:
        self._settings = settings
        self._primary = primary
        self._relays = settings.cluster.standby_clients == "relay"
        self._listeners: list[OpenListener] = []
        self._referring: ReferralService | None = None
        self._relaying: Relaying | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, inherited: Mapping[str, ListeningSockets] | None = None) -> None:
        """Listen.

        Args:
            inherited: sockets that listen already, by the listener's name.

        Raises:
            ConfigError: an address cannot be listened on, or certificates cannot be used. Nothing
                is open then.
        """
        settings = self._settings
        self._referring = ReferralService()
        self._relaying = Relaying(2 * settings.listener.slow_peer_timeout_s)
        sockets = dict(inherited or {})
        descriptors = prepared(settings)
        if self._relays:  # a relayed connection is two sockets
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
        self._tasks = [asyncio.create_task(one.watch()) for one in self._listeners]
        self._tasks.append(asyncio.create_task(self._relaying.watch(self._leads_on)))

    def _accept(self, listener: MainListener | OtherListener, referring: ReferralService) -> Accept:
        return partial(
            referring.accept,
            limits=engine_limits(self._settings, listener),
            primary=partial(self._reference, listener),
        )

    def apply_settings(self, settings: Settings) -> None:
        """Use other limits and certificates for connections to come.

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
        """The URLs at which this machine can be reached."""
        return [url for listener in self._listeners for url in listener.urls]

    def detach(self) -> dict[str, ListeningSockets]:
        """Accept nothing more, end all connections, and return the sockets, by the listener's name.

        They are for ``open_listener`` of the broker. Until it accepts, clients that connect wait in
        the system's queue.
        """
        detached = {listener.name: listener.detach() for listener in self._listeners}
        self._listeners.clear()
        self._end()
        return detached

    def close(self) -> None:
        """Listen no more, and end all connections at once."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._end()

    def samples(self) -> Iterator[MetricSample]:
        """Yield the values for a scrape."""
        for listener in self._listeners:
            yield "listener_connections", (listener.name,), listener.connections
            yield "listener_connections_refused", (listener.name,), listener.refused
        if self._referring is not None and self._relaying is not None:
            yield "standby_clients_referred", (), self._referring.referred
            yield "standby_clients_refused", (), self._referring.refused
            yield "standby_clients_relayed", (), self._relaying.relayed
            yield "standby_relays_failed", (), self._relaying.failed
            yield "standby_relays", (), self._relaying.open

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
        """Return the address for a client of ``listener``; empty where there is none, or where it
        should have been relayed: then it is told to try again."""
        address = None if self._relays else primary_address(listener, self._primary())
        return "" if address is None else str(address)

    def _relay_of(self, listener: MainListener | OtherListener, relaying: Relaying) -> Relay | None:
        if not self._relays or not isinstance(listener.bind, Address):
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
        """Relay a connection as soon as a primary is reached; return False if none is in time.

        A client that lost its primary comes back at once, and several libraries give up where a
        server refuses them, so it waits here for the next primary.
        """
        loop = asyncio.get_running_loop()
        within_s = min(WAIT_S, listener.connect_timeout_s / 2)  # the rest is for the answer
        ends_s = loop.time() + within_s
        was_tried = False
        while (rest_s := ends_s - loop.time()) > 0.0:
            address = primary_address(listener, self._primary())
            if address is not None:
                was_tried = True
                if await relaying.relay(connection, peer, slot, address, min(ATTEMPT_S, rest_s)):
                    return True
            await asyncio.sleep(PAUSE_S)
        relaying.failed += was_tried
        return False

    def _leads_on(self, pair: RelayedConnection) -> bool:
        """Return whether a relayed connection leads to the primary, as far as one is known."""
        found = parsed(self._primary())
        return found is None or found.host == pair.leads_to.host


def primary_address(listener: MainListener | OtherListener, primary: str) -> Address | None:
    """Return the address of the primary's listener of the same name.

    The primary says where its main listener is reached. Each other listener has its own port there,
    because all machines have the same settings. A client of a Unix socket is told the main
    listener.

    Args:
        listener: the listener that the client came to.
        primary: HOST:PORT of the primary's main listener; empty where no primary is known.

    Returns:
        None where it is not known, or only the system knows the port.
    """
    found = parsed(primary)
    if found is None or isinstance(listener, MainListener) or isinstance(listener.bind, SocketFile):
        return found
    return Address(found.host, listener.bind.port) if listener.bind.port else None


def references(settings: Settings, primary: str) -> dict[str, str]:
    """Return the address of the primary for the clients of each listener, by its name: for
    ``Driver.stop`` at a planned handover. Listeners without one have the empty text."""
    found = {
        one.name: primary_address(one, primary) for one in settings.listener.enabled_listeners()
    }
    return {name: "" if address is None else str(address) for name, address in found.items()}


def parsed(primary: str) -> Address | None:
    """Return the address of a primary; None where it is empty, or none that can be connected to."""
    with contextlib.suppress(ValueError):
        found = Address.parse(primary)
        address = ip_of(found.host)
        if found.port != 0 and (address is None or not address.is_unspecified):
            return found
    return None
