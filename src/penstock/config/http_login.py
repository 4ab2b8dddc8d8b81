"""An HTTP service that says who users are."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from pydantic import Field, model_validator

from penstock.config.group import Group


class HttpLogin(Group):
    """An HTTP service that says who users are, and what they may do; see docs/security.md."""

    url: str = ""
    """Its address, http:// or https://; it is asked about each user name that the password file
    does not have. Empty for none."""

    timeout_s: float = Field(default=3.0, ge=0.1, le=60)
    """How long one request may take, in seconds. What takes longer lets nobody in. 0.1 to 60."""

    cache_s: int = Field(default=60, ge=0, le=86_400)
    """How long an answer for one client with one password holds, in seconds. 0 to 86400."""

    requests_max: int = Field(default=16, ge=1, le=1000)
    """Requests at the same time, a thread each. 1 to 1000."""

    ca_file: str = ""
    """PEM file of authorities that sign its certificate; empty for those of the system."""

    token_file: str = ""
    """File with one line that is shown to it: `Authorization: Bearer …`. Empty for none."""

    @model_validator(mode="after")
    def _is_a_place(self) -> HttpLogin:
        if not self.url:
            return self
        parts = urlsplit(self.url)
        is_web = parts.scheme in ("http", "https") and not parts.fragment
        if not is_web or not parts.hostname or not _has_port(parts):
            raise ValueError(
                f"http_login.url is {self.url!r}, but must be http://HOST[:PORT]/PATH or https://…"
            )
        if parts.username is not None:
            raise ValueError(
                "http_login.url must have no user name or password in it: use http_login.token_file"
            )
        if self.ca_file and parts.scheme != "https":
            raise ValueError("http_login.ca_file is for https://, and http_login.url is http://")
        return self


def _has_port(parts: SplitResult) -> bool:
    """Return whether the port is one, or left out."""
    try:
        return parts.port != 0
    except ValueError:
        return False
