"""A schema registry, by whose ids payloads name their schema."""

from __future__ import annotations

from pydantic import Field, model_validator

from penstock.config.group import Group
from penstock.config.values import LocalDirectory
from penstock.config.web_url import check_web_url


class RegistryDefinition(Group):
    """A schema registry that speaks Confluent's REST API."""

    url: str
    """Its address, http:// or https://."""

    subject: str = ""
    """The subject whose schema gives the columns, where the declaration names none; and the schema
    that Avro records are resolved to, without a schema_file."""

    version: int = Field(default=0, ge=0, le=2**31 - 1)
    """The version of the subject; 0 for the newest one when a job starts. 0 to 2147483647."""

    ca_file: str = ""
    """PEM file of authorities that sign its certificate; empty for those of the system."""

    login_file: str = ""
    """File with one line USER:PASSWORD that is shown to it. Empty for none."""

    token_file: str = ""
    """File with one line that is shown to it: `Authorization: Bearer …`. Empty for none."""

    timeout_s: float = Field(default=5.0, ge=0.1, le=60)
    """How long one request may take, in seconds. 0.1 to 60."""

    cache_dir: LocalDirectory = "schemas"
    """Directory of schemas that were read from the registry, and are not read again; a relative
    path starts at the working directory. On a cluster each machine needs one."""

    @model_validator(mode="after")
    def _is_a_place(self) -> RegistryDefinition:
        check_web_url("registry", self.url, self.ca_file, "login_file")
        if self.login_file and self.token_file:
            raise ValueError("registry.login_file and registry.token_file exclude each other")
        return self
