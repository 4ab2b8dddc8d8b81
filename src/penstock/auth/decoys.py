"""Decoys: password lines against which the passwords of unknown user names are checked.

An attacker must not learn which names exist: neither from the time that an answer takes, nor from
salt and iterations, which SCRAM sends before the password is verified. So an unknown name gets
parameters that look like those of a real user::

      name ─▶ of all parameter sets in the file (algorithm, costs) the set with the highest
              HMAC(secret, name, set) ─▶ a line with these parameters that no password matches

The secret is the broker's, and stays the same across restarts (``services.own_secrets``), so that a
name always gets the same decoy. Users' salts and passwords have no influence: only a parameter set
that is added to the file, or removed from it, changes the decoys of its share of the names.
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
    """The parameters of a password line that an attacker can observe.

    Args:
        kind: the prefix of the line, which names the algorithm.
        costs: the costs, in the algorithm's notation.
        salt_bytes: the length of the salt.
        hash_bytes: the length of the hash, if the algorithm does not define it; else 0.
    """

    kind: str
    costs: str
    salt_bytes: int
    hash_bytes: int = 0


@final
class Decoys:
    """Makes decoys for user names without a password line.

    Args:
        lines: all password lines of the file, each valid.
        secret: the broker's secret.
    """

    def __init__(self, lines: Iterable[str], secret: bytes) -> None:
        self._secret = secret
        shapes = sorted({_shape(line) for line in lines})
        self._shapes = shapes or [_shape(passwords.blank_line())]
        self._scram_shapes = [shape for shape in shapes if shape.kind == scram.LINE_PREFIX]

    def line(self, name: str) -> str:
        """Return a password line for ``name`` that takes as long to check as a real one and matches
        no password."""
        shape = self._shape_for(name, self._shapes)
        salt = base64.b64encode(self._salt(name, shape)).decode()
        if shape.kind == passwords.ARGON2:
            digest = "A" * passwords.unpadded_length(shape.hash_bytes)
            return f"$argon2id$v=19${shape.costs}${salt.rstrip('=')}${digest}"
        if shape.kind == scram.LINE_PREFIX:
            return scram.line_of(self._keys(name, shape))
        digest = base64.b64encode(bytes(_DIGEST_BYTES)).decode()
        if shape.kind == passwords.PBKDF2:
            return f"{passwords.PBKDF2}{shape.costs}${salt}${digest}"
        return f"{passwords.SHA512}{salt}${digest}"

    def scram_keys(self, name: str) -> scram.ScramKeys | None:
        """Return SCRAM keys for ``name`` that no password matches; None if no user has SCRAM
        keys."""
        if not self._scram_shapes:
            return None
        return self._keys(name, self._shape_for(name, self._scram_shapes))

    def _keys(self, name: str, shape: _Shape) -> scram.ScramKeys:
        nothing = bytes(_KEY_BYTES)
        return scram.ScramKeys(int(shape.costs), self._salt(name, shape), nothing, nothing)

    def _shape_for(self, name: str, shapes: list[_Shape]) -> _Shape:
        if len(shapes) == 1:
            return shapes[0]
        return max(shapes, key=lambda shape: self._keyed_bytes(f"shape\0{name}\0{shape}", 16))

    def _salt(self, name: str, shape: _Shape) -> bytes:
        return self._keyed_bytes(f"salt\0{name}", shape.salt_bytes)

    def _keyed_bytes(self, text: str, size_bytes: int) -> bytes:
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
