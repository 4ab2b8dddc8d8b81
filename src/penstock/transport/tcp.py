"""Listening sockets for TCP, IPv4 and IPv6."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Final

from penstock.config.address import Address
from penstock.errors import ConfigError

BACKLOG: Final = 1024  # connections that the system queues until they are accepted


KEEPALIVE_IDLE_S: Final = 60  # silence before the first keepalive probe
KEEPALIVE_INTERVAL_S: Final = 15
KEEPALIVE_PROBES: Final = 4  # unanswered probes after which the connection is dead


async def bind_tcp(name: str, address: Address, user_timeout_s: float = 0.0) -> list[socket.socket]:
    """Listen on an address; return one listening socket for each address of a host name.

    IPv4 and IPv6 do not share a socket, so 0.0.0.0 and [::] may both be listened on. With port
    0 all sockets of a host name get the same free port.

    Args:
        name: the name of the listener.
        address: the address to listen on.
        user_timeout_s: time in seconds for which a peer may leave bytes unacknowledged, or its
            window closed, before the system ends the connection; 0 = the system's default.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, host in await _resolve(address):
            listening = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            set_keepalive(listening, user_timeout_s)
            listening.bind((host, port))
            listening.listen(BACKLOG)
            port = listening.getsockname()[1]
    except OSError as error:
        for listening in sockets:
            listening.close()
        raise ConfigError(
            f"cannot listen on {address} (listener {name}): {error.strerror or error};"
            f" {remedy(error)} with --bind, or bind in the listener's settings"
        ) from error
    return sockets


def remedy(error: OSError) -> str:
    """Return a remedy for an address that cannot be listened on, as the beginning of a clause; the
    caller appends the setting of the address."""
    if isinstance(error, socket.gaierror):
        return "the name has no address here: correct it, or choose another address"
    if error.errno == errno.EACCES:
        return "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address: choose one it has, or 0.0.0.0 for all,"
    return "is another broker running there? Stop it, or choose another address"


def set_keepalive(stream: socket.socket, user_timeout_s: float) -> None:
    """Set TCP keepalive and user timeout, so that the system ends dead connections.

    Accepted sockets inherit the options of their listening socket.

    A peer that vanished without closing (power, a cable, an expired NAT entry) is detected after
    two minutes of silence, even without an MQTT keep alive.

    Args:
        stream: a listening or connected TCP socket.
        user_timeout_s: as for ``bind_tcp``.
    """
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    set_user_timeout(stream, user_timeout_s)


def set_user_timeout(stream: socket.socket, user_timeout_s: float) -> None:
    """Set TCP_USER_TIMEOUT, in seconds (see ``bind_tcp``), of a connected socket, or of the
    connections that a listening socket accepts from now on."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = int(user_timeout_s * 1000)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


async def _resolve(address: Address) -> list[tuple[socket.AddressFamily, str]]:
    """Return the addresses of a host with their families, each once."""
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))
