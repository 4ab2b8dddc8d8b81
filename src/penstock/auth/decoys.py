"""Decoys: password lines against which user names that do not exist are checked.

A guesser must not learn which names exist: not from how long an answer takes, and not from salt
and iterations, which SCRAM tells before it knows whether the user exists. So a name without a line
gets parameters of its own that look like those of a real user::

      name ─▶ of the sets of parameters in the file (algorithm, costs) the one with the highest
              HMAC(secret, name, set) ─▶ a line of that kind that no password fits

The secret is the broker's, and stays the same across restarts (``services.own_secrets``), so that a
name always gets the same. No user's salt or password counts: a set that comes into the file takes
over its share of the names, one that leaves it gives them up, and nothing else changes anything.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from argon2 import extract_parameters

from penstock.auth import passwords, scram

_KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 64


@final
@dataclass(frozen=True, order=True)
class _Shape:
    """The properties of a password line that can be told from outside.

    Args:
        kind: the beginning of the line.
        costs: algorithm's costs, in its notation.
        salt_bytes: length of the salt.
        hash_bytes: length of the hash, where the algorithm leaves it open.
    """

    kind: str
    costs: str
    salt_bytes: int
    hash_bytes: int = 0


@final
class Decoys:
    """Decoys for the names that some password lines do not have.

    Args:
        lines: all password lines of the file, each without a mistake.
        secret: the broker's.
    """

    def __init__(self, lines: Iterable[str], secret: bytes) -> None:
        self._secret = secret
        shapes = sorted({_shape(line) for line in lines})
        self._shapes = shapes or [_shape(passwords.password_line("decoy"))]
        self._scram_shapes = [shape for shape in shapes if shape.kind == scram.LINE_PREFIX]

    def line(self, name: str) -> str:
        """Return a password line for ``name`` that takes as long to check as a real one and matches
        no password."""
        shape = self._chosen(name, self._shapes)
        salt = base64.b64encode(self._salt(name, shape)).decode()
        if shape.kind == passwords.ARGON2:
            digest = "A" * _unpadded(shape.hash_bytes)
            return f"$argon2id$v=19${shape.costs}${salt.rstrip('=')}${digest}"
        if shape.kind == scram.LINE_PREFIX:
            return scram.line_of(self._keys(name, shape))
        digest = base64.b64encode(bytes(_DIGEST_BYTES)).decode()
        if shape.kind == passwords.PBKDF2:
            return f"{passwords.PBKDF2}{shape.costs}${salt}${digest}"
        return f"{passwords.SHA512}{salt}${digest}"

    def scram_keys(self, name: str) -> scram.ScramKeys | None:
        """Return keys for ``name`` without a password; None where no user has any."""
        if not self._scram_shapes:
            return None
        return self._keys(name, self._chosen(name, self._scram_shapes))

    def _keys(self, name: str, shape: _Shape) -> scram.ScramKeys:
        nothing = bytes(_KEY_BYTES)
        return scram.ScramKeys(int(shape.costs), self._salt(name, shape), nothing, nothing)

    def _chosen(self, name: str, shapes: list[_Shape]) -> _Shape:
        if len(shapes) == 1:
            return shapes[0]
        return max(shapes, key=lambda shape: self._keyed(f"shape\0{name}\0{shape}", 16))

    def _salt(self, name: str, shape: _Shape) -> bytes:
        return self._keyed(f"salt\0{name}", shape.salt_bytes)

    def _keyed(self, text: str, size_bytes: int) -> bytes:
        made = b""
        while len(made) < size_bytes:
            block = f"{len(made)}\0{text}".encode()
            made += hmac.digest(self._secret, block, "sha512")
        return made[:size_bytes]


def _shape(line: str) -> _Shape:
    if line.startswith(passwords.ARGON2):
        found = extract_parameters(line)
        return _Shape(passwords.ARGON2, line.split("$")[3], found.salt_len, found.hash_len)
    if scram.is_line(line):
        keys = scram.parse_line(line)
        return _Shape(scram.LINE_PREFIX, str(keys.iterations), len(keys.salt))
    if line.startswith(passwords.PBKDF2):
        _, _, iterations, salt, _ = line.split("$")
        return _Shape(passwords.PBKDF2, iterations, len(base64.b64decode(salt)))
    _, _, salt, _ = line.split("$")
    return _Shape(passwords.SHA512, "", len(base64.b64decode(salt)))


def _unpadded(size_bytes: int) -> int:
    """Return how many characters so many bytes take in base64 without padding."""
    return (size_bytes * 4 + 2) // 3
