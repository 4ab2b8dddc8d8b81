"""Password lines: the part of a line of the password file after the user's name.

::

    alice:$argon2id$v=19$m=65536,t=3,p=4$<salt>$<hash>                Penstock's own
    bob:SCRAM-SHA-256$15000:<salt>$<stored key>:<server key>          for SCRAM too (scram.py)
    carol:$7$101$<salt>$<hash>     PBKDF2-SHA512, by mosquitto_passwd 2.0
    dave:$6$<salt>$<hash>          SHA-512, by mosquitto_passwd 1.x

A wrong password and an unknown user take the same time: the password of an unknown user is checked
against a decoy (``decoys``), so that an answer's delay does not reveal which users exist.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from argon2.low_level import ARGON2_VERSION, Type

from penstock.auth import scram

ARGON2: Final = "$argon2"
PBKDF2: Final = "$7$"
SHA512: Final = "$6$"

MEMORY_KIB_MAX: Final = 1_048_576  # of one argon2 line: a check must not exhaust the memory
TIME_COST_MAX: Final = 100
PARALLELISM_MAX: Final = 64
ITERATIONS_MAX: Final = 10_000_000  # of one PBKDF2 line
NAME_BYTES_MAX: Final = 65_535
_SHA512_BYTES: Final = 64

_hasher: Final = PasswordHasher()


def password_line(password: str) -> str:
    """Return an argon2id line for ``password``, with a new random salt."""
    return _hasher.hash(password)


def blank_line() -> str:
    """Return a line with the parameters of ``password_line`` that no password matches, unhashed."""
    costs = f"m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}"
    salt, digest = ("A" * unpadded_length(size) for size in (_hasher.salt_len, _hasher.hash_len))
    return f"$argon2id$v={ARGON2_VERSION}${costs}${salt}${digest}"


def unpadded_length(size_bytes: int) -> int:
    """Return the length of ``size_bytes`` bytes in base64 without padding, in characters."""
    return (size_bytes * 4 + 2) // 3


def name_mistake(name: str) -> str:
    """Return a clause about the mistake in a user name of the password file; empty if it is
    valid."""
    if not name:
        return "is empty"
    if ":" in name or not name.isprintable() or name != name.strip() or name.startswith("#"):
        return f"{name!r} has a colon, a control character, a space at an end or a # in front"
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    return ""


def mistake_in(line: str) -> str:
    """Return a clause about the mistake in a password line; empty if the line is valid."""
    try:
        if line.startswith(ARGON2):
            return _argon2_mistake(line)
        if scram.is_line(line):
            scram.parse_line(line)
        elif line.startswith(PBKDF2):
            iterations, _, _ = _pbkdf2_parts(line)
            if not 1 <= iterations <= ITERATIONS_MAX:
                return f"has {iterations} iterations, but 1 to {ITERATIONS_MAX} are allowed"
        elif line.startswith(SHA512):
            _sha512_parts(line)
        else:
            return (
                "is not a password hash (a line starts with $argon2id$, SCRAM-SHA-256$, $7$"
                " or $6$); write it with `penstock passwd`"
            )
    except (ValueError, binascii.Error, InvalidHashError):
        return "is a damaged password hash; write it again with `penstock passwd`"
    return ""


def verify(line: str, password: bytes) -> bool:
    """Return whether ``password`` matches ``line``; slow on purpose.

    An empty password matches no line, not even its own hash, which other programs write for users
    without a password.
    """
    if not password:
        return False
    if line.startswith(ARGON2):
        try:
            return _hasher.verify(line, password)
        except VerifyMismatchError:
            return False
    if scram.is_line(line):
        return scram.verify(scram.parse_line(line), password)
    if line.startswith(PBKDF2):
        iterations, salt, expected = _pbkdf2_parts(line)
        found = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    else:
        salt, expected = _sha512_parts(line)
        found = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(found, expected)


@final
class Users:
    """The users of one password file; may be used from several threads.

    Args:
        lines: the password line of each user, by name; each valid.
    """

    def __init__(self, lines: Mapping[str, str]) -> None:
        self._lines = dict(lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def line(self, name: str) -> str | None:
        """Return the password line of ``name``; None for an unknown user."""
        return self._lines.get(name)

    def lines(self) -> list[str]:
        """Return all password lines, in the order of the file."""
        return list(self._lines.values())

    def verify(self, name: str, password: bytes, decoy: str) -> bool:
        """Return whether ``name`` is a user with this password; check an unknown name against
        ``decoy``, so that it takes as long."""
        line = self._lines.get(name)
        if line is None:
            verify(decoy, password)
            return False
        return verify(line, password)

    def changed_names(self, later: Users) -> set[str]:
        """Return the names whose line differs, or is missing, in ``later``."""
        return {name for name, line in self._lines.items() if later.line(name) != line}


def _argon2_mistake(line: str) -> str:
    from argon2 import extract_parameters

    found = extract_parameters(line)
    if found.type is not Type.ID or found.version != ARGON2_VERSION:
        return "is not argon2id, version 19; write it again with `penstock passwd`"
    if (
        found.memory_cost > MEMORY_KIB_MAX
        or found.time_cost > TIME_COST_MAX
        or found.parallelism > PARALLELISM_MAX
    ):
        return (
            f"asks for m={found.memory_cost},t={found.time_cost},p={found.parallelism}, but at"
            f" most m={MEMORY_KIB_MAX},t={TIME_COST_MAX},p={PARALLELISM_MAX} are allowed"
        )
    salt, digest = line.split("$")[4:6]
    if not _argon2_base64(salt) or len(_argon2_base64(digest)) != found.hash_len:
        raise ValueError("a hash of another length")
    return ""


def _argon2_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _pbkdf2_parts(line: str) -> tuple[int, bytes, bytes]:
    _, _, iterations, salt, expected = line.split("$")
    return int(iterations), base64.b64decode(salt, validate=True), _sha512_digest(expected)


def _sha512_parts(line: str) -> tuple[bytes, bytes]:
    _, _, salt, expected = line.split("$")
    return base64.b64decode(salt, validate=True), _sha512_digest(expected)


def _sha512_digest(text: str) -> bytes:
    digest = base64.b64decode(text, validate=True)
    if len(digest) != _SHA512_BYTES:
        raise ValueError("a digest of another length")
    return digest
