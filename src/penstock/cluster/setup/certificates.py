"""Makes a certificate authority for a cluster, and a certificate for each of its machines.

A machine uses the same certificate as a server and as a client: its NATS server for brokers and
other servers, its broker for the servers. The authority signs nothing else, so its certificates
prove membership in the cluster. The package ``cryptography`` is loaded on first use.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_DAYS: Final = 20 * 365
CERTIFICATE_DAYS: Final = 5 * 365

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""Names by which each machine reaches itself."""

_BEFORE: Final = datetime.timedelta(days=1)  # certificates are valid earlier: clocks differ


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


def make_authority(cluster: str, now: datetime.datetime) -> IssuedCertificate:
    """Return a new certificate authority, valid for ``AUTHORITY_DAYS``.

    Args:
        cluster: name of the cluster.
        now: the present time, with its time zone.

    Raises:
        ConfigError: the package ``cryptography`` is missing.
    """
    _need_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"cluster {cluster}")
    builder = _certificate_builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _as_pem(certificate, key)


def make_certificate(
    authority: IssuedCertificate, machine: str, host: str, now: datetime.datetime
) -> IssuedCertificate:
    """Return a new certificate of a machine, valid for ``CERTIFICATE_DAYS``.

    Args:
        authority: the authority that signs it.
        machine: name of the machine.
        host: the address or host name by which others reach it.
        now: the present time, with its time zone.

    Raises:
        ConfigError: the package ``cryptography`` is missing.
    """
    _need_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_general_name(name) for name in dict.fromkeys((host, *_LOCAL))]
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    signers_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    certificate = (
        _certificate_builder(
            _name(machine), signer.subject, key.public_key(), now, CERTIFICATE_DAYS
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(uses, critical=False)
        .add_extension(signers_key, critical=False)
        .sign(signing, hashes.SHA256())
    )
    return _as_pem(certificate, key)


def read_host(certificate: bytes) -> str:
    """Return the host for which a machine's certificate was made.

    Args:
        certificate: a certificate from ``make_certificate``, PEM.

    Raises:
        ConfigError: the package ``cryptography`` is missing, or ``certificate`` is no certificate
            of a machine.
    """
    _need_cryptography()
    from cryptography import x509

    try:
        read = x509.load_pem_x509_certificate(certificate)
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise ConfigError("it is no certificate of a machine of a cluster") from None
    return str(next(iter(names)).value)


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError(
            'certificates are made by the package cryptography: pip install "penstock[cluster]"'
        ) from None


def _certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: object,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    assert isinstance(key, ec.EllipticCurvePublicKey)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _as_pem(certificate: x509.Certificate, key: object) -> IssuedCertificate:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return IssuedCertificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
