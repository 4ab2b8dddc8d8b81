"""The token file of the admin process: each token has a role (`Authorization: Bearer …`).

One token a line, empty lines and lines that begin with # apart::

    [NAME:]TOKEN [ROLE]

======== ===================================================================================
viewer   may read: metrics, lists of sessions, retained topics, bans, readers, tables
operator may also kick, ban, lift bans, and read retained payloads
admin    may also remove sessions, clear retained messages, drain the broker, and reload
======== ===================================================================================

A token without a role is a viewer's. The name is for the log and for events. Errors and log lines
never contain a token.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from penstock.auth.lines import lines_of
from penstock.auth.tokens import FORM, is_token
from penstock.errors import ConfigError

VIEWER: Final = "viewer"
OPERATOR: Final = "operator"
ADMIN: Final = "admin"
ROLES: Final = (VIEWER, OPERATOR, ADMIN)
"""Each role includes the roles before it."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FINGERPRINT_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class AdminGrant:
    """The name and role of a token or user.

    Attributes:
        name: the name for log and events.
        role: one of ``ROLES``.
        token: the token itself; empty if it is not needed.
    """

    name: str
    role: str
    token: str = field(default="", repr=False)

    def may_act_as(self, role: str) -> bool:
        """Return whether this role includes ``role``."""
        return ROLES.index(self.role) >= ROLES.index(role)


def read_admin_grants(path: Path) -> list[AdminGrant]:
    """Return the tokens of a file, at least one, each with its role.

    Raises:
        ConfigError: the file cannot be read or has no token, or a line has no valid token or an
            unknown role; one sentence without the token.
    """
    grants = []
    for location, line in lines_of(path, "token file"):
        first, *words = line.split()
        name, colon, token = first.rpartition(":")
        if not is_token(token) or (colon and _NAME.fullmatch(name) is None):
            raise ConfigError(f"{location} is no token, which must be {FORM}.")
        if len(words) > 1 or (words and words[0] not in ROLES):
            raise ConfigError(
                f"{location} has a word behind the token that is no role; a role is one of"
                f" {', '.join(ROLES)}."
            )
        name = name or f"token-{_digest(token).hex()[:_FINGERPRINT_LENGTH]}"
        grants.append(AdminGrant(name, words[0] if words else VIEWER, token))
    if not grants:
        raise ConfigError(f"The token file {path} has no token in it.")
    return grants


@final
class AdminTokens:
    """The accepted tokens, stored as hashes, so that the time of a comparison reveals nothing."""

    def __init__(self, grants: Iterable[AdminGrant]) -> None:
        self._grants = {
            _digest(grant.token): AdminGrant(grant.name, grant.role) for grant in grants
        }

    def grant(self, token: str) -> AdminGrant | None:
        """Return name and role of ``token``; None if it is not accepted."""
        return self._grants.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
