"""What a client program advises about a certificate, by what TLS says of it."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import client_program
from penstock.cli.main import app
from tests.support.deadline import DEADLINE_S
from tests.support.dial import Authority


@contextlib.contextmanager
def tls_server(certificate: str, key: str, *, client_ca: str = "") -> Iterator[int]:
    """Handshake with whoever connects, and close; yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if client_ca:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet(connection: socket.socket) -> None:
            try:
                encrypted = context.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            except OSError:
                return
            with encrypted:
                with contextlib.suppress(OSError):
                    encrypted.do_handshake()
                    encrypted.recv(1000)
                # What the client has sent already must be read: else its kernel throws away the
                # alert that says why, when this end resets the connection.
                with contextlib.suppress(OSError):
                    encrypted.shutdown(socket.SHUT_WR)
                    while socket.socket.recv(encrypted, 1000):
                        pass

        def serve() -> None:
            with contextlib.suppress(OSError):  # the end of the test
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.settimeout(DEADLINE_S)
                        greet(connection)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join(DEADLINE_S)


@pytest.fixture(autouse=True)
def logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands set up the logs of their process, here that of all tests behind this one."""
    monkeypatch.setattr(client_program, "configure_logs", lambda _level: None)


@pytest.mark.parametrize(
    ("case", "advice"),
    [
        ("expired", "the server needs a new certificate, or the clock of this machine is wrong"),
        ("another name", "-h must be a name that the certificate has"),
        ("another authority", "--cafile names the authorities to trust"),
        ("client's own", "--cert and --key name a certificate that the server accepts"),
    ],
)
def test_the_remedy_is_for_what_is_wrong(tmp_path: Path, case: str, advice: str) -> None:
    """Of a server's certificate that had expired it was to name authorities."""
    authority = Authority(tmp_path)
    host = "elsewhere.example" if case == "another name" else "127.0.0.1"
    certificate, key = authority.issue("server", host, expired=case == "expired")
    trusted = authority.file
    if case == "another authority":
        (tmp_path / "other").mkdir()
        trusted = Authority(tmp_path / "other").file
    client_ca = authority.file if case == "client's own" else ""
    with tls_server(certificate, key, client_ca=client_ca) as port:
        words = ["pub", "-h", "127.0.0.1", "-p", str(port), "--cafile", trusted, "-t", "a", "-n"]
        done = CliRunner().invoke(app, words)
    assert str(done.exception).endswith(f"; {advice}")
