"""IP addresses of peers: their text forms, and which addresses count as one source.

The shell names a peer: ``192.0.2.7:1883``, ``[2001:db8::1]:1883``, or a text without an address,
such as a process at a Unix socket. An IPv4 address of an IPv6 socket (``::ffff:192.0.2.7``) is
treated as the IPv4 address, and a network of such addresses likewise.

One source is an IPv4 address, or a /64 of IPv6, because one customer usually has a /64, and could
use any of its 2**64 addresses (RFC 4291 §2.5.4).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_SOURCE_BITS: Final = {4: 32, 6: 64}
_OCTETS: Final = frozenset(str(octet) for octet in range(256))  # to look up is less than to parse
_MAPPED_BITS: Final = 96  # prefix length of ::ffff:0:0/96, in which IPv4 addresses are mapped


def host_of(peer: str) -> str:
    """Return a peer's name without port and brackets; a name without a port is returned whole."""
    host, colon, _ = peer.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host = peer  # IPv4, or IPv6 without brackets
    return host.strip("[]")


def ip_of(peer: str) -> IPAddress | None:
    """Return the IP address in a peer's name; None where there is none."""
    try:
        found = ipaddress.ip_address(host_of(peer).partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def source_of(peer: str, exempt: Sequence[IPNetwork] = ()) -> str:
    """Return the source that a peer belongs to, as text: an IPv4 address or an IPv6 /64.

    Return an empty text if the peer has no address, or its address is in a network of ``exempt``.
    """
    host = host_of(peer)
    if not exempt and _is_ipv4(host):  # most connections: the text is the source
        return host
    address = ip_of(peer)
    if address is None or any(address in network for network in exempt):
        return ""
    return text_of(_source(address))


def network_of(text: str) -> IPNetwork:
    """Return the network that ``text`` names, or the source of the address that it names.

    Raises:
        ValueError: ``text`` is neither an address nor a network; the message is one sentence.
    """
    address = None if "/" in text else ip_of(text)
    if address is not None:
        return _source(address)
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is neither an IP address nor a network") from None
    mapped = found.network_address
    if isinstance(mapped, ipaddress.IPv6Address) and found.prefixlen >= _MAPPED_BITS:
        inner = mapped.ipv4_mapped
        if inner is not None:
            return ipaddress.ip_network((str(inner), found.prefixlen - _MAPPED_BITS))
    return found


def text_of(network: IPNetwork) -> str:
    """Return the text of ``network``; a single IPv4 address is written without a prefix length."""
    if network.version == 4 and network.prefixlen == _SOURCE_BITS[4]:
        return str(network.network_address)
    return str(network)


def _is_ipv4(host: str) -> bool:
    """Return whether ``host`` is an IPv4 address in the form in which ``ipaddress`` writes it."""
    parts = host.split(".")
    for part in parts:
        if part not in _OCTETS:
            return False
    return len(parts) == 4


def _source(address: IPAddress) -> IPNetwork:
    return ipaddress.ip_network((str(address), _SOURCE_BITS[address.version]), strict=False)
