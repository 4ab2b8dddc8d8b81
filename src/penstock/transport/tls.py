"""TLS for a listener: its certificates, the client certificates that it accepts, and reading anew.

A context is never changed once connections use it: ``reload`` makes new ones when a file has
changed, a reload of all settings makes new ``Certificates``, and only connections accepted from
then on see them. Where the new files are wrong, the old stay.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from penstock.errors import ConfigError
from penstock.transport.alerting import send_alerts
from penstock.transport.api import ClientCertificate

if TYPE_CHECKING:  # a client uses this file too, and has no use for pydantic
    from penstock.config.listener import Listener

_ALPN: Final = {"tls": ["mqtt"], "wss": ["http/1.1"]}
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
    "streetAddress": "STREET",
}
_SPECIAL: Final = frozenset('"+,;<>\\')


@final
class Certificates:
    """The TLS contexts of one listener.

    Args:
        name: name of the listener, for messages.
        settings: settings of the listener.

    Raises:
        ConfigError: a file cannot be read, or does not fit.
    """

    def __init__(self, name: str, settings: Listener) -> None:
        self._name = name
        self._settings = settings
        self._files = self._look()
        self._seen = self._files
        self.context = self._read()
        """For connections accepted from now on."""

    def reload(self) -> None:
        """Read the files again.

        Raises:
            ConfigError: a file cannot be read, or does not fit; the old ones stay in use.
        """
        self._files = self._seen = self._look()
        self.context = self._read()

    def reload_if_changed(self) -> bool:
        """Read the files again if they have changed, and two looks found them the same.

        A certificate and its key are replaced one after the other; between the two they do not
        fit. Blocks for as long as it reads: call it off the loop.

        Returns:
            Whether they were read.

        Raises:
            ConfigError: as ``reload``, once for each change.
        """
        before, self._seen = self._seen, self._look()
        if self._seen == self._files or self._seen != before:
            return False
        self.reload()
        return True

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Return the identity of each file, by which a replacement is noticed; None for a missing
        one."""
        settings = self._settings
        names = [settings.certificate, settings.key, settings.client_ca, settings.crl]
        for pair in settings.sni.values():
            names += [pair.certificate, pair.key]
        found: list[tuple[int, int, int] | None] = []
        for name in names:
            try:
                status = Path(name).stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return found

    def _read(self) -> ssl.SSLContext:
        settings = self._settings
        default = self._context(settings.certificate, settings.key)
        if settings.sni:
            others = {
                host.lower(): self._context(pair.certificate, pair.key)
                for host, pair in settings.sni.items()
            }

            def choose(
                connection: ssl.SSLSocket | ssl.SSLObject, host: str | None, _: ssl.SSLContext
            ) -> None:
                other = others.get((host or "").lower())
                if other is not None:
                    connection.context = other

            default.sni_callback = choose
        return default

    def _context(self, certificate: str, key: str) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(_ALPN[settings.kind])
        send_alerts(context)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"listener {self._name}: the certificate {certificate} with the key {key} cannot"
                f" be used: {_reason(error)}"
            ) from error
        if settings.client_ca:
            try:
                context.load_verify_locations(settings.client_ca)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"listener {self._name}: the client_ca {settings.client_ca} cannot be used:"
                    f" {_reason(error)}"
                ) from error
            needed = settings.require_client_certificate
            context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
        if settings.crl:
            self._revoke(context)
        return context

    def _revoke(self, context: ssl.SSLContext) -> None:
        """Refuse the certificates that the revocation lists name."""
        file = self._settings.crl
        try:
            context.load_verify_locations(file)
            mistake = "" if context.cert_store_stats()["crl"] else "there is no list in it"
        except (OSError, ValueError) as error:
            mistake = _reason(error)
        if mistake:
            raise ConfigError(f"listener {self._name}: the crl {file} cannot be used: {mistake}")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def certificates_of(name: str, settings: Listener) -> Certificates | None:
    """Return the certificates of a listener; None where it speaks no TLS. Raises as
    ``Certificates`` does."""
    return Certificates(name, settings) if settings.is_encrypted else None


def read_pair(
    certificate: Path, key: Path, whose: str = "the stream service"
) -> tuple[bytes, bytes]:
    """Return the PEM text of a certificate and its key, once they are known to belong together.

    Args:
        certificate: the certificate, and those between it and its authority.
        key: its private key.
        whose: begins the sentence about a mistake.

    Raises:
        ConfigError: a file cannot be read, or does not fit.
    """
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=_no_password)
        return certificate.read_bytes(), key.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{whose}: the certificate {certificate} with the key {key} cannot be used:"
            f" {_reason(error)}"
        ) from error


def read_authorities(file: Path) -> bytes:
    """Return the PEM text of certificate authorities.

    Raises:
        ConfigError: the file cannot be used.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
        return file.read_bytes()
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = "it is not PEM" if isinstance(error, ssl.SSLError) else error
        raise ConfigError(
            f"the file of certificate authorities {file} cannot be used: {reason}"
        ) from error


def client_certificate(transport: asyncio.BaseTransport) -> ClientCertificate | None:
    """Return the certificate that a connection's client proved; None without TLS or a
    certificate."""
    found = transport.get_extra_info("peercert")
    if not found:
        return None
    parts = [part for names in found.get("subject", ()) for part in names]
    return ClientCertificate(
        ",".join(
            f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in reversed(parts)
        ),
        next((value for name, value in reversed(parts) if name == "commonName"), ""),
    )


def identity(kind: str, certificate: ClientCertificate | None) -> str | None:
    """Return the user that a certificate names; None without one, or where ``kind`` is empty.

    Args:
        kind: "common_name", "subject" or empty, as ``access.identity_from_certificate``.
        certificate: certificate of the client.
    """
    if not kind or certificate is None:
        return None
    return certificate.common_name if kind == "common_name" else certificate.subject


def _escaped(value: str) -> str:
    """Return a value of a distinguished name as RFC 4514 §2.4 escapes it, so that no value can look
    like two."""
    text = "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in value)
    if text[:1] in (" ", "#"):
        text = f"\\{text}"
    if text.endswith(" ") and not text.endswith("\\ "):
        text = f"{text[:-1]}\\ "
    return text.replace("\0", "\\00")


def _no_password() -> str:
    raise ValueError("the key needs a password, which cannot be typed here; decrypt the file")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}: not PEM, or they do not belong together"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
