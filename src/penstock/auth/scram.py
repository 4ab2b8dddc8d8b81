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
import hashlib
import hmac
import secrets
import unicodedata
from collections.abc import Callable
from typing import Any, Final, final

from scramp import ScramException, ScramMechanism
from scramp import utils as scramp_utils

from penstock.engine.access.access import CONTINUE, FAILURE, SUCCESS, Exchange, Step
from penstock.protocol import reasons

METHOD: Final = "SCRAM-SHA-256"
LINE_PREFIX: Final = "SCRAM-SHA-256$"
ITERATIONS: Final = 15_000  # what a small device can do at each connect; RFC 7677 asks for 4096
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 10_000_000
MESSAGE_BYTES_MAX: Final = 2048
NAME_CHARS_MAX: Final = 256  # scramp looks at each for 2 µs, on the event loop, before a proof
PASSWORD_CHARS_MAX: Final = 4096  # likewise, in a thread; printable ASCII may be longer

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
        ValueError: it has a character that is prohibited, mixes directions, or is longer than
            ``PASSWORD_CHARS_MAX`` and not printable ASCII, which stays as it is.
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
    they are not too many."""
    try:
        return _normalized_chars(name) <= NAME_CHARS_MAX and bool(saslprep(name))
    except ValueError:
        return False


def _normalized_chars(text: str) -> int:
    """Return how many characters a preparation looks at: one may become eighteen."""
    return len(unicodedata.normalize("NFKC", text))


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
        self.username = ""  # as claimed; empty until the first message was read
        self._keys: ScramKeys | None = None
        self._is_known = False
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        self._server: Any = None

    def step(self, data: bytes | None) -> Step:
        """Take the client's first message, then its last; return the next step."""
        try:
            if data is None or len(data) > MESSAGE_BYTES_MAX:
                return _refused()
            return self._first(data.decode()) if self._keys is None else self._final(data.decode())
        except (ScramException, UnicodeDecodeError):
            return _refused()

    def _first(self, message: str) -> Step:
        claimed = _name_in(message)  # as it was sent, because so it stands in the password file
        if _normalized_chars(claimed) > NAME_CHARS_MAX:
            return _refused()
        known = self._lookup(claimed)
        keys = known or self._decoy(claimed)
        asked_for = (keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        self._server = _MECHANISM.make_server(lambda _name: asked_for, s_nonce=self._nonce)
        self._server.set_client_first(message)
        self.username, self._keys, self._is_known = claimed, keys, known is not None
        return Step(CONTINUE, self._server.get_server_first().encode())

    def _final(self, message: str) -> Step:
        self._server.set_client_final(message)
        keys, present = self._keys, self._lookup(self.username)
        if keys is None or not self._is_known:
            return _refused()
        if present is None or present.stored_key != keys.stored_key:
            return _refused()  # the user was changed or removed since the first message
        return Step(SUCCESS, self._server.get_server_final().encode(), self.username)


def _name_in(message: str) -> str:
    """Return the user name of a first message, unescaped (RFC 5802 §5.1); empty if it has none."""
    escaped = message.partition("n=")[2].partition(",")[0]
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _keys(password: bytes, iterations: int, salt: bytes) -> ScramKeys:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    return ScramKeys(iterations, salt, hashlib.sha256(client_key).digest(), server_key)


def _refused() -> Step:
    return Step(FAILURE, reason_code=reasons.NOT_AUTHORIZED)
