"""SCRAM-SHA-256: a password is proved without being sent, and the server proves itself too.

RFC 5802 with the hash of RFC 7677, as the enhanced authentication method of that name in
MQTT 5. The server keeps two keys, from which the password cannot be computed and with which no
client can log in::

    SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>       (PostgreSQL's notation)

      client                                          server
      n,,n=user,r=nonce            ── CONNECT ──▶
                                   ◀── AUTH ───  r=nonce+ours,s=salt,i=iterations
      c=biws,r=nonce+ours,p=proof  ── AUTH ────▶
                                   ◀─ CONNACK ─  v=server's signature

An unknown user gets a salt of its own, the same each time, and fails at the end like a wrong
password. Channel binding needs TLS at this end and is refused (RFC 5802 §6, "p=").
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata
from collections.abc import Callable
from typing import Final, final

from penstock.engine.access import CONTINUE, FAILURE, SUCCESS, Exchange, Step
from penstock.protocol import reasons

METHOD: Final = "SCRAM-SHA-256"
LINE_PREFIX: Final = "SCRAM-SHA-256$"
ITERATIONS: Final = 15_000  # what a small device can do at each connect; RFC 7677 asks for 4096
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 10_000_000
MESSAGE_BYTES_MAX: Final = 4096

_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 18
_KEY_BYTES: Final = 32
_BAD_ESCAPE: Final = re.compile("=(?!2C|3D)")


@final
class ScramKeys:
    """The keys that a server stores instead of one user's password (RFC 5802 §3)."""

    def __init__(self, iterations: int, salt: bytes, stored_key: bytes, server_key: bytes) -> None:
        self.iterations = iterations
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key


Lookup = Callable[[str], ScramKeys | None]
"""User name to keys; None for a user unknown, or known without SCRAM keys."""

Decoy = Callable[[str], ScramKeys]
"""Name of a user that does not exist to keys that look real, the same each time."""


def keys_for(password: str, iterations: int = ITERATIONS, salt: bytes = b"") -> ScramKeys:
    """Return the keys of ``password``, with a new salt unless one is given.

    Raises:
        ValueError: the password has characters that RFC 4013 prohibits.
    """
    salt = salt or secrets.token_bytes(_SALT_BYTES)
    return _keys(saslprep(password).encode(), iterations, salt)


def is_line(line: str) -> bool:
    """Return whether a password line is one of SCRAM."""
    return line.startswith(LINE_PREFIX)


def line_of(keys: ScramKeys) -> str:
    """Return the password line of ``keys``."""
    salt, stored, server = (
        base64.b64encode(part).decode() for part in (keys.salt, keys.stored_key, keys.server_key)
    )
    return f"{LINE_PREFIX}{keys.iterations}:{salt}${stored}:{server}"


def parse_line(line: str) -> ScramKeys:
    """Inverse of ``line_of``.

    Raises:
        ValueError: it is damaged.
    """
    _, costs, both = line.split("$")
    iterations_text, salt_text = costs.split(":")
    stored_text, server_text = both.split(":")
    iterations = int(iterations_text)
    salt, stored, server = (
        base64.b64decode(text, validate=True) for text in (salt_text, stored_text, server_text)
    )
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX or not salt:
        raise ValueError("iterations or salt out of range")
    if len(stored) != _KEY_BYTES or len(server) != _KEY_BYTES:
        raise ValueError("a key of another length")
    return ScramKeys(iterations, salt, stored, server)


def verify(keys: ScramKeys, password: bytes) -> bool:
    """Return whether ``password``, sent in the open, is the one of ``keys``."""
    try:
        prepared = saslprep(password.decode()).encode()
    except ValueError:
        prepared = password
    found = _keys(prepared, keys.iterations, keys.salt)
    return hmac.compare_digest(found.stored_key, keys.stored_key)


def saslprep(text: str) -> str:
    """Return ``text`` as RFC 4013 compares it.

    Raises:
        ValueError: it has a character that is prohibited, or mixes directions.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter
        for letter in text
        if not stringprep.in_table_b1(letter)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    for letter in prepared:
        if any(is_prohibited(letter) for is_prohibited in _PROHIBITED):
            raise ValueError("a character that RFC 4013 prohibits")
    right_to_left = [stringprep.in_table_d1(letter) for letter in prepared]
    if any(right_to_left):
        mixed = any(stringprep.in_table_d2(letter) for letter in prepared)
        if mixed or not right_to_left[0] or not right_to_left[-1]:
            raise ValueError("mixes directions (RFC 3454 §6)")
    return prepared


_PROHIBITED: Final = (
    stringprep.in_table_a1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


@final
class ScramExchange(Exchange):
    """The server's side of one authentication.

    Args:
        lookup: finds a user's keys.
        decoy: makes keys for users that do not exist.
        nonce: the server's part of the nonce; drawn when empty.
    """

    def __init__(self, lookup: Lookup, decoy: Decoy, nonce: str = "") -> None:
        self._lookup = lookup
        self._decoy = decoy
        self._own_nonce = nonce or base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        self.username = ""  # as claimed; empty until the first message was read
        self._keys: ScramKeys | None = None
        self._is_known = False
        self._gs2_header = ""
        self._nonce = ""
        self._messages = ""  # client-first-bare and server-first, as they were sent

    def step(self, data: bytes | None) -> Step:
        """Take the client's first message, then its last; return the next step."""
        try:
            if data is None or len(data) > MESSAGE_BYTES_MAX:
                return _refused()
            return self._first(data.decode()) if not self._nonce else self._final(data.decode())
        except (ValueError, binascii.Error):
            return _refused()

    def _first(self, message: str) -> Step:
        flag, authorization, bare = message.split(",", 2)
        if flag not in ("n", "y") or authorization:
            return _refused()
        fields = bare.split(",")
        if not fields[0].startswith("n=") or not fields[1:2] or not fields[1].startswith("r="):
            return _refused()  # an "m=" before them asks for an extension that does not exist
        client_nonce = fields[1][2:]
        if not client_nonce or not client_nonce.isascii() or not client_nonce.isprintable():
            return _refused()
        self.username = _unescaped(fields[0][2:])
        self._gs2_header = f"{flag},,"
        keys = self._lookup(self.username)
        self._is_known = keys is not None
        self._keys = keys or self._decoy(self.username)
        self._nonce = client_nonce + self._own_nonce
        salt = base64.b64encode(self._keys.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._keys.iterations}"
        self._messages = f"{bare},{answer}"
        return Step(CONTINUE, answer.encode())

    def _final(self, message: str) -> Step:
        keys = self._keys
        assert keys is not None
        without_proof, _, proof_text = message.rpartition(",p=")
        fields = without_proof.split(",")
        if len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
            return _refused()
        header = base64.b64decode(fields[0][2:], validate=True).decode()
        proof = base64.b64decode(proof_text, validate=True)
        is_this = header == self._gs2_header and fields[1][2:] == self._nonce
        signed = f"{self._messages},{without_proof}".encode()
        is_proved = _proves(keys, signed, proof)
        if not (is_this and is_proved and self._is_known):
            return _refused()
        present = self._lookup(self.username)
        if present is None or present.stored_key != keys.stored_key:
            return _refused()  # the user was changed or removed since the first message
        signature = hmac.digest(keys.server_key, signed, "sha256")
        answer = b"v=" + base64.b64encode(signature)
        return Step(SUCCESS, answer, self.username)


def _proves(keys: ScramKeys, signed: bytes, proof: bytes) -> bool:
    """Return whether the proof uncovers the client key, whose hash is the stored key (RFC 5802
    §3)."""
    if len(proof) != _KEY_BYTES:
        return False
    signature = hmac.digest(keys.stored_key, signed, "sha256")
    client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)


def _keys(password: bytes, iterations: int, salt: bytes) -> ScramKeys:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    return ScramKeys(iterations, salt, hashlib.sha256(client_key).digest(), server_key)


def _unescaped(name: str) -> str:
    """Return a user name with =2C and =3D replaced (RFC 5802 §5.1).

    Raises:
        ValueError: an equals sign that is neither, or no name.
    """
    if not name or "\0" in name or _BAD_ESCAPE.search(name):
        raise ValueError("not a user name")
    return name.replace("=2C", ",").replace("=3D", "=")


def _refused() -> Step:
    return Step(FAILURE, reason_code=reasons.NOT_AUTHORIZED)
