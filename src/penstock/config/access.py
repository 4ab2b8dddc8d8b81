"""Who may connect, and what they may do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.group import Group


class Access(Group):
    """Who may connect, and what they may do there. SIGHUP reads both files again."""

    password_file: str = ""
    """File with the users and their passwords, written by `penstock passwd`; empty for none.
    With one, only its users get in, and clients without a user name by allow_anonymous."""

    acl_file: str = ""
    """File with the access list: who may publish and subscribe where, see docs/security.md.
    Empty for none: everyone who got in may do everything."""

    checks_waiting_max: int = Field(default=1000, ge=1, le=1_000_000)
    """Clients whose password is being checked or waits for it; further ones are refused as the
    server is busy. What a check costs: docs/security.md. 1 to 1000000."""

    verified_s: int = Field(default=300, ge=0, le=86_400)
    """How long a password that was right need not be checked again, in seconds: a client that
    reconnects costs nothing then. 0 to 86400; 0 checks every time."""

    client_ids_shared: bool = False
    """Let a user take up, or end, the session of another user who has the same client identifier.
    Without it a session belongs to the user who made it, anonymous clients being one user, and
    others are refused (0x87; before MQTT 5 return code 5)."""

    identity_from_certificate: Literal["", "common_name", "subject"] = ""
    """What of a client's certificate, which listener.client_ca signed, is its user name:
    "common_name", or "subject" in the form of RFC 4514, such as CN=meter-7,O=Example. What CONNECT
    says is not asked then, and the password file need not name these users. Empty: nothing, and
    a certificate opens the connection only."""
