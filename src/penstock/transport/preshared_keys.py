"""TLS with pre-shared keys (TLS-PSK, RFC 4279, RFC 9257): no certificates; both ends know a key.

::

      server: identity:key lines of a file ─▶ KeyFile ─ one context a connection ─▶ its identity
      client: identity, key ─▶ client_context, which trusts no certificate

Python's ``ssl`` has it from version 3.13 on; with an older one all functions here refuse. A key is
written in hexadecimal digits, as Mosquitto's ``psk_file`` and ``--psk`` have it.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from typing import Any, Final, final

from penstock.errors import ConfigError
from penstock.regular_file import read_regular

CIPHERS: Final = "kECDHEPSK:kPSK"
"""Cipher suites of TLS 1.2: with forward secrecy first, then those of the smallest devices."""

IDENTITY_BYTES_MAX: Final = 128
KEY_BYTES_MAX: Final = 64
"""Longest identity and longest key in bytes that an implementation must support (RFC 4279 §5.3)."""

KEY_BYTES_MIN: Final = 16


def is_available() -> bool:
    """Return whether this Python's ``ssl`` has pre-shared keys."""
    return hasattr(ssl.SSLContext, "set_psk_server_callback")


def parse_key(identity: str, key: str) -> bytes:
    """Return the bytes of a key in hexadecimal digits.

    Raises:
        ValueError: the identity or the key cannot be used; says why, without the key.
    """
    if not 1 <= len(identity.encode()) <= IDENTITY_BYTES_MAX:
        raise ValueError(f"an identity has 1 to {IDENTITY_BYTES_MAX} bytes")
    try:
        found = bytes.fromhex(key)
    except ValueError:
        raise ValueError("a key is written in hexadecimal digits, two for each byte") from None
    if not KEY_BYTES_MIN <= len(found) <= KEY_BYTES_MAX:
        raise ValueError(
            f"a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, and this one {len(found)}:"
            " 'openssl rand -hex 32' makes one"
        )
    return found


def client_context(identity: str, key: str, owner: str) -> ssl.SSLContext:
    """Return the context of a client that offers a pre-shared key.

    A server of TLS 1.3 may leave the key aside and show a certificate (RFC 8446 §4.1.1). One is
    required to be valid then, and the context knows no authority, so that none is: only who has the
    key is the server.

    Raises:
        ConfigError: this Python has none, or identity or key cannot be used.
    """
    check_available(owner)
    try:
        found = parse_key(identity, key)
    except ValueError as error:
        raise ConfigError(f"{owner}: the pre-shared key cannot be used: {error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without authorities, not even the system's
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # the key is the name
    context.set_ciphers(CIPHERS)
    _of_new_python(context).set_psk_client_callback(lambda _hint: (identity, found))
    return context


def check_available(owner: str) -> None:
    """Refuse pre-shared keys where this Python's ``ssl`` has none.

    Raises:
        ConfigError: it has none.
    """
    if not is_available():
        version = ".".join(str(part) for part in sys.version_info[:2])
        raise ConfigError(
            f"{owner}: pre-shared keys (TLS-PSK) need Python 3.13 or newer, and this is {version}:"
            " run Penstock with a newer Python, or use certificates"
        )


@final
class PskContext(ssl.SSLContext):
    """The context of one connection that a server accepts.

    Attributes:
        identity: the identity whose key the client has; None before the handshake.
    """

    identity: str | None = None


@final
class KeyFile:
    """The keys of a listener's clients: a file with a line ``identity:key`` for each.

    Empty lines, and lines that begin with #, mean nothing.

    Args:
        path: the path of the file.
        owner: the owner of the file, which begins errors.

    Raises:
        ConfigError: this Python has no pre-shared keys, or the file or a line cannot be used.
    """

    def __init__(self, path: str, owner: str) -> None:
        check_available(owner)
        try:
            text = read_regular(path).decode()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"{owner}: the psk_file {path} cannot be read: {reason}") from error
        self._keys: dict[str, bytes] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            identity, colon, key = line.rpartition(":")
            try:
                if not colon:
                    raise ValueError("a line is identity:key")
                if identity in self._keys:
                    raise ValueError("an earlier line has this identity")
                self._keys[identity] = parse_key(identity, key.strip())
            except ValueError as error:
                raise ConfigError(f"{owner}: the psk_file {path}, line {number}: {error}") from None
        if not self._keys:
            raise ConfigError(f"{owner}: the psk_file {path} has no line identity:key")

    def context(self, prepare: Callable[[ssl.SSLContext], None]) -> PskContext:
        """Return the context of the next connection; ``prepare`` sets what is not about keys."""
        context = PskContext(ssl.PROTOCOL_TLS_SERVER)
        prepare(context)
        context.set_ciphers(CIPHERS)

        def key_of(identity: str | None) -> bytes:
            key = self._keys.get(identity or "", b"")
            context.identity = identity if key else None
            return key  # empty: the handshake fails

        _of_new_python(context).set_psk_server_callback(key_of)
        return context


def _of_new_python(context: ssl.SSLContext) -> Any:
    """Return the context itself; typeshed has the methods only for Python 3.13."""
    return context
