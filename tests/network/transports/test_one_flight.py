"""A device that says all it has to say at once, and is gone: over every transport it is heard.

TLS and WebSocket have a goodbye of their own, which comes in the same read as what stands before
it: the socket is gone while the password is still being checked.
"""

import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import urlsplit

import pytest
from argon2 import PasswordHasher
from wsproto.events import CloseConnection

from penstock.auth.files import write_passwords
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Disconnect, Publish
from tests.network.transports.conftest import TRANSPORTS, Transports, listeners
from tests.support.deadline import DEADLINE_S
from tests.support.dial import Authority, WebSocket
from tests.support.fixtures import VERSIONS, running_broker

SLOW: Final = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=1)
PASSWORD: Final = b"secret"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transports]:
    """A broker that checks every password anew, on every transport."""
    directory = tmp_path_factory.mktemp("guarded")
    authority = Authority(directory)
    users = directory / "users"
    write_passwords(users, {"device": SLOW.hash(PASSWORD)})
    settings = {
        "access.password_file": users,
        "access.verified_s": 0,
        "listener.connect_timeout_s": DEADLINE_S,
        "listener.allow_anonymous": "true",
        "listener.others": json.dumps(
            [{**other, "allow_anonymous": True} for other in listeners(directory, authority)]
        ),
    }
    with running_broker(directory, settings, persistence="memory") as broker:
        yield Transports(broker, authority, dict(zip(TRANSPORTS, broker.urls, strict=True)))


@final
@dataclass
class Flight:
    """A stream that can hold back what is sent, and sends it in one piece."""

    plain: socket.socket
    tls: ssl.SSLObject | None = None
    incoming: ssl.MemoryBIO | None = None
    outgoing: ssl.MemoryBIO | None = None
    is_held: bool = False
    held: bytes = b""

    def sendall(self, data: bytes, /) -> None:
        if self.tls is not None:
            self.tls.write(data)
        else:
            self.held += data
        self._send()

    def recv(self, size: int, /) -> bytes:
        if self.tls is None:
            return self.plain.recv(size)
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLWantReadError:
                self._take()

    def settimeout(self, value: float | None, /) -> None:
        self.plain.settimeout(value)

    def close(self) -> None:
        """TLS says goodbye; everything held leaves, and the end with it."""
        if self.tls is not None:
            with pytest.raises(ssl.SSLWantReadError):  # it would wait for the other's goodbye
                self.tls.unwrap()
        self.is_held = False
        self._send()
        self.plain.close()

    def shake_hands(self) -> None:
        while self.tls is not None:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send()
                self._take()
        self._send()

    def _send(self) -> None:
        if self.outgoing is not None:
            self.held += self.outgoing.read()
        if not self.is_held and self.held:
            self.plain.sendall(self.held)
            self.held = b""

    def _take(self) -> None:
        assert self.incoming is not None
        self.incoming.write(self.plain.recv(65_536))


def begin(url: str, context: ssl.SSLContext) -> Flight:
    """A connection that stands: TCP's and TLS's handshakes are done."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        plain = socket.socket(socket.AF_UNIX)
        plain.connect(parts.path)
    else:
        assert parts.hostname is not None
        assert parts.port is not None
        plain = socket.create_connection((parts.hostname, parts.port))
    plain.settimeout(DEADLINE_S)
    flight = Flight(plain)
    if parts.scheme in ("mqtts", "wss"):
        flight.incoming, flight.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        flight.tls = context.wrap_bio(flight.incoming, flight.outgoing, server_hostname="localhost")
    flight.shake_hands()
    return flight


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_of_one_flight_arrives(
    guarded: Transports, transport: str, version: int, name: str
) -> None:
    url = guarded.urls[transport]
    flight = begin(url, guarded.authority.client_context())
    packets = [
        Connect(name, version, True, 0, username="device", password=PASSWORD),
        *(Publish(f"{name}/{number}", b"reading") for number in range(3)),
        Disconnect(),
    ]
    data = b"".join(encode(packet, version) for packet in packets)
    if url.startswith("ws"):
        web = WebSocket(flight, urlsplit(url).path)
        flight.is_held = True
        web.sendall(data)
        web.send(CloseConnection(1000))
    else:
        flight.is_held = True
        flight.sendall(data)
    with guarded.join("tcp", f"{name}-watcher") as watcher:
        watcher.subscribe(f"{name}/#")
        flight.close()
        arrived = [watcher.expect(Publish).topic for _ in range(3)]
    assert arrived == [f"{name}/{number}" for number in range(3)]
