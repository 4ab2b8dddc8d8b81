"""Dials a connection: TCP, TLS over TCP, WebSocket over either, or a Unix socket.

::

      look up, connect ─▶ TLS ─▶ upgrade to WebSocket ─▶ the wire has its endpoint
            ╰────────────────┴──────────┴── one time limit for all steps: connect_timeout_s

``happy_eyeballs`` looks up the name and connects.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Final

from penstock.config.address import SocketFile
from penstock.config.remote_url import RemoteUrl
from penstock.errors import ConfigError
from penstock.regular_file import regular
from penstock.transport.alerting import send_alerts
from penstock.transport.happy_eyeballs import connect
from penstock.transport.preshared_keys import client_context
from penstock.transport.socket_wire import DialledSocketWire, SocketWire
from penstock.transport.stream import StreamWire
from penstock.transport.tls_opening import open_tls
from penstock.transport.websocket_client import DialledWebSocket
from penstock.transport.wire import Accept

_ALPN: Final = "mqtt"  # registered for MQTT; tells servers apart that share a port


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a connection that is dialled with TLS.

    Attributes:
        ca: certificate authorities that the server's certificate must be signed by; empty takes
            those of the system.
        certificate: the client's certificate, with its intermediate certificates; empty for none.
        key: the private key of ``certificate``, without a password; empty if the file of the
            certificate contains it.
        check_host_name: refuse a server whose certificate is for another host.
        alpn: offer the protocol name ``mqtt``, which some servers on port 443 require.
        psk_identity: our identity, where a pre-shared key takes the place of all certificates.
        psk: the pre-shared key in hexadecimal digits; needs Python 3.13.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    check_host_name: bool = True
    alpn: bool = False
    psk_identity: str = ""
    psk: str = field(default="", repr=False)

    def context(self, owner: str) -> ssl.SSLContext:
        """Return a TLS context with these files.

        Args:
            owner: the owner of the files, for the error.

        Raises:
            ConfigError: a file cannot be read, or is malformed.
        """
        try:
            if self.psk or self.psk_identity:
                context = client_context(self.psk_identity, self.psk, owner)
            else:
                context = self._certificate_context()
            if self.alpn:
                context.set_alpn_protocols([_ALPN])
            send_alerts(context)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(name for name in (self.ca, self.certificate, self.key) if name)
            raise ConfigError(f"{owner}: {files} cannot be used for TLS: {error}") from error
        return context

    def _certificate_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=regular(self.ca) if self.ca else None)
        context.check_hostname = self.check_host_name
        if self.certificate:
            key = self.key or self.certificate
            context.load_cert_chain(regular(self.certificate), regular(key), password=_no_password)
        return context


def _no_password() -> str:
    """Raise instead of asking for a password on the terminal."""
    raise OSError("the private key has a password; give one without")


async def dial(
    url: RemoteUrl,
    name: str,
    context: ssl.SSLContext | None,
    accept: Accept,
    connect_timeout_s: float,
    write_buffer_bytes_max: int,
    headers: tuple[tuple[str, str], ...] = (),
) -> None:
    """Connect to ``url`` and pass the wire to ``accept``.

    Args:
        url: the server.
        name: the name of the dialling side, for logs.
        context: the TLS context; used if the URL asks for TLS.
        accept: makes the endpoint of the wire.
        connect_timeout_s: time limit of all steps together, in seconds.
        write_buffer_bytes_max: unsent bytes above which the endpoint must pause writing.
        headers: additional headers for the upgrade to WebSocket.

    Raises:
        OSError: there is no answer, TLS failed, the upgrade was refused, or it took too long.
        ValueError: the host name is malformed.
    """
    loop = asyncio.get_running_loop()
    upgrade: asyncio.Future[None] = loop.create_future()
    websocket: DialledWebSocket | None = None
    if url.is_websocket:
        websocket = DialledWebSocket(url, name, accept, upgrade, write_buffer_bytes_max, headers)

    def make_wire() -> StreamWire:
        if websocket is not None:
            return websocket
        if url.is_encrypted:
            return SocketWire(str(url), name, accept, None, write_buffer_bytes_max)
        return DialledSocketWire(str(url), name, accept, write_buffer_bytes_max)

    async with asyncio.timeout(connect_timeout_s):
        if isinstance(url.address, SocketFile):
            await loop.create_unix_connection(make_wire, url.address.path)
            return
        encryption = context if url.is_encrypted else None
        connected = await connect(url.address.host, url.address.port)
        try:
            if encryption is None:
                await loop.create_connection(make_wire, sock=connected)
            else:
                host = url.address.host
                await open_tls(connected, make_wire, encryption, connect_timeout_s, host)
        except BaseException:
            upgrade.cancel()
            connected.close()
            raise
        if websocket is not None:
            try:
                await upgrade
            except BaseException:
                websocket.abort()
                raise
