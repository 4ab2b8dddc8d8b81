"""Check that other machines can reach the addresses that a cluster member advertises. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from penstock.config.address import Address, SocketFile
from penstock.config.settings import Settings
from penstock.engine.values.addresses import ip_of


def address_problems(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each advertised address that other members cannot use."""
    cluster = settings.cluster
    is_trial = all(_is_loopback(urlsplit(url).hostname or "") for url in cluster.log)
    for name, advertised, bind_name, bind, consequence in (
        (
            "cluster.advertise",
            cluster.advertise,
            "listener.bind",
            settings.listener.bind,
            "clients of the other machines are not told where this one is while it is the primary",
        ),
        (
            "cluster.stream_advertise",
            cluster.stream_advertise,
            "stream.bind",
            settings.stream.bind if settings.stream.enabled else "",
            "no other machine can take a copy of this one's store when it is too far behind",
        ),
    ):
        address = advertised or bind
        reason = _why_unusable(address, is_trial)
        if reason:
            source = name if advertised else f"{name} is empty, and {bind_name}"
            yield (
                f"{source} is {address}, {reason}: {consequence}; set {name} to HOST:PORT of this"
                " machine"
            )


def _why_unusable(address: Address | SocketFile | str, is_trial: bool) -> str:
    """Return why other machines cannot use an address; empty where they can.

    In a trial, a cluster whose members all run on one machine, loopback addresses are usable.
    """
    if not isinstance(address, Address):
        return "a file of this machine" if address else ""
    ip = ip_of(address.host)
    if ip is not None and ip.is_unspecified:
        return "which stands for all addresses"
    if not is_trial and _is_loopback(address.host):
        return "which only this machine reaches"
    return ""


def _is_loopback(host: str) -> bool:
    address = ip_of(host)
    return host == "localhost" if address is None else address.is_loopback
