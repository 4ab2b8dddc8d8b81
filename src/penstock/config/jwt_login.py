"""JSON Web Tokens as passwords."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.group import SettingsGroup

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "HS256", "HS384", "HS512",
]  # fmt: skip


class JwtLogin(SettingsGroup):
    """JSON Web Tokens as passwords (RFC 7519); see docs/security.md. Needs penstock[jwt]."""

    keys: str = ""
    """The keys that sign tokens: path of a JSON Web Key Set, which is read again when it has
    changed, or its https:// or http:// URL. Empty accepts no tokens."""

    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "ES256", "EdDSA"), min_length=1)
    """Signature algorithms that are accepted."""

    audience: str = ""
    """Audience that a token must have (`aud`); empty for any."""

    issuer: str = ""
    """Issuer that a token must have (`iss`); empty for any."""

    user_claim: str = Field(default="sub", min_length=1)
    """The claim that is the user name; a user name in CONNECT must be the same."""

    acl_claim: str = Field(default="acl", min_length=1)
    """The claim that is the access list; without it in a token, access.acl_file decides."""

    refresh_s: int = Field(default=3600, ge=30, le=604_800)
    """How often keys at a URL are read again, in seconds. 30 to 604800."""
