"""Authentication and permissions of clients."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import Network
from penstock.engine.values.change_effects import AT_ONCE, NEW_CONNECTIONS, takes_effect


@takes_effect(AT_ONCE)
class Access(SettingsGroup):
    """Users, their permissions, and the delays and bans after wrong passwords. A reload reads
    password_file and acl_file again."""

    password_file: str = ""
    """File with the users and their passwords, written by `penstock passwd`; empty for none. With a
    password file, only its users are let in, and clients without a user name where allow_anonymous
    is true."""

    acl_file: str = ""
    """File with the access list, the permissions to publish and subscribe, see docs/security.md.
    Empty for none: every client that is let in may do everything."""

    checks_waiting_max: int = Field(default=1000, ge=1, le=1_000_000)
    """Most clients whose password is being checked or waits to be checked; further ones are refused
    as "server busy". For the cost of a check see docs/security.md. 1 to 1000000."""

    verified_s: int = Field(default=300, ge=0, le=86_400)
    """Time in seconds after a client has disconnected in which its password is not checked again,
    so that reconnecting after an outage costs nothing; at least half of the time is granted. 0 to
    86400; 0 checks every time."""

    failures_burst: int = Field(default=10, ge=0, le=1000)
    """Wrong passwords of one address (IPv6: of one /64), or for one user name, within ban_within_s
    that cost no delay. Above it, their checks are done one at a time, each after a longer delay. 0
    to 1000."""

    failure_delay_s: float = Field(default=1.0, ge=0, le=3600)
    """Delay of the next check after the first failure above failures_burst, in seconds; each
    further failure doubles it. A client that would wait longer than 5 s is refused. 0 to 3600."""

    failure_delay_s_max: float = Field(default=10.0, ge=0, le=3600)
    """Longest delay of a check, in seconds. 0 to 3600."""

    ban_failures: int = Field(default=30, ge=0, le=1000)
    """Number of wrong passwords within ban_within_s after which an address is banned, and refused
    without a check. 0 to 1000; 0 never bans."""

    ban_within_s: int = Field(default=300, ge=1, le=86_400)
    """How long a wrong password counts, in seconds. 1 to 86400."""

    ban_s: int = Field(default=600, ge=1, le=31_536_000)
    """How long a ban lasts, in seconds. 1 to 31536000."""

    ban_exempt: tuple[Network, ...] = Field(default=("127.0.0.0/8", "::1/128"), max_length=1000)
    """Networks whose addresses many users share, such as those of load balancers without the PROXY
    protocol: wrong passwords from there count by user name alone."""

    client_ids_shared: bool = False
    """Let a user resume or end the session of another user with the same client identifier. With
    false, a session belongs to the user that made it, all anonymous clients being one user, and
    others are refused (0x87; before MQTT 5 return code 5)."""

    identity_from_certificate: Annotated[Literal["", "common_name", "subject"], NEW_CONNECTIONS] = (
        ""
    )
    """The part of a client's certificate, signed by listener.client_ca, that is its user name:
    "common_name", of which there must be exactly one, or "subject" in the form of RFC 4514, such as
    CN=meter-7,O=Example. The identity of a pre-shared key counts as a common name. User name and
    password in CONNECT are ignored then, and the password file need not name these users. Empty:
    none, and a certificate opens the connection only."""

    @model_validator(mode="after")
    def _delays_grow(self) -> Access:
        if self.failure_delay_s > self.failure_delay_s_max:
            raise ValueError(
                f"access.failure_delay_s is {self.failure_delay_s:g} and must not be above"
                f" access.failure_delay_s_max, which is {self.failure_delay_s_max:g}"
            )
        return self
