"""Reads the login at a NATS server from the file that the settings of the cluster name.

There are three kinds of file: the credentials file of a NATS user (``.creds``: a JWT of the user
and an Ed25519 key that signs the server's challenge), ``USER:PASSWORD`` in one line, or a token in
one line.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, final

from penstock.errors import ConfigError
from penstock.regular_file import read_regular

_BLOCK: Final = r"-----BEGIN {0}-----\s*(\S+)\s*-+END {0}-+"
_JWT: Final = re.compile(_BLOCK.format("NATS USER JWT"))
_SEED: Final = re.compile(_BLOCK.format("USER NKEY SEED"))
_SEED_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 64 * 1024


@final
class NatsLogin:
    """The login of a connection.

    Args:
        fields: the fields of CONNECT that do not depend on the server's challenge.
        seed: the private key that signs challenges, 32 bytes; empty for none.
    """

    def __init__(self, fields: Mapping[str, str], seed: bytes = b"") -> None:
        self._fields = dict(fields)
        self._seed = seed

    def fields(self, challenge: str) -> dict[str, str]:
        """Return the login's fields of CONNECT for a server with this challenge (``nonce``)."""
        if not self._seed:
            return dict(self._fields)
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature = Ed25519PrivateKey.from_private_bytes(self._seed).sign(challenge.encode())
        text = base64.urlsafe_b64encode(signature).decode().rstrip("=")
        return self._fields | {"sig": text}


NO_LOGIN: Final = NatsLogin({})


def read_login(file: str) -> NatsLogin:
    """Return the login in ``file``; ``NO_LOGIN`` for an empty ``file``.

    Raises:
        ConfigError: the file cannot be read or used.
    """
    if not file:
        return NO_LOGIN
    try:
        text = read_regular(file, _FILE_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cluster.credentials_file: {file} cannot be read: {error}") from error
    jwt = _JWT.search(text)
    if jwt is not None:
        return _of_user(file, jwt.group(1), _SEED.search(text))
    line = text.strip()
    if not line or "\n" in line:
        raise ConfigError(
            f"cluster.credentials_file: {file} has no login: USER:PASSWORD or a token in one line,"
            " or the credentials of a NATS user"
        )
    user, colon, password = line.partition(":")
    return NatsLogin({"user": user, "pass": password} if colon else {"auth_token": line})


def _of_user(file: str, jwt: str, found: re.Match[str] | None) -> NatsLogin:
    if find_spec("cryptography") is None:
        raise ConfigError(
            f"cluster.credentials_file: {file} is the credentials file of a NATS user, which needs"
            ' cryptography: pip install "penstock[cluster]"'
        )
    mistake = ConfigError(f"cluster.credentials_file: {file} has no key of a NATS user")
    if found is None:
        raise mistake
    encoded = found.group(1)
    try:
        raw = base64.b32decode(encoded + "=" * (-len(encoded) % 8))
    except ValueError as error:
        raise mistake from error
    # Two bytes of prefix for the seed ("S") of a user ("U"), 32 bytes, two bytes of checksum.
    if len(raw) != 2 + _SEED_BYTES + 2 or not encoded.startswith("SU"):
        raise mistake
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ConfigError(f"cluster.credentials_file: the key in {file} is damaged")
    return NatsLogin({"jwt": jwt}, raw[2:-2])
