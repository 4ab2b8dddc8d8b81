"""An HTTP service that authenticates users."""

from __future__ import annotations

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.web_url import check_web_url


class HttpLogin(SettingsGroup):
    """An HTTP service that authenticates users and gives their permissions; see
    docs/security.md."""

    url: str = ""
    """URL of the service, http:// or https://; it is asked about each user name that the password
    file does not have. Empty for none."""

    timeout_s: float = Field(default=3.0, ge=0.1, le=60)
    """Time limit of one request, in seconds; a request that takes longer lets no client in. 0.1 to
    60."""

    cache_s: int = Field(default=60, ge=0, le=86_400)
    """How long an answer for one client with one password is remembered, in seconds. 0 to 86400."""

    requests_max: int = Field(default=16, ge=1, le=1000)
    """Most requests at the same time, a thread each. 1 to 1000."""

    ca_file: str = ""
    """PEM file of the authorities that sign the service's certificate; empty for those of the
    system."""

    token_file: str = ""
    """File with one line, a token that is sent to the service: `Authorization: Bearer …`. Empty for
    none."""

    @model_validator(mode="after")
    def _url_is_valid(self) -> HttpLogin:
        if not self.url:
            return self
        check_web_url("http_login", self.url, self.ca_file, "token_file")
        return self
