"""TLS for a listener: its certificates or pre-shared keys, the client certificates that it accepts,
and their reload.

A TLS context is never changed once connections use it: ``reload`` makes new contexts when a file
has changed, a reload of all settings makes new ``Certificates``, and only connections accepted from
then on use them. If the new files cannot be used, the old contexts stay in use.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from penstock.errors import ConfigError
from penstock.regular_file import FileVersion, file_version, read_regular, regular
from penstock.transport.alerting import send_alerts
from penstock.transport.preshared_keys import KeyFile, PskContext
from penstock.transport.wire import ClientCertificate

if TYPE_CHECKING:  # the client library uses this module, and must not import pydantic
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
        name: the name of the listener, for errors.
        settings: the settings of the listener.

    Raises:
        ConfigError: a file cannot be read, a key does not belong to its certificate, or this Python
            has no pre-shared keys.
    """

    def __init__(self, name: str, settings: Listener) -> None:
        self._name = name
        self._settings = settings
        self._files = self._file_versions()
        self._seen_files = self._files
        self._make_context = self._read()

    @property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the connection that is accepted next.

        With certificates it is one for all connections until the files change; with pre-shared keys
        each connection has its own, which gets to know the client's identity.
        """
        return self._make_context()

    def reload(self) -> None:
        """Read the files again.

        Raises:
            ConfigError: a file cannot be read, or a key does not belong to its certificate; the old
                context stays in use.
        """
        self._files = self._seen_files = self._file_versions()
        self._make_context = self._read()

    def reload_if_changed(self) -> bool:
        """Read the files again if they have changed, and have not changed since the last call.

        A certificate and its key are replaced one after the other; in between they do not belong
        together. The call blocks: call it in a thread.

        Returns:
            True if the files were read again.

        Raises:
            ConfigError: as ``reload``, once for each change.
        """
        before, self._seen_files = self._seen_files, self._file_versions()
        if self._seen_files == self._files or self._seen_files != before:
            return False
        self.reload()
        return True

    def _file_versions(self) -> list[FileVersion | None]:
        settings = self._settings
        names = [settings.certificate, settings.key, settings.client_ca, settings.crl]
        names.append(settings.psk_file)
        for pair in settings.sni.values():
            names += [pair.certificate, pair.key]
        return [file_version(name) for name in names]

    def _read(self) -> Callable[[], ssl.SSLContext]:
        settings = self._settings
        if settings.psk_file:
            keys = KeyFile(settings.psk_file, f"listener {self._name}")
            return lambda: keys.context(self._prepare)
        default = self._context(settings.certificate, settings.key)
        if settings.sni:
            by_host = {
                host.lower(): self._context(pair.certificate, pair.key)
                for host, pair in settings.sni.items()
            }

            def choose(
                connection: ssl.SSLSocket | ssl.SSLObject, host: str | None, _: ssl.SSLContext
            ) -> None:
                context = by_host.get((host or "").lower())
                if context is not None:
                    connection.context = context

            default.sni_callback = choose
        return lambda: default

    def _prepare(self, context: ssl.SSLContext) -> None:
        """Set what all contexts of the listener have in common."""
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(_ALPN[self._settings.kind])
        send_alerts(context)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION

    def _context(self, certificate: str, key: str) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._prepare(context)
        try:
            context.load_cert_chain(regular(certificate), regular(key), password=_no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"listener {self._name}: the certificate {certificate} with the key {key} cannot"
                f" be used: {_reason(error)}"
            ) from error
        if settings.client_ca:
            try:
                context.load_verify_locations(regular(settings.client_ca))
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
            context.load_verify_locations(regular(file))
            mistake = "" if context.cert_store_stats()["crl"] else "it contains no revocation list"
        except (OSError, ValueError) as error:
            mistake = _reason(error)
        if mistake:
            raise ConfigError(f"listener {self._name}: the crl {file} cannot be used: {mistake}")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def certificates_of(name: str, settings: Listener) -> Certificates | None:
    """Return the certificates of a listener; None if it does not use TLS.

    Raises:
        ConfigError: as ``Certificates``.
    """
    return Certificates(name, settings) if settings.is_encrypted else None


def read_pair(
    certificate: Path, key: Path, whose: str = "the stream service"
) -> tuple[bytes, bytes]:
    """Return the PEM text of a certificate and of its key, after checking that they belong
    together.

    Args:
        certificate: the file of the certificate and its intermediate certificates.
        key: the file of the private key.
        whose: the owner of the files, which begins the error.

    Raises:
        ConfigError: a file cannot be read, or the key does not belong to the certificate.
    """
    try:
        read = read_regular(certificate), read_regular(key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=_no_password)
        return read
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{whose}: the certificate {certificate} with the key {key} cannot be used:"
            f" {_reason(error)}"
        ) from error


def read_authorities(file: Path) -> bytes:
    """Return the PEM text of a file of certificate authorities, after checking that it can be used.

    Raises:
        ConfigError: the file cannot be used.
    """
    try:
        read = read_regular(file)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
        return read
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = "it is not PEM" if isinstance(error, ssl.SSLError) else error
        raise ConfigError(
            f"the file of certificate authorities {file} cannot be used: {reason}"
        ) from error


def client_certificate(transport: asyncio.BaseTransport) -> ClientCertificate | None:
    """Return the certificate that the client presented and TLS verified; None without one.

    The identity of a pre-shared key is a common name, and has no subject.
    """
    context = transport.get_extra_info("sslcontext")
    if isinstance(context, PskContext) and context.identity is not None:
        return ClientCertificate("", context.identity)
    found = transport.get_extra_info("peercert")
    if not found:
        return None
    parts = [part for names in found.get("subject", ()) for part in names]
    common_names = [value for name, value in parts if name == "commonName"]
    return ClientCertificate(
        ",".join(
            f"{_SHORT_NAMES.get(name, name)}={_escape(value)}" for name, value in reversed(parts)
        ),
        common_names[0] if len(common_names) == 1 else "",
    )


def identity(kind: str, certificate: ClientCertificate | None) -> str | None:
    """Return the user name in a client's certificate; None without a certificate, or if ``kind`` is
    empty.

    Args:
        kind: "common_name", "subject" or empty, as ``access.identity_from_certificate``.
        certificate: the client's certificate.
    """
    if not kind or certificate is None:
        return None
    return certificate.common_name if kind == "common_name" else certificate.subject


def _escape(value: str) -> str:
    """Return a value of a distinguished name, escaped by RFC 4514 §2.4, so that one value cannot
    look like two."""
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
