"""An open listener: its listening sockets, certificates and limits, and the wires it makes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.config.address import Address, SocketFile
from penstock.config.listener import Listener
from penstock.config.values import ANY_PATH
from penstock.engine.values.addresses import IPNetwork
from penstock.errors import ConfigError
from penstock.telemetry.logs import get_logger
from penstock.transport.acceptor import Acceptor, ConnectionOrigin, Relay
from penstock.transport.admission import Admission, ConnectionSlot, Descriptors, TokenBucket
from penstock.transport.proxy_protocol import ProxyHeader, ProxyHeaderError
from penstock.transport.refusals import Refusals
from penstock.transport.socket_wire import SocketWire
from penstock.transport.stream import StreamWire
from penstock.transport.tcp import bind_tcp, set_user_timeout
from penstock.transport.tls import Certificates, certificates_of
from penstock.transport.unix import UnixSocket
from penstock.transport.websocket import WebSocketWire
from penstock.transport.wire import Accept

logger = get_logger(__name__)

SCHEMES: Final = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss", "unix": "unix"}


@final
class ListeningSockets:
    """The listening sockets of a listener while no listener accepts connections on them.

    The sockets are open: the system queues new connections and their first bytes until the next
    listener accepts them (1,024 for each socket, see ``tcp.BACKLOG``).

    Args:
        bind: the address of the settings for which the sockets were opened.
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
        """Close the sockets; connections that the system has queued are reset."""
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
        """The URLs of the listener, one for each socket."""
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
        self._settings_changed = asyncio.Event()

    async def open(self, inherited: ListeningSockets | None = None) -> None:
        """Listen, on ``inherited`` sockets of an earlier listener if they have the same address.

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
            address = Address(bind.host, listening.getsockname()[1])
            is_web = self._settings.kind in ("ws", "wss")
            path = self._settings.path if is_web and self._settings.path != ANY_PATH else ""
            self._listen(listening, f"{address}{path}")

    @property
    def refused(self) -> int:
        """The number of connections that were closed because of a limit, since the start."""
        return self._admission.refused

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._admission.open_count

    def close(self) -> None:
        """Stop listening; open connections stay open."""
        for acceptor in self._acceptors:
            acceptor.close()
        if self._file is not None:
            self._file.remove()

    def detach(self) -> ListeningSockets:
        """Stop accepting, and return the listening sockets, which stay open for another listener.

        Open connections stay open; those that are still being opened are closed.
        """
        sockets = [acceptor.detach() for acceptor in self._acceptors]
        self._acceptors.clear()
        file, self._file = self._file, None
        return ListeningSockets(self._settings.bind, sockets, file)

    def apply_settings(
        self, settings: Listener, accept: Accept, certificates: Certificates | None
    ) -> None:
        """Use other settings, and certificates that were read again, for connections accepted from
        now on. The address and the kind of transport must not differ."""
        assert (settings.kind, settings.bind) == (self._settings.kind, self._settings.bind), (
            "another address is another listener"
        )
        self._settings = settings
        self._accept = accept
        self._certificates = certificates
        self._admission.max_connections = settings.max_connections
        self._admission.per_address_max = settings.connections_per_address_max
        self._bucket.set_rate(settings.connections_per_s_max)
        self._exempt = _networks(settings.connections_per_address_exempt)
        self._networks = _networks(settings.proxy_networks)
        for acceptor in self._acceptors:
            acceptor.exempt = self._exempt
            acceptor.connect_timeout_s = settings.connect_timeout_s
            if self._file is None:
                set_user_timeout(acceptor.listening, _user_timeout_s(settings))
        self._settings_changed.set()

    async def watch(self, on_new_certificates: Callable[[str], None]) -> None:
        """Read the certificates again whenever they have changed, until cancelled.

        Args:
            on_new_certificates: called with the name of the listener after each reading.
        """
        while self._certificates is not None:
            interval_s = self._settings.certificates_check_s
            self._settings_changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s or None):
                    await self._settings_changed.wait()
                    continue
            try:
                if await asyncio.to_thread(self._certificates.reload_if_changed):
                    logger.info("listener %s uses its certificates as they are now", self.name)
                    on_new_certificates(self.name)
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
                self._make_wire,
                self._get_context,
                None if settings.proxy_protocol == "off" else self._read_proxy_header,
                self._refusals,
                self._exempt,
                self._relay,
            )
        )

    def _get_context(self) -> ssl.SSLContext | None:
        return None if self._certificates is None else self._certificates.context

    def _make_wire(self, peer: str, slot: ConnectionSlot) -> StreamWire:
        settings = self._settings
        if settings.kind in ("ws", "wss"):
            return WebSocketWire(peer, self.name, settings, self._accept, slot, self._refusals)
        size_bytes = settings.write_buffer_bytes_max
        return SocketWire(peer, self.name, self._accept, slot, size_bytes)

    # -- PROXY protocol ----------------------------------------------------------------

    async def _read_proxy_header(self, connection: socket.socket, peer: str) -> ConnectionOrigin:
        """Return the client's address from the PROXY header of the load balancer.

        Raises:
            ConnectionRefusedError: the peer may send no header, or its header is malformed.
            OSError: the connection was closed.
        """
        if connection.family != socket.AF_UNIX and not self._is_trusted(connection):
            if not self._settings.proxy_networks_only:
                return ConnectionOrigin(peer)
            raise ConnectionRefusedError("it is in none of proxy_networks")
        header = ProxyHeader(self._settings.proxy_protocol)
        loop = asyncio.get_running_loop()
        while not header.is_complete:
            data = await loop.sock_recv(connection, header.bytes_needed())
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
    """Open a listener and return it; it accepts connections from now on.

    Args:
        name: the name of the listener, for logs.
        settings: its settings.
        accept: makes the endpoint of each connection that speaks MQTT.
        descriptors: the count of connections, shared by all listeners.
        relay: relays connections before TLS; None if none are relayed.
        inherited: the sockets of a detached listener of the same name; they are used if the address
            is the same, and closed if not.

    Raises:
        ConfigError: the address cannot be listened on, or the certificates cannot be used;
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
