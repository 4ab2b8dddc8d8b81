"""Connections to a broker over each of its transports, all with the face of a socket.

A listener is named by its URL, as the broker prints it when it is ready::

    mqtt://127.0.0.1:1883   mqtts://…   ws://127.0.0.1:8083/mqtt   wss://…   unix:///run/mqtt.sock
"""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    Request,
)

from tests.support.deadline import DEADLINE_S
from tests.support.raw_client import ByteStream, connect

_READ_BYTES: Final = 65_536


@final
class Authority:
    """A certificate authority of one test run, and its files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self.file = str(directory / "authority.pem")
        self._authority.cert_pem.write_to_path(self.file)

    def issue(
        self, name: str, *hosts: str, common_name: str | None = None, expired: bool = False
    ) -> tuple[str, str]:
        """Write NAME.pem and NAME.key for these hosts; the two paths."""
        leaf = self._authority.issue_cert(
            *hosts,
            common_name=common_name,
            organization_name="Example, Ltd.",
            organization_unit_name="plant",
            not_before=datetime(2020, 1, 1, tzinfo=UTC),
            not_after=datetime(2020, 2, 1, tzinfo=UTC) if expired else None,
        )
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(key))
        return str(certificate), str(key)

    def revoke(self, file: Path, *certificates: str) -> None:
        """Write the list of revoked certificates, given by their PEM files."""
        now = datetime.now(UTC)
        issuer = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(now - timedelta(days=1))
            .next_update(now + timedelta(days=1))
        )
        for path in certificates:
            found = x509.load_pem_x509_certificate(Path(path).read_bytes())
            revoked = x509.RevokedCertificateBuilder().serial_number(found.serial_number)
            builder = builder.add_revoked_certificate(revoked.revocation_date(now).build())
        file.write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))

    def client_context(self, own: tuple[str, str] | None = None) -> ssl.SSLContext:
        """What a client needs that believes this authority, with its own certificate if given."""
        context = ssl.create_default_context(cafile=self.file)
        if own is not None:
            context.load_cert_chain(*own)
        return context


class UpgradeRefusedError(AssertionError):
    """The broker answered the upgrade with another status code."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"status code {status_code}")
        self.status_code = status_code


@final
class WebSocket:
    """The client side of a WebSocket, as a stream of bytes.

    Args:
        stream: below it.
        path: asked for.
        subprotocols: offered.
        frame_bytes_max: longer data is sent in several frames.
        headers: sent beside.
    """

    def __init__(
        self,
        stream: ByteStream,
        path: str = "/mqtt",
        subprotocols: tuple[str, ...] = ("mqtt",),
        frame_bytes_max: int = _READ_BYTES,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.subprotocol: str | None = None
        self.closed_with: int | None = None
        self.extensions: list[object] = []
        self.pongs: list[bytes] = []
        self.pings = 0  # received
        self.frames: list[bytes] = []  # received
        self._stream = stream
        self._frame_bytes_max = frame_bytes_max
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._received = b""
        self.send(
            Request(
                host="localhost",
                target=path,
                subprotocols=list(subprotocols),
                extra_headers=list(headers),
            )
        )
        while self.subprotocol is None:
            self.read()

    def send(self, event: Event) -> None:
        """Send one frame or the upgrade."""
        self._stream.sendall(self._protocol.send(event))

    def sendall(self, data: bytes, /) -> None:
        """Send bytes in binary frames."""
        size = self._frame_bytes_max
        for start in range(0, len(data), size):
            self.send(BytesMessage(data=data[start : start + size]))

    def recv(self, size: int, /) -> bytes:
        """Bytes of the next frames; none at the end."""
        while not self._received and self.closed_with is None:
            if not self.read():
                break
        found, self._received = self._received[:size], self._received[size:]
        return found

    def settimeout(self, value: float | None, /) -> None:
        """As for a socket."""
        self._stream.settimeout(value)

    def close(self) -> None:
        """Without a close frame."""
        self._stream.close()

    def read(self) -> bool:
        """Take what comes next; False at the end of the stream."""
        data = self._stream.recv(_READ_BYTES)
        if not data:
            return False
        self._protocol.receive_data(data)
        for event in self._protocol.events():
            if isinstance(event, AcceptConnection):
                self.subprotocol = event.subprotocol or ""
                self.extensions = list(event.extensions)
            elif isinstance(event, RejectConnection):
                self.close()
                raise UpgradeRefusedError(event.status_code)
            elif isinstance(event, BytesMessage):
                self._received += bytes(event.data)
                self.frames.append(bytes(event.data))
            elif isinstance(event, Pong):
                self.pongs.append(bytes(event.payload))
            elif isinstance(event, Ping):
                self.pings += 1
                self.send(event.response())
            elif isinstance(event, CloseConnection):
                self.closed_with = event.code
        return True


def dial(url: str, context: ssl.SSLContext | None = None, host: str = "localhost") -> ByteStream:
    """A connection over the transport that the URL names; ``host`` is asked for by TLS."""
    stream, path = dial_stream(url, context, host)
    return WebSocket(stream, path) if url.startswith("ws") else stream


def dial_stream(
    url: str, context: ssl.SSLContext | None = None, host: str = "localhost"
) -> tuple[socket.socket, str]:
    """The stream below, and the path of the URL."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(DEADLINE_S)
        plain.connect(parts.path)
        return plain, ""
    assert parts.hostname is not None
    assert parts.port is not None
    stream = connect((parts.hostname, parts.port))
    if parts.scheme in ("mqtts", "wss"):
        assert context is not None
        return context.wrap_socket(stream, server_hostname=host), parts.path
    return stream, parts.path
