"""A listener of the settings, opened: its sockets, its certificates, its bounds, its wires."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from typing import Final, final

from penstock.config.address import Address, SocketFile
from penstock.config.listener import Listener
from penstock.engine.addresses import IPNetwork
from penstock.errors import ConfigError
from penstock.telemetry.logs import get_logger
from penstock.transport.acceptor import Acceptor, ConnectionOrigin, Relay
from penstock.transport.admission import Admission, ConnectionSlot, Descriptors, TokenBucket
from penstock.transport.api import Accept
from penstock.transport.proxy_protocol import ProxyHeader, ProxyHeaderError
from penstock.transport.refusals import Refusals
from penstock.transport.socket_wire import SocketWire
from penstock.transport.stream import StreamWire
from penstock.transport.tcp import bind_tcp, set_user_timeout
from penstock.transport.tls import Certificates, certificates_of
from penstock.transport.unix import UnixSocket
from penstock.transport.websocket import WebSocketWire

logger = get_logger(__name__)

SCHEMES: Final = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss", "unix": "unix"}


@final
class ListeningSockets:
    """The listening sockets of a listener, while none accepts connections on them.

    They are open: the system keeps connections that come meanwhile, and their first bytes, until
    the listener that gets them accepts them (1,024 for each socket, see ``tcp.BACKLOG``).

    Args:
        bind: the address of the settings that they were opened for.
        sockets: the listening sockets.
        file: the file of a Unix socket; None for TCP.
    """

    def __init__(
        self, bind: Address | SocketFile, sockets: list[socket.socket], file: UnixSocket | None
    ) -> None:
        self.bind = bind
        self.sockets = sockets
        self.file = file

    def close(self) -> None:
        """Close them: nobody will accept on them. The connections that they keep are reset."""
        for listening in self.sockets:
            listening.close()
        if self.file is not None:
            self.file.remove()


@final
class OpenListener:
    """One listener that accepts connections; see ``open_listener``."""

    def __init__(
        self,
        name: str,
        settings: Listener,
        accept: Accept,
        descriptors: Descriptors,
        certificates: Certificates | None,
        relay: Relay | None = None,
    ) -> None:
        self.name = name
        self.urls: list[str] = []
        """The URLs at which it can be reached, one for each socket."""
        self._settings = settings
        self._accept = accept
        self._certificates = certificates
        self._relay = relay
        self._admission = Admission(
            name, settings.max_connections, descriptors, settings.connections_per_address_max
        )
        self._exempt = _networks(settings.connections_per_address_exempt)
        self._bucket = TokenBucket(
            settings.connections_per_s_max, asyncio.get_running_loop().time()
        )
        self._refusals = Refusals(name)
        self._networks = _networks(settings.proxy_networks)
        self._acceptors: list[Acceptor] = []
        self._file: UnixSocket | None = None
        self._changed = asyncio.Event()  # other settings are in use

    async def open(self, inherited: ListeningSockets | None = None) -> None:
        """Listen, on the sockets of a listener before this one where they are given.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        bind = self._settings.bind
        if inherited is not None and inherited.bind != bind:
            inherited.close()
            inherited = None
        if isinstance(bind, SocketFile):
            if inherited is not None and inherited.file is not None:
                self._file = inherited.file
            else:
                self._file = UnixSocket(self.name, bind, int(self._settings.mode, 8))
            self._listen(self._file.listening, str(bind))
            return
        user_timeout_s = _user_timeout_s(self._settings)
        if inherited is not None:
            sockets = inherited.sockets
            for listening in sockets:
                set_user_timeout(listening, user_timeout_s)
        else:
            sockets = await bind_tcp(self.name, bind, user_timeout_s)
        for listening in sockets:
            shown = Address(bind.host, listening.getsockname()[1])
            path = self._settings.path if self._settings.kind in ("ws", "wss") else ""
            self._listen(listening, f"{shown}{path}")

    @property
    def refused(self) -> int:
        """Connections that found no slot, since the start."""
        return self._admission.refused

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return self._admission.open

    def close(self) -> None:
        """Listen no more; connections that stand are untouched."""
        for acceptor in self._acceptors:
            acceptor.close()
        if self._file is not None:
            self._file.remove()

    def detach(self) -> ListeningSockets:
        """Accept nothing more, and return the sockets, which stay open, for another listener.

        Connections that stand are untouched; those that are still being opened end.
        """
        sockets = [acceptor.detach() for acceptor in self._acceptors]
        self._acceptors.clear()
        file, self._file = self._file, None
        return ListeningSockets(self._settings.bind, sockets, file)

    def apply_settings(
        self, settings: Listener, accept: Accept, certificates: Certificates | None
    ) -> None:
        """Take other settings, and certificates that were read again, for connections accepted
        from now on.

        The address and the kind of transport must be as they were.
        """
        assert (settings.kind, settings.bind) == (self._settings.kind, self._settings.bind), (
            "another address is another listener"
        )
        self._settings = settings
        self._accept = accept
        self._certificates = certificates
        self._admission.max_connections = settings.max_connections
        self._admission.per_address_max = settings.connections_per_address_max
        self._bucket.refill_at(settings.connections_per_s_max)
        self._exempt = _networks(settings.connections_per_address_exempt)
        self._networks = _networks(settings.proxy_networks)
        for acceptor in self._acceptors:
            acceptor.exempt = self._exempt
            acceptor.connect_timeout_s = settings.connect_timeout_s
            if self._file is None:
                set_user_timeout(acceptor.listening, _user_timeout_s(settings))
        self._changed.set()

    async def watch(self) -> None:
        """Read the certificates again whenever they have changed, until cancelled."""
        while self._certificates is not None:
            every_s = self._settings.certificates_check_s
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s or None):
                    await self._changed.wait()
                    continue
            try:
                if await asyncio.to_thread(self._certificates.reload_if_changed):
                    logger.info("listener %s uses its certificates as they are now", self.name)
            except ConfigError as error:
                logger.error(
                    "new certificates are not used, and the old ones stay in use: %s", error
                )

    def _listen(self, listening: socket.socket, address: str) -> None:
        settings = self._settings
        url = f"{SCHEMES[settings.kind]}://{address}"
        if url not in self.urls:
            self.urls.append(url)
        self._acceptors.append(
            Acceptor(
                listening,
                self.name,
                self._admission,
                self._bucket,
                settings.connect_timeout_s,
                self._wire,
                self._context,
                None if settings.proxy_protocol == "off" else self._read_proxy_header,
                self._refusals,
                self._exempt,
                self._relay,
            )
        )

    def _context(self) -> ssl.SSLContext | None:
        return None if self._certificates is None else self._certificates.context

    def _wire(self, peer: str, slot: ConnectionSlot) -> StreamWire:
        settings = self._settings
        if settings.kind in ("ws", "wss"):
            return WebSocketWire(peer, self.name, settings, self._accept, slot, self._refusals)
        size_bytes = settings.write_buffer_bytes_max
        return SocketWire(peer, self.name, self._accept, slot, size_bytes)

    # -- PROXY protocol ----------------------------------------------------------------

    async def _read_proxy_header(self, connection: socket.socket, peer: str) -> ConnectionOrigin:
        """Return the client's address as the load balancer reports it."""
        if connection.family != socket.AF_UNIX and not self._is_trusted(connection):
            if not self._settings.proxy_networks_only:
                return ConnectionOrigin(peer)
            raise ConnectionRefusedError("it is in none of proxy_networks")
        header = ProxyHeader(self._settings.proxy_protocol)
        loop = asyncio.get_running_loop()
        while not header.is_complete:
            data = await loop.sock_recv(connection, header.wanted())
            if not data:
                raise ConnectionResetError("it left before its PROXY header was complete")
            try:
                header.feed(data)
            except ProxyHeaderError as error:
                raise ConnectionRefusedError(f"no PROXY header: {error}") from error
        return ConnectionOrigin(header.source or peer, header.is_relayed)

    def _is_trusted(self, connection: socket.socket) -> bool:
        address = ipaddress.ip_address(connection.getpeername()[0].partition("%")[0])
        return any(address in network for network in self._networks)


def _networks(networks: Sequence[str]) -> list[IPNetwork]:
    return [ipaddress.ip_network(network) for network in networks]


def _user_timeout_s(settings: Listener) -> float:
    """Return TCP_USER_TIMEOUT in seconds: twice the broker's limit for slow peers, so that the
    broker closes first, and logs the reason."""
    return 2 * settings.slow_peer_timeout_s


async def open_listener(
    name: str,
    settings: Listener,
    accept: Accept,
    descriptors: Descriptors,
    relay: Relay | None = None,
    inherited: ListeningSockets | None = None,
) -> OpenListener:
    """Accept connections as a listener's settings say.

    Args:
        name: name of the listener, for logs.
        settings: its settings.
        accept: makes the user of each connection that speaks MQTT.
        descriptors: shared by all listeners.
        relay: takes connections over before TLS; None for none.
        inherited: the sockets of a listener of this name that was detached. They are used if the
            address is the same, and else closed.

    Raises:
        ConfigError: its address cannot be listened on, or its certificates cannot be used;
            ``inherited`` is closed then.
    """
    try:
        certificates = certificates_of(name, settings)
    except ConfigError:
        if inherited is not None:
            inherited.close()
        raise
    listener = OpenListener(name, settings, accept, descriptors, certificates, relay)
    await listener.open(inherited)
    return listener
