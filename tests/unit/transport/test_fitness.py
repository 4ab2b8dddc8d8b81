"""Certificates are judged by their dates and names."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from penstock.transport.fitness import WARNING_S, Fitness, Judgement, Use, judge, read
from tests.support.dial import Authority

DAY_S = 86_400.0
_USE = Use("listener", "main", "server", "/etc/server.pem")


def judged(now_s: float, use: Use = _USE, *names: str) -> Judgement:
    return judge(Fitness(use, 100 * DAY_S, 500 * DAY_S, names or ("a.example",)), now_s)


@pytest.mark.parametrize(
    ("now_s", "severity", "words"),
    [
        (99 * DAY_S, "error", "not valid before 1970-04-11 00:00 UTC: clients that check it"),
        (100 * DAY_S, "ok", "valid until 1971-05-16"),
        (500 * DAY_S - WARNING_S, "ok", "valid until"),
        (500 * DAY_S - WARNING_S + 1, "warning", "in 29 days"),
        (499 * DAY_S, "warning", "in 1 day:"),
        (500 * DAY_S - 60, "warning", "in less than a day:"),
        (500 * DAY_S, "error", "expired on 1971-05-16 00:00 UTC"),
    ],
)
def test_a_certificate_is_judged_by_its_dates(now_s: float, severity: str, words: str) -> None:
    found = judged(now_s)
    assert (found.severity, words in found.sentence) == (severity, True), found
    assert found.sentence.startswith("listener main: the certificate /etc/server.pem ")


@pytest.mark.parametrize(
    ("name", "host", "fits"),
    [
        ("mqtt.example", "MQTT.example.", True),
        ("*.example", "mqtt.example", True),
        ("*.example", "a.mqtt.example", False),
        ("*.example", "example", False),
        ("*", "example", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_a_certificate_is_judged_by_the_host_it_names(name: str, host: str, fits: bool) -> None:
    found = judged(200 * DAY_S, _USE._replace(hosts=(host,)), name)
    assert found.severity == ("ok" if fits else "warning")
    assert fits or f"is for {name} and not for {host}" in found.sentence


def test_an_expired_certificate_and_a_good_one_are_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    old, _ = authority.issue("old", "localhost", expired=True)
    new, _ = authority.issue("new", "localhost", "127.0.0.1")
    now_s = 1_800_000_000.0
    assert judge(read(_USE._replace(file=old)), now_s).severity == "error"
    found = read(_USE._replace(file=new, hosts=("localhost", "127.0.0.1")))
    assert judge(found, now_s).severity == "ok"
    client_ca = Use("listener", "main", "authorities", authority.file)
    assert judge(read(client_ca), now_s).severity == "ok"


def test_a_revocation_list_that_ended_is_told(tmp_path: Path) -> None:
    """All clients are refused from then on."""
    authority = Authority(tmp_path)
    lists = tmp_path / "revoked.pem"
    authority.revoke(lists)
    found = read(Use("listener", "main", "revocations", str(lists)))
    assert not found.mistake
    assert judge(found, found.ends_s).severity == "error"
    assert "all client certificates are refused" in judge(found, found.ends_s).sentence


def test_a_file_that_cannot_be_examined_is_told(tmp_path: Path) -> None:
    file = tmp_path / "nothing.pem"
    for use in (_USE._replace(file=str(file)), _USE._replace(file=str(file), kind="revocations")):
        file.unlink(missing_ok=True)
        assert judge(read(use), 0).severity == "warning"
        file.write_text("no certificate")
        assert judge(read(use), 0).severity == "warning"


def test_a_certificate_that_only_openssl_reads_stops_no_start(tmp_path: Path) -> None:
    """TLS loads one of an unknown version; the library that reads it raises an error of its own."""
    certificate, key = Authority(tmp_path).issue("server", "localhost")
    of_version_3 = ssl.PEM_cert_to_DER_cert(
        x509.load_pem_x509_certificate(Path(certificate).read_bytes())
        .public_bytes(Encoding.PEM)
        .decode()
    )
    of_version_6 = of_version_3.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020105"), 1)
    assert of_version_6 != of_version_3
    Path(certificate).write_text(ssl.DER_cert_to_PEM_cert(of_version_6))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    assert judge(read(_USE._replace(file=certificate)), 0).severity == "warning"
