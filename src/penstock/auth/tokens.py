"""The token file: who shows one of its tokens may read the streams (`Authorization: Bearer …`).

One token a line, empty lines and lines that begin with # apart. There may be several, so that they
can be exchanged one reader at a time. A reader's own file has the same form and one line.

A token is what a secret of RFC 6750 §2.1 may be, and long enough that nobody guesses it. It is
never part of a message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, final

from penstock.auth.lines import lines_of
from penstock.errors import ConfigError

FORM: Final = "16 to 4096 letters, digits and . _ ~ + / - with = at the end only"
"""What a token looks like; continues "must be"."""

_TOKEN: Final = re.compile(r"(?=.{16,4096}$)[A-Za-z0-9._~+/-]+=*")


def is_token(text: str) -> bool:
    """Whether `text` has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def read_tokens(path: Path) -> list[str]:
    """The tokens of a file, one at least.

    Raises:
        ConfigError: it cannot be read, has none, or a line is no token; one sentence without it.
    """
    tokens = []
    for place, line in lines_of(path, "token file"):
        if not is_token(line):
            raise ConfigError(f"{place} is no token, which must be {FORM}.")
        tokens.append(line)
    if not tokens:
        raise ConfigError(f"The token file {path} has no token in it.")
    return tokens


@final
class Tokens:
    """Tokens that are believed. Only hashes are kept: how long a comparison takes tells nothing."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = frozenset(_digest(token) for token in tokens)

    def has(self, token: str) -> bool:
        """Whether `token` is one of them."""
        return _digest(token) in self._digests


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
