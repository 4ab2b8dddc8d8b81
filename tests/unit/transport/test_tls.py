"""What TLS says of a client, in text that cannot be misread, and mistakes in files."""

from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from penstock.config.address import Address
from penstock.config.listener import Listener
from penstock.errors import ConfigError
from penstock.transport.tls import Certificates, client_certificate
from penstock.transport.wire import ClientCertificate
from tests.support.dial import Authority


class TransportWith:
    """A transport that knows this of its peer."""

    def __init__(self, certificate: object) -> None:
        self._certificate = certificate

    def get_extra_info(self, name: str) -> object:
        return self._certificate if name == "peercert" else None


def proved(*parts: tuple[str, str]) -> ClientCertificate | None:
    transport: Any = TransportWith({"subject": tuple((part,) for part in parts)})
    return client_certificate(transport)


def test_the_subject_is_written_most_specific_first() -> None:
    assert proved(
        ("countryName", "CH"), ("organizationName", "Example"), ("commonName", "meter-7")
    ) == ClientCertificate("CN=meter-7,O=Example,C=CH", "meter-7")


def test_no_value_looks_like_two() -> None:
    found = proved(("organizationName", "x"), ("commonName", 'a,O=admin+"#'))
    assert found is not None
    assert found.subject == 'CN=a\\,O=admin\\+\\"#,O=x'
    assert found.common_name == 'a,O=admin+"#'
    edges = proved(("commonName", "#a "))
    assert edges is not None
    assert edges.subject == "CN=\\#a\\ "


def test_a_certificate_with_two_common_names_names_nobody() -> None:
    """Programs differ in which one counts, so that its signer may have meant the other."""
    found = proved(("commonName", "fleet"), ("commonName", "meter-7"))
    assert found == ClientCertificate("CN=meter-7,CN=fleet", "")


@pytest.mark.parametrize("certificate", [None, {}])
def test_without_a_certificate_nothing_is_proved(certificate: object) -> None:
    transport: Any = TransportWith(certificate)
    assert client_certificate(transport) is None


def listener(**settings: Any) -> Listener:
    return Listener(kind="tls", bind=Address("127.0.0.1", 0), **settings)


def test_mistakes_in_files_are_one_sentence(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "localhost")
    other = authority.issue("other", "localhost")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    clients = {"certificate": certificate, "key": key, "client_ca": authority.file}
    for settings, said in (
        ({"certificate": "/absent.pem", "key": key}, "No such file"),
        ({"certificate": str(junk), "key": key}, "not PEM"),
        ({"certificate": certificate, "key": other[1]}, "do not belong together"),
        ({"certificate": certificate, "key": key, "client_ca": str(junk)}, "client_ca"),
        ({"certificate": certificate, "key": key, "client_ca": "/absent"}, "No such file"),
        (clients | {"crl": str(junk)}, "crl .* not PEM"),
        (clients | {"crl": authority.file}, "it contains no revocation list"),
    ):
        with pytest.raises(ConfigError, match=said) as error:
            Certificates("outside", listener(**settings))
        assert "outside" in str(error.value)
        assert "\n" not in str(error.value)


def test_certificate_and_key_are_read_when_both_are_there(tmp_path: Path) -> None:
    """They are replaced one after the other, and do not fit in between."""
    authority = Authority(tmp_path)
    certificate, key = (Path(name) for name in authority.issue("server", "localhost"))
    later = [Path(name).read_bytes() for name in authority.issue("later", "localhost")]
    certificates = Certificates("outside", listener(certificate=str(certificate), key=str(key)))
    before = certificates.context
    assert not certificates.reload_if_changed()
    certificate.write_bytes(later[0])
    assert not certificates.reload_if_changed()
    key.write_bytes(later[1])
    assert not certificates.reload_if_changed()
    assert certificates.context is before
    assert certificates.reload_if_changed()
    assert certificates.context is not before
    assert not certificates.reload_if_changed()


@pytest.mark.parametrize("changed", ["certificate", "key", "client_ca", "crl", "sni"])
def test_every_file_of_a_listener_is_watched(changed: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "localhost")
    other = authority.issue("other", "other.example")
    crl = tmp_path / "revoked.pem"
    authority.revoke(crl)
    files = {"certificate": certificate, "key": key, "client_ca": authority.file, "crl": str(crl)}
    certificates = Certificates(
        "outside",
        listener(**files, sni={"other.example": {"certificate": other[0], "key": other[1]}}),
    )
    path = Path(files.get(changed, other[1]))
    again = path.with_name("again")
    again.write_bytes(path.read_bytes())
    again.replace(path)
    looks = [certificates.reload_if_changed() for _ in range(3)]
    assert looks == [False, True, False]


def test_a_key_with_a_password_is_refused_and_not_asked_for(tmp_path: Path) -> None:
    leaf = trustme.CA().issue_cert("localhost")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    path = tmp_path / "server.pem"
    path.write_bytes(
        leaf.cert_chain_pems[0].bytes()
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="needs a password"):
        Certificates("outside", listener(certificate=str(path), key=str(path)))
