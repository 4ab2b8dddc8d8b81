"""The token file: a program that shows one of its tokens may use the streams (`Authorization:
Bearer …`).

One token a line, empty lines and lines that begin with # apart. There may be several, so that they
can be exchanged one reader at a time::

    TOKEN                                        may do everything
    [NAME:]TOKEN ROLES [TOPIC FILTER]...         only that, and only with topics that match

Roles are `read`, `lease`, `publish` and `seed`, with commas between; `seed` is for other members of
the cluster, which take a copy of the whole store. A reader's own file has the same form, and its
first line counts. A name keeps the owner of readers and tables when a token is exchanged.

A token has the form of RFC 6750 §2.1, and is too long to be guessed. It is never part of a message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from penstock.auth.lines import lines_of
from penstock.engine.topics import is_topic_filter
from penstock.errors import ConfigError

FORM: Final = "16 to 4096 letters, digits and . _ ~ + / - with = at the end only"
"""The form of a token; continues "must be"."""

READ: Final = "read"
LEASE: Final = "lease"
PUBLISH: Final = "publish"
SEED: Final = "seed"
ROLES: Final = (READ, LEASE, PUBLISH, SEED)

OWN_FILE: Final = "stream-token"
"""A file in the data directory: the token of programs that run as the broker's user."""

_TOKEN: Final = re.compile(r"(?=.{16,4096}$)[A-Za-z0-9._~+/-]+=*")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LEVELS_MAX: Final = 1000
_FINGERPRINT_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Grant:
    """The roles and topics that a token may be used for.

    Attributes:
        owner: the owner of what is registered with it; empty for one that may do everything.
        roles: any of ``ROLES``.
        topic_filters: only messages whose topic matches one of them; none: all.
        token: the token itself.
    """

    owner: str = ""
    roles: frozenset[str] = frozenset(ROLES)
    topic_filters: tuple[str, ...] = ()
    token: str = field(default="", repr=False)


EVERYTHING: Final = Grant()
"""The permissions of programs that need no token."""

ANONYMOUS: Final = Grant(roles=frozenset(ROLES) - {SEED})
"""The permissions without a token where only a copy of the whole store asks for one."""


def is_token(text: str) -> bool:
    """Return whether `text` has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def read_tokens(path: Path) -> list[str]:
    """Return the tokens of a file, at least one; errors as in `read_grants`."""
    return [grant.token for grant in read_grants(path)]


def read_grants(path: Path) -> list[Grant]:
    """Return the tokens of a file, at least one, and the permissions of each.

    Raises:
        ConfigError: it cannot be read, has none, or a line is no token, or has a word that is no
            role or topic filter; one sentence without the token.
    """
    grants = []
    for location, line in lines_of(path, "token file"):
        first, *words = line.split()
        name, colon, token = first.rpartition(":")
        if not is_token(token) or (colon and _NAME.fullmatch(name) is None):
            raise ConfigError(f"{location} is no token, which must be {FORM}.")
        grants.append(_grant(location, name, token, words))
    if not grants:
        raise ConfigError(f"The token file {path} has no token in it.")
    return grants


def _grant(location: str, name: str, token: str, words: list[str]) -> Grant:
    if not words:
        return Grant(token=token)
    roles = words[0].split(",")
    for role in roles:
        if role not in ROLES:
            raise ConfigError(
                f"{location} has a word behind the token that is no role; roles are"
                f" {', '.join(ROLES)}, with commas and no spaces between."
            )
    for topic_filter in words[1:]:
        if not is_topic_filter(topic_filter, _LEVELS_MAX):
            raise ConfigError(f"{location}: {topic_filter!r} is not an MQTT topic filter.")
    owner = name or f"token-{_digest(token).hex()[:_FINGERPRINT_LENGTH]}"
    return Grant(owner, frozenset(roles), tuple(words[1:]), token)


@final
class Tokens:
    """The accepted tokens. Only hashes are kept: the time of a comparison tells nothing."""

    def __init__(self, grants: Iterable[Grant | str]) -> None:
        self._grants = {}
        for given in grants:
            grant = Grant(token=given) if isinstance(given, str) else given
            known = Grant(grant.owner, grant.roles, grant.topic_filters)  # without the token
            self._grants[_digest(grant.token)] = known

    def has(self, token: str) -> bool:
        """Return whether `token` is accepted."""
        return self.grant(token) is not None

    def grant(self, token: str) -> Grant | None:
        """Return the permissions of `token`; None where it is not known."""
        return self._grants.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
