"""A socket to a remote broker: TCP, or TLS over it."""

from __future__ import annotations

import asyncio
import ssl

from penstock.config.bridge import Remote, parse_remote
from penstock.errors import ConfigError
from penstock.transport.api import Accept
from penstock.transport.socket_wire import SocketWire


def context_of(remote: Remote) -> ssl.SSLContext | None:
    """The TLS context of a bridge; None where no address needs one.

    Raises:
        ConfigError: a file cannot be read, or is none of its kind.
    """
    if not remote.is_encrypted:
        return None
    try:
        context = ssl.create_default_context(cafile=remote.ca or None)
        context.check_hostname = remote.check_host_name
        if remote.certificate:
            context.load_cert_chain(remote.certificate, remote.key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(name for name in (remote.ca, remote.certificate, remote.key) if name)
        raise ConfigError(
            f"bridge {remote.name!r}: {files} cannot be used for TLS: {error}"
        ) from error
    return context


def _no_password() -> str:
    """Instead of a question on the terminal."""
    raise OSError("the private key has a password; give one without")


async def dial(
    url: str, remote: Remote, context: ssl.SSLContext | None, accept: Accept, buffer_bytes: int
) -> None:
    """Connect to ``url``; ``accept`` gets the wire.

    Raises:
        OSError: nobody is there, TLS failed, or it took longer than ``connect_timeout_s``.
        ValueError: the host name is none.
    """
    address, is_encrypted = parse_remote(url)
    loop = asyncio.get_running_loop()

    def made() -> SocketWire:
        return SocketWire(url, f"bridge {remote.name}", accept, None, buffer_bytes)

    async with asyncio.timeout(remote.connect_timeout_s):
        await loop.create_connection(
            made,
            address.host,
            address.port,
            ssl=context if is_encrypted else None,
            server_hostname=address.host if is_encrypted else None,
        )
