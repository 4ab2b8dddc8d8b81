"""SCRAM-SHA-256: the client proves its password without sending it, and the server proves itself.

RFC 5802 with the hash of RFC 7677, as the enhanced authentication method of that name in
MQTT 5. The server stores two keys, from which the password cannot be computed and with which no
client can log in::

    SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>       (PostgreSQL's notation)

      client                                          server
      n,,n=user,r=nonce            ── CONNECT ──▶
                                   ◀── AUTH ───  r=nonce+ours,s=salt,i=iterations
      c=biws,r=nonce+ours,p=proof  ── AUTH ────▶
                                   ◀─ CONNACK ─  v=server's signature

An unknown user gets a salt of its own, always the same, and fails at the last step like a wrong
password. Channel binding, which needs access to TLS, is refused (RFC 5802 §6, "p=").
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import unicodedata
from collections.abc import Callable
from typing import Any, Final, final

from scramp import ScramException, ScramMechanism
from scramp import utils as scramp_utils

from penstock.engine.values.access import CONTINUE, FAILURE, SUCCESS, Exchange, Step
from penstock.protocol import reasons

METHOD: Final = "SCRAM-SHA-256"
LINE_PREFIX: Final = "SCRAM-SHA-256$"
ITERATIONS: Final = 15_000  # bearable for small devices; RFC 7677 requires 4096
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 10_000_000
MESSAGE_BYTES_MAX: Final = 2048
NAME_CHARS_MAX: Final = 256  # scramp takes 2 µs for each, on the event loop
PASSWORD_CHARS_MAX: Final = 4096  # in a thread; printable ASCII may be longer

_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 18
_KEY_BYTES: Final = 32
_MECHANISM: Final[Any] = ScramMechanism(METHOD)  # scramp has no types


@final
class ScramKeys:
    """The keys that a server stores instead of one user's password (RFC 5802 §3)."""

    def __init__(self, iterations: int, salt: bytes, stored_key: bytes, server_key: bytes) -> None:
        self.iterations = iterations
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key


Lookup = Callable[[str], ScramKeys | None]
"""Return the keys of a user name; None if the user is unknown or has no SCRAM keys."""

Decoy = Callable[[str], ScramKeys]
"""Return keys for an unknown user name that look real, always the same for one name."""


def keys_for(password: str, iterations: int = ITERATIONS, salt: bytes = b"") -> ScramKeys:
    """Return the keys of ``password``, with a random salt if ``salt`` is empty.

    Raises:
        ValueError: the password has characters that RFC 4013 prohibits.
    """
    salt = salt or secrets.token_bytes(_SALT_BYTES)
    return _keys(saslprep(password).encode(), iterations, salt)


def is_line(line: str) -> bool:
    """Return whether a password line has SCRAM keys."""
    return line.startswith(LINE_PREFIX)


def line_of(keys: ScramKeys) -> str:
    """Return the password line of ``keys``."""
    salt, stored, server = (
        base64.b64encode(part).decode() for part in (keys.salt, keys.stored_key, keys.server_key)
    )
    return f"{LINE_PREFIX}{keys.iterations}:{salt}${stored}:{server}"


def parse_line(line: str) -> ScramKeys:
    """Return the keys in a password line, the inverse of ``line_of``.

    Raises:
        ValueError: the line is damaged.
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
    """Return whether ``password``, sent in plain text, matches ``keys``."""
    try:
        prepared = saslprep(password.decode()).encode()
    except ValueError:
        prepared = password
    found = _keys(prepared, keys.iterations, keys.salt)
    return hmac.compare_digest(found.stored_key, keys.stored_key)


def saslprep(text: str) -> str:
    """Return ``text`` prepared by RFC 4013; printable ASCII is returned unchanged.

    Raises:
        ValueError: it has a prohibited character, mixes text directions, or is longer than
            ``PASSWORD_CHARS_MAX`` and not printable ASCII.
    """
    if text.isascii() and text.isprintable():
        return text
    if _normalized_chars(text) > PASSWORD_CHARS_MAX:
        raise ValueError("too long")
    try:
        prepared: str = scramp_utils.saslprep(text)
    except ScramException as error:
        raise ValueError(str(error)) from None
    return prepared


def is_usable(name: str) -> bool:
    """Return whether a user of this name can log in by SCRAM: RFC 4013 allows its characters, and
    it has at most ``NAME_CHARS_MAX``."""
    try:
        return _normalized_chars(name) <= NAME_CHARS_MAX and bool(saslprep(name))
    except ValueError:
        return False


def _normalized_chars(text: str) -> int:
    """Return the number of characters after normalization: one may become eighteen."""
    return len(unicodedata.normalize("NFKC", text))


@final
class ScramExchange(Exchange):
    """The server's side of one authentication.

    Args:
        lookup: returns a user's keys.
        decoy: returns keys for unknown users.
        nonce: the server's part of the nonce; random if empty.

    Attributes:
        username: the user name that the client claims; empty before its first message.
    """

    def __init__(self, lookup: Lookup, decoy: Decoy, nonce: str = "") -> None:
        self._lookup = lookup
        self._decoy = decoy
        self.username = ""
        self._keys: ScramKeys | None = None
        self._is_known = False
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        self._server: Any = None

    def step(self, data: bytes | None) -> Step:
        """Handle the client's first message, then its final message; return the next step."""
        try:
            if data is None or len(data) > MESSAGE_BYTES_MAX:
                return _failure()
            if self._keys is None:
                return self._handle_first(data.decode())
            return self._handle_final(data.decode())
        except (ScramException, UnicodeDecodeError):
            return _failure()

    def _handle_first(self, message: str) -> Step:
        claimed = _name_in(message)  # not prepared, as in the password file
        if _normalized_chars(claimed) > NAME_CHARS_MAX:
            return _failure()
        known = self._lookup(claimed)
        keys = known or self._decoy(claimed)
        found = (keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        self._server = _MECHANISM.make_server(lambda _name: found, s_nonce=self._nonce)
        self._server.set_client_first(message)
        self.username, self._keys, self._is_known = claimed, keys, known is not None
        return Step(CONTINUE, self._server.get_server_first().encode())

    def _handle_final(self, message: str) -> Step:
        self._server.set_client_final(message)
        keys, present = self._keys, self._lookup(self.username)
        if keys is None or not self._is_known:
            return _failure()
        if present is None or present.stored_key != keys.stored_key:
            return _failure()  # the user was changed or removed since the first message
        return Step(SUCCESS, self._server.get_server_final().encode(), self.username)


def _name_in(message: str) -> str:
    """Return the user name in a first message, unescaped (RFC 5802 §5.1); empty if it has none."""
    escaped = message.partition("n=")[2].partition(",")[0]
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _keys(password: bytes, iterations: int, salt: bytes) -> ScramKeys:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    return ScramKeys(iterations, salt, hashlib.sha256(client_key).digest(), server_key)


def _failure() -> Step:
    return Step(FAILURE, reason_code=reasons.NOT_AUTHORIZED)
