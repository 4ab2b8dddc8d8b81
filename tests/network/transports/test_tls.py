"""TLS: versions, names, client certificates, and certificates read again at SIGHUP."""

import contextlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Pingreq, Pingresp, Publish
from tests.network.transports.conftest import Transports
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.dial import Authority, dial
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient

_CONNECT = encode(Connect("abc", V5), V5)

Start = Callable[..., Broker]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def start(tmp_path: Path, authority: Authority) -> Iterator[Callable[..., Broker]]:
    """Start a broker whose only listener is TLS with these settings."""
    running = []

    def start(**settings: Any) -> Broker:
        certificate, key = authority.issue("server", "localhost")
        listener = {
            "name": "tls",
            "kind": "tls",
            "bind": "127.0.0.1:0",
            "certificate": certificate,
            "key": key,
            **settings,
        }
        broker = running_broker(
            tmp_path, {"listener.others": json.dumps([listener])}, persistence="memory"
        )
        running.append(broker)
        return broker.__enter__()

    yield start
    for broker in running:
        broker.__exit__(None, None, None)


def joined(broker: Broker, name: str, context: ssl.SSLContext, host: str = "localhost") -> str:
    """Connect, publish and leave; the common name or first host of the server's certificate."""
    stream = dial(broker.urls[1], context, host)
    assert isinstance(stream, ssl.SSLSocket)
    certificate = stream.getpeercert()
    assert certificate is not None
    with RawClient(("", 0), 5, stream) as client:
        assert client.connect(name).reason_code == 0
        client.publish(f"{name}/t", b"x", 1)
    names: Any = certificate["subjectAltName"]
    return str(names[0][1])


def serial(broker: Broker, context: ssl.SSLContext) -> str:
    """The serial number of the certificate a new connection is shown."""
    stream = dial(broker.urls[1], context)
    assert isinstance(stream, ssl.SSLSocket)
    certificate = stream.getpeercert()
    stream.close()
    assert certificate is not None
    return str(certificate["serialNumber"])


def is_refused(broker: Broker, context: ssl.SSLContext) -> bool:
    """Whether the broker ends the connection in its handshake, or (TLS 1.3) right after it."""
    try:
        with closing(dial(broker.urls[1], context)) as stream:
            stream.sendall(_CONNECT)
            return stream.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_versions_from_1_2_on(transports: Transports, name: str) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = transports.authority.client_context()
        context.minimum_version = context.maximum_version = version
        stream = dial(transports.urls["tls"], context)
        with RawClient(("", 0), 5, stream) as client:
            assert client.connect(name).reason_code == 0
    old = transports.authority.client_context()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        dial(transports.urls["tls"], old)


def test_a_client_that_speaks_no_tls_is_closed(transports: Transports, name: str) -> None:
    place = transports.urls["tls"].partition("//")[2]
    with RawClient(("", 0), 5, dial(f"mqtt://{place}")) as client:
        client.send_bytes(_CONNECT)
        assert client.has_ended(DEADLINE_S)
    with transports.join("tls", name):
        pass


def test_the_certificate_is_that_of_the_host_asked_for(start: Start, authority: Authority) -> None:
    plant = authority.issue("plant", "plant.example")
    broker = start(sni={"Plant.Example": {"certificate": plant[0], "key": plant[1]}})
    context = authority.client_context()
    assert joined(broker, "a", context) == "localhost"
    assert joined(broker, "b", context, "plant.example") == "plant.example"
    with pytest.raises(ssl.SSLCertVerificationError):
        joined(broker, "c", context, "unknown.example")


def test_a_required_client_certificate(start: Start, authority: Authority, tmp_path: Path) -> None:
    broker = start(client_ca=authority.file, require_client_certificate=True)
    own = authority.issue("meter", "meter.example", common_name="meter-7")
    joined(broker, "m", authority.client_context(own))
    assert is_refused(broker, authority.client_context())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stranger = Authority(elsewhere).issue("stranger", "meter.example", common_name="meter-7")
    assert is_refused(broker, authority.client_context(stranger))


def test_an_optional_client_certificate(start: Start, authority: Authority) -> None:
    broker = start(client_ca=authority.file)
    joined(broker, "a", authority.client_context())
    joined(broker, "b", authority.client_context(authority.issue("meter", "meter.example")))


def test_certificates_are_read_again_at_sighup(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    """Connections that stand stay as they are; wrong files change nothing."""
    certificate, key = tmp_path / "c.pem", tmp_path / "c.key"

    def install(name: str) -> None:
        for source, target in zip(
            authority.issue(name, "localhost"), (certificate, key), strict=True
        ):
            shutil.copy(source, target)

    install("first")
    broker = start(certificate=str(certificate), key=str(key))
    context = authority.client_context()
    first = serial(broker, context)
    with RawClient(("", 0), 5, dial(broker.urls[1], context)) as client:
        client.connect("stays")

        certificate.write_text("no certificate")
        broker.process.send_signal(signal.SIGHUP)
        wait_for("the complaint", lambda: "SIGHUP: nothing was changed" in broker.log())
        assert serial(broker, context) == first

        install("second")
        broker.process.send_signal(signal.SIGHUP)
        wait_for("the new certificate", lambda: serial(broker, context) != first)
        client.send(Pingreq())
        assert client.receive() == Pingresp()


def test_a_handshake_that_never_comes_is_cut(start: Start) -> None:
    broker = start(connect_timeout_s=0.5)
    place = broker.urls[1].partition("//")[2]
    with RawClient(("", 0), 5, dial(f"mqtt://{place}")) as client:
        client.expect_end()
    with RawClient(("", 0), 5, dial(f"mqtt://{place}")) as client:
        client.send_bytes(bytes.fromhex("16 03 01 02 00 01 00"))
        client.expect_end()


def test_connect_that_never_comes_after_the_handshake_is_cut(
    start: Start, authority: Authority
) -> None:
    broker = start(connect_timeout_s=0.5)
    with RawClient(("", 0), 5, dial(broker.urls[1], authority.client_context())) as client:
        client.expect_end()


def test_a_client_that_drops_in_the_handshake_disturbs_nobody(
    start: Start, authority: Authority
) -> None:
    broker = start(max_connections=3)
    host, port = broker.urls[1].partition("//")[2].split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port))) as stream:
            stream.sendall(bytes.fromhex("16 03 01 02 00 01 00"))
    wait_for("room", lambda: not is_refused(broker, authority.client_context()))


def test_data_behind_the_end_of_the_handshake_is_not_lost(
    start: Start, authority: Authority
) -> None:
    """The client's last flight, CONNECT and half a megabyte behind it, in one write."""
    broker = start()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = authority.client_context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    host, port = broker.urls[1].removeprefix("mqtts://").split(":")
    with socket.create_connection((host, int(port)), 10) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(65_536))
        tls.write(_CONNECT)
        for number in range(1, 9):
            tls.write(encode(Publish("t", bytes(65_000), 1, packet_id=number), V5))
        tls.write(encode(Pingreq(), V5))
        plain.sendall(outgoing.read())
        received = b""
        while encode(Pingresp(), V5) not in received:
            incoming.write(plain.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    received += tls.read(65_536)
        assert received.startswith(b"\x20")


def test_a_client_that_leaves_after_the_handshake_leaves_its_place(
    start: Start, authority: Authority
) -> None:
    broker = start(max_connections=1)
    context = authority.client_context()
    for _ in range(10):
        wait_for("its place", lambda: stands(broker, context))


def stands(broker: Broker, context: ssl.SSLContext) -> bool:
    """Whether a connection gets through its handshake; it is left at once."""
    try:
        dial(broker.urls[1], context).close()
    except OSError:
        return False
    return True


def refused_with(broker: Broker, context: ssl.SSLContext) -> str:
    """The alert a client reads whose handshake the broker ends, in OpenSSL's words."""
    try:
        with closing(dial(broker.urls[1], context)) as stream:
            stream.sendall(_CONNECT)
            stream.recv(1)
    except ssl.SSLError as error:
        return str(error.reason)
    return ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_failed_handshake_says_why(
    start: Start, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """RFC 8446 §6.2: expired, signed by nobody known, or none at all."""
    broker = start(client_ca=authority.file, require_client_certificate=True)

    def context(own: tuple[str, str] | None) -> ssl.SSLContext:
        made = authority.client_context(own)
        made.minimum_version = made.maximum_version = version
        return made

    expired = authority.issue("old", "meter.example", expired=True)
    assert refused_with(broker, context(expired)) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"
    stranger = Authority(tmp_path).issue("stranger", "meter.example")
    assert refused_with(broker, context(stranger)) == "TLSV1_ALERT_UNKNOWN_CA"
    missing = refused_with(broker, context(None))
    assert missing in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
    said = "INFO transport.refusals: listener tls: 127.0.0.1:"
    expiry = "did not get through: certificate has expired (CERTIFICATE_VERIFY_FAILED)"
    wait_for("the reason in the log", lambda: said in broker.log() and expiry in broker.log())
    joined(broker, "good", authority.client_context(authority.issue("m", "meter.example")))


def test_a_version_that_is_too_old_gets_its_alert(start: Start) -> None:
    """A ClientHello of TLS 1.0, in OpenSSL's own client: alert 70, protocol_version."""
    broker = start()
    place = broker.urls[1].removeprefix("mqtts://")
    asked = subprocess.run(
        ["openssl", "s_client", "-connect", place, "-tls1", "-cipher", "DEFAULT:@SECLEVEL=0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "alert protocol version" in asked.stderr


def test_a_revoked_certificate_is_refused(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    """By its alert; a list that is replaced on disk counts without SIGHUP."""
    good = authority.issue("good", "good.example")
    stolen = authority.issue("stolen", "stolen.example")
    crl = tmp_path / "revoked.pem"
    authority.revoke(crl)
    broker = start(
        client_ca=authority.file,
        require_client_certificate=True,
        crl=str(crl),
        certificates_check_s=0.1,
    )
    joined(broker, "stolen", authority.client_context(stolen))
    authority.revoke(crl, stolen[0])
    wait_for(
        "the alert",
        lambda: (
            refused_with(broker, authority.client_context(stolen))
            == "SSLV3_ALERT_CERTIFICATE_REVOKED"
        ),
    )
    joined(broker, "good", authority.client_context(good))
    crl.write_text("no list")
    wait_for("the complaint", lambda: "stay in use" in broker.log())
    assert refused_with(broker, authority.client_context(stolen))
    joined(broker, "good", authority.client_context(good))
    assert broker.log().count("stay in use") == 1


def test_a_certificate_that_changes_on_disk_is_read(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "c.key"

    def install(name: str) -> None:
        for source, target in zip(
            authority.issue(name, "localhost"), (certificate, key), strict=True
        ):
            shutil.copy(source, target)

    install("one")
    broker = start(certificate=str(certificate), key=str(key), certificates_check_s=0.1)
    context = authority.client_context()
    first = serial(broker, context)
    install("two")
    wait_for("the new certificate", lambda: serial(broker, context) != first)


@pytest.mark.parametrize("kind", ["common_name", "subject"])
def test_the_certificate_names_the_user(tmp_path: Path, authority: Authority, kind: str) -> None:
    """Its access list applies, CONNECT may say what it likes, and no password is needed."""
    own = authority.issue("meter", "meter.example", common_name="meter-7")
    subject = x509.load_pem_x509_certificate(Path(own[0]).read_bytes()).subject
    user = "meter-7" if kind == "common_name" else subject.rfc4514_string()
    acl = tmp_path / "acl"
    acl.write_text(f"user {user}\ntopic write own/#\n")
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    certificate, key = authority.issue("server", "localhost")
    listener = {
        "name": "tls",
        "kind": "tls",
        "bind": "127.0.0.1:0",
        "certificate": certificate,
        "key": key,
        "client_ca": authority.file,
    }
    settings = {
        "listener.others": json.dumps([listener]),
        "access.identity_from_certificate": kind,
        "access.acl_file": acl,
        "access.password_file": passwords,
    }
    nameless = authority.issue("nameless", "nameless.example")
    with running_broker(tmp_path, settings, persistence="memory") as broker:
        stream = dial(broker.urls[1], authority.client_context(own))
        with RawClient(("", 0), V5, stream) as client:
            client.send(Connect("m", V5, username="another", password=b"wrong"))
            answer = client.receive()
            assert isinstance(answer, Connack)
            assert answer.reason_code == 0
            assert client.publish("own/t", b"x", 1) in (0, 0x10)
            assert client.publish("others/t", b"x", 1) == 0x87
        if kind == "common_name":
            stream = dial(broker.urls[1], authority.client_context(nameless))
            with RawClient(("", 0), V5, stream) as client:
                assert client.connect("n").reason_code == 0x87
        stream = dial(broker.urls[1], authority.client_context())
        with RawClient(("", 0), V5, stream) as client:
            assert client.connect("without").reason_code == 0x87


def test_an_expired_certificate_is_told_at_the_start_and_at_a_reload(
    start: Start, authority: Authority
) -> None:
    """It was loaded without a word, and every client that checks it was out."""
    certificate, key = authority.issue("expired", "localhost", expired=True)
    broker = start(certificate=certificate, key=key, certificates_check_s=0)
    told = f"ERROR services.certificates: listener tls: the certificate {certificate}"
    assert broker.log().count(told) == 1, broker.log()
    broker.process.send_signal(signal.SIGHUP)
    wait_for("the certificate told again", lambda: broker.log().count(told) == 2)
    renewed, new_key = authority.issue("renewed", "localhost")
    shutil.copy(new_key, key)
    shutil.copy(renewed, certificate)
    broker.process.send_signal(signal.SIGHUP)
    wait_for("the reload", lambda: broker.log().count("settings changed") == 2)
    assert broker.log().count(told) == 2
