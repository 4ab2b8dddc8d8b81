"""The token file of the stream service: a program that sends one of its tokens may use streams
(`Authorization: Bearer …`).

One token a line, except empty lines and lines that begin with #. There may be several tokens, so
that they can be exchanged one reader at a time::

    TOKEN                                        may do everything
    [NAME:]TOKEN ROLES [TOPIC FILTER]...         has these roles only, for matching topics only

Roles are `read`, `lease`, `publish` and `seed`, with commas between; `seed` is for other members of
the cluster, which copy the whole store. A reader's own file has the same form, and its first token
is used. With a name, readers and tables keep their owner when the token is exchanged.

A token has the form of RFC 6750 §2.1, and is too long to be guessed. Errors and log lines never
contain it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from penstock.auth.lines import lines_of
from penstock.engine.values.topics import is_topic_filter
from penstock.errors import ConfigError

FORM: Final = "16 to 4096 letters, digits and . _ ~ + / - with = at the end only"
"""The form of a token, for an error that ends with "must be"."""

READ: Final = "read"
LEASE: Final = "lease"
PUBLISH: Final = "publish"
SEED: Final = "seed"
ROLES: Final = (READ, LEASE, PUBLISH, SEED)

OWN_FILE: Final = "stream-token"
"""Name of a file in the data directory: the token for programs that run as the broker's user."""

_TOKEN: Final = re.compile(r"(?=.{16,4096}$)[A-Za-z0-9._~+/-]+=*")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LEVELS_MAX: Final = 1000
_FINGERPRINT_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Grant:
    """The roles and topics for which a token may be used.

    Attributes:
        owner: the owner of readers and tables that are registered with the token; empty for a token
            that may do everything.
        roles: a subset of ``ROLES``.
        topic_filters: topic filters, one of which a message's topic must match; none for all
            messages.
        token: the token itself; empty if it is not needed.
    """

    owner: str = ""
    roles: frozenset[str] = frozenset(ROLES)
    topic_filters: tuple[str, ...] = ()
    token: str = field(default="", repr=False)


EVERYTHING: Final = Grant()
"""The permissions of programs that need no token."""

ANONYMOUS: Final = Grant(roles=frozenset(ROLES) - {SEED})
"""The permissions without a token, if only seeding another member requires a token."""


def is_token(text: str) -> bool:
    """Return whether `text` has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def read_tokens(path: Path) -> list[str]:
    """Return the tokens in a file, at least one.

    Raises:
        ConfigError: as `read_grants`.
    """
    return [grant.token for grant in read_grants(path)]


def read_grants(path: Path) -> list[Grant]:
    """Return the tokens in a file, at least one, with the permissions of each.

    Raises:
        ConfigError: the file cannot be read or has no token, or a line has no valid token, an
            unknown role or an invalid topic filter; one sentence without the token.
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
    """The accepted tokens, stored as hashes, so that the time of a comparison reveals nothing."""

    def __init__(self, grants: Iterable[Grant | str]) -> None:
        self._grants = {}
        for given in grants:
            grant = Grant(token=given) if isinstance(given, str) else given
            without_token = Grant(grant.owner, grant.roles, grant.topic_filters)
            self._grants[_digest(grant.token)] = without_token

    def has(self, token: str) -> bool:
        """Return whether `token` is accepted."""
        return self.grant(token) is not None

    def grant(self, token: str) -> Grant | None:
        """Return the permissions of `token`; None if it is not accepted."""
        return self._grants.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
