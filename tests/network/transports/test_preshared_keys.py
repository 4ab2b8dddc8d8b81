"""Listeners with pre-shared keys (TLS-PSK): our clients, Mosquitto's, and unknown keys."""

import contextlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import BlockingClient, TlsFiles
from penstock.errors import ConnectFailed
from penstock.transport.preshared_keys import is_available
from tests.interop import mosquitto
from tests.support.broker import Broker
from tests.support.commands import run
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.dial import Authority
from tests.support.fixtures import running_broker

pytestmark = pytest.mark.skipif(
    not is_available(), reason="this Python's ssl has no pre-shared keys; 3.13 has them"
)

KEY, OTHER = "ab" * 32, "cd" * 16


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(f"# meters\nmeter-7:{KEY}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def broker(tmp_path: Path, keys: Path) -> Iterator[Broker]:
    """A broker whose second listener has pre-shared keys, which are the users."""
    listener = {
        "name": "psk",
        "kind": "tls",
        "bind": "127.0.0.1:0",
        "psk_file": str(keys),
        "certificates_check_s": 0.1,
    }
    settings = {
        "listener.others": json.dumps([listener]),
        "access.identity_from_certificate": "common_name",
    }
    with running_broker(tmp_path, settings, persistence="memory") as started:
        yield started


def published(broker: Broker, identity: str, key: str) -> None:
    """Connect with this key, and publish with QoS 1."""
    tls = TlsFiles(psk_identity=identity, psk=key)
    with BlockingClient(broker.urls[1], tls=tls, connect_timeout_s=DEADLINE_S) as client:
        client.publish("t", b"x", qos=1)


def test_the_identity_of_the_key_is_the_user(broker: Broker) -> None:
    published(broker, "meter-7", KEY)
    wait_until_logged(broker, ": user meter-7, listener psk")


@pytest.mark.parametrize(("identity", "key"), [("meter-7", OTHER), ("meter-8", KEY)])
def test_another_key_or_identity_is_refused(broker: Broker, identity: str, key: str) -> None:
    with pytest.raises(ConnectFailed):
        published(broker, identity, key)
    published(broker, "meter-7", KEY)


def test_a_client_that_wants_certificates_is_refused(broker: Broker) -> None:
    with pytest.raises(ConnectFailed), BlockingClient(broker.urls[1], tls=TlsFiles()):
        pass


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_has_a_certificate_and_not_the_key_is_refused(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Of TLS 1.3 a server may leave the key aside, and show any certificate; here one that the
    system trusts."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", "127.0.0.1"))
    context.minimum_version = context.maximum_version = version
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = listening.accept()
        connection.settimeout(DEADLINE_S)
        with (
            connection,
            contextlib.suppress(OSError),
            context.wrap_socket(connection, server_side=True) as encrypted,
        ):
            heard.append(encrypted.recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", authority.file)
        serving = threading.Thread(target=serve)
        serving.start()
        port = listening.getsockname()[1]
        tls = TlsFiles(psk_identity="meter-7", psk=KEY)
        url = f"mqtts://127.0.0.1:{port}"
        with pytest.raises(ConnectFailed), BlockingClient(url, tls=tls, password="unseen"):
            pass
        serving.join(DEADLINE_S)
    assert [data for data in heard if data] == []


def test_a_file_that_changes_is_read_again(broker: Broker, keys: Path) -> None:
    keys.write_text(f"meter-8:{OTHER}\n")

    def is_read() -> bool:
        try:
            published(broker, "meter-8", OTHER)
        except ConnectFailed:
            return False
        return True

    wait_for("the new keys", is_read)
    with pytest.raises(ConnectFailed):
        published(broker, "meter-7", KEY)


def test_the_command_line_has_mosquittos_options(broker: Broker) -> None:
    port = broker.urls[1].rpartition(":")[2]
    words = ["-h", "localhost", "-p", port, "-t", "t", "-q", "1", "-m", "x"]
    assert run("pub", *words, "--psk", KEY, "--psk-identity", "meter-7") == (0, b"", b"")
    for identity, key in (("meter-7", OTHER), ("meter-8", KEY)):
        code, _, told = run("pub", *words, "--psk", key, "--psk-identity", identity)
        assert (code, told.count(b"\n")) == (1, 1)
        assert b"--psk and --psk-identity must be a line of the listener's psk_file" in told


@mosquitto.needed
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_mosquitto_pub_gets_in(broker: Broker, version: ssl.TLSVersion) -> None:
    name = "tlsv1.2" if version == ssl.TLSVersion.TLSv1_2 else "tlsv1.3"
    port = broker.urls[1].rpartition(":")[2]
    words = ["mosquitto_pub", "-h", "127.0.0.1", "-p", port, "-t", "t", "-q", "1", "-m", "x"]
    words += ["--psk", KEY, "--psk-identity", "meter-7", "--tls-version", name]
    done = subprocess.run(words, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
