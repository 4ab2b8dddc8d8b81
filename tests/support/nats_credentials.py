"""Keys and signed descriptions of NATS users, as the tool ``nsc`` makes them.

An operator signs the account, the account signs the user, and the server knows the operator alone.
A key is 32 bytes with a letter for its kind in front and a checksum behind, in base32; a
description is a JSON Web Token that is signed with Ed25519.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any, Final, final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

_SEED: Final = 18 << 3  # "S"
_KINDS: Final = {"operator": 14 << 3, "account": 0, "user": 20 << 3}  # "O", "A", "U"


@final
class _Key:
    """A key of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._private = Ed25519PrivateKey.generate()
        public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public: Final = _encoded(bytes([_KINDS[kind]]) + public)

    @property
    def seed(self) -> str:
        """The private part."""
        kind = _KINDS[self.kind]
        raw = self._private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        return _encoded(bytes([_SEED | kind >> 5, (kind & 31) << 3]) + raw)

    def describe(self, subject: _Key, nats: dict[str, Any]) -> str:
        """Return a signed description of another key, or of this one."""
        claims: dict[str, Any] = {
            "iat": 1_700_000_000,
            "iss": self.public,
            "name": f"test {subject.kind}",
            "sub": subject.public,
            "nats": nats | {"type": subject.kind, "version": 2},
        }
        digest = hashlib.sha256(json.dumps(claims).encode()).digest()
        claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
        parts = [_part({"typ": "JWT", "alg": "ed25519-nkey"}), _part(claims)]
        signature = self._private.sign(".".join(parts).encode())
        return ".".join([*parts, _base64(signature)])


@final
class Operator:
    """An operator with one account, and one user in it."""

    def __init__(self) -> None:
        self._operator, self._account, self._user = map(_Key, ("operator", "account", "user"))
        self._system = _Key("account")  # of the servers themselves, which JetStream needs
        unlimited = dict.fromkeys(
            ("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1
        )
        storage = dict.fromkeys(
            ("mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"), -1
        )
        limits = unlimited | storage | {"wildcards": True}
        self._operator_jwt = self._operator.describe(self._operator, {})
        self._account_jwt = self._operator.describe(self._account, {"limits": limits})
        no_storage = {"limits": unlimited | {"wildcards": True}}
        self._system_jwt = self._operator.describe(self._system, no_storage)
        limits_of_user = {"subs": -1, "data": -1, "payload": -1}
        self._user_jwt = self._account.describe(self._user, limits_of_user)

    def server_lines(self) -> str:
        """Return the settings of a server that knows this operator."""
        account, system = self._account.public, self._system.public
        return (
            f"operator: {self._operator_jwt}\nresolver: MEMORY\nsystem_account: {system}\n"
            f"resolver_preload: {{ {account}: {self._account_jwt}\n"
            f"{system}: {self._system_jwt} }}\n"
        )

    def credentials(self) -> str:
        """Return the credentials file of the user."""
        return (
            f"-----BEGIN NATS USER JWT-----\n{self._user_jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n"
            "NKEY Seed printed below can be used to sign and prove identity.\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self._user.seed}\n------END USER NKEY SEED------\n"
        )


def _encoded(data: bytes) -> str:
    checked = data + binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
