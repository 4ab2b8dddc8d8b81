"""The address a connection comes from, as far as its owner is one: what is counted together.

An IPv4 address is counted as it is. Of an IPv6 address the first 64 bits are: whoever has one has
the other 2^64 of its network too (RFC 4291 §2.5.4). An IPv4 address that is written as IPv6
(::ffff:192.0.2.7) is counted as the IPv4 address it is.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

IPV6_PREFIX_BITS: Final = 64

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def source_of(host: str, exempt: Sequence[IPNetwork] = ()) -> str | None:
    """Return the name under which connections from ``host`` are counted.

    Args:
        host: an IP address, such as 192.0.2.7 or fe80::1%eth0.
        exempt: networks whose connections are not counted.

    Returns:
        The address or the IPv6 prefix; None where it is exempt, or where ``host`` is no address.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in exempt):
        return None
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, IPV6_PREFIX_BITS), strict=False))


def host_of(peer: str) -> str:
    """Return the host of a peer's name, ``HOST:PORT`` or ``[HOST]:PORT``."""
    return peer.rpartition(":")[0].strip("[]")
