"""The admin process: health checks, metrics, the API and the page of operators over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import OptionalBindAddress
from penstock.engine.values.change_effects import AT_ONCE, RESTART, takes_effect

Role = Literal["viewer", "operator", "admin"]


@takes_effect(AT_ONCE)
class Admin(SettingsGroup):
    """The admin process: health checks, metrics, the API and a page for operators over HTTP, beside
    the broker (docs/monitoring.md)."""

    bind: Annotated[OptionalBindAddress, RESTART] = ""
    """Address of the admin process, HOST:PORT; port 0 takes any free port. Empty: there is none. An
    address that other machines can reach is refused without a token_file or users."""

    token_file: str = ""
    """File of the tokens that may read metrics and use the API, one a line, with the role of each
    (docs/api.md). Empty: everyone who reaches the address may read metrics, and there is no API.
    Health checks need none. Read again at SIGHUP."""

    users: dict[Annotated[str, Field(min_length=1, max_length=100)], Role] = Field(
        default={}, max_length=1000
    )
    """The users of the broker that may log in on the page, and with a password on the API, each
    with a role: viewer, operator or admin, as in { alice = "operator" }. Their passwords are those
    of access.password_file, or checked by jwt_login or http_login. Empty: tokens only."""

    certificate: str = ""
    """PEM file of the certificate and its intermediate certificates: the process speaks HTTPS.
    Empty for none. Read again at SIGHUP, as well as the key."""

    key: str = ""
    """PEM file of the certificate's private key, without a password."""

    answer_s_max: float = Field(default=2.0, ge=0.1, le=60)
    """Time in seconds within which the broker must answer a health check; after that it counts as
    stuck. 0.1 to 60."""

    disk_free_bytes_min: int = Field(default=536_870_912, ge=0, le=2**62)
    """Free bytes on the file system of the data directory below which the broker is not ready. 0 to
    4611686018427387904."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Admin:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("admin.certificate and admin.key, two PEM files, belong together")
        if self.bind and not (self.bind.is_loopback or self.token_file or self.users):
            raise ValueError(
                f"admin.bind is {self.bind}, which other machines can reach, and metrics are for"
                " everyone there: bind to 127.0.0.1, or ask for a token with admin.token_file, or"
                " for a password with admin.users"
            )
        return self

    @property
    def file_options(self) -> tuple[str, ...]:
        """The command-line options that give the admin process its files."""
        options: list[str] = []
        if self.certificate:
            options += ["--certificate", self.certificate, "--key", self.key]
        if self.token_file:
            options += ["--token-file", self.token_file]
        return tuple(options)
