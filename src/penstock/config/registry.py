"""A schema registry, from which schemas are read by the ids that payloads carry."""

from __future__ import annotations

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import LocalDirectory
from penstock.config.web_url import check_web_url


class RegistryDefinition(SettingsGroup):
    """A schema registry that speaks Confluent's REST API."""

    url: str
    """URL of the registry, http:// or https://."""

    subject: str = ""
    """The subject whose schema gives the columns, where the declaration names none; also the schema
    that Avro records are resolved to, without a schema_file."""

    version: int = Field(default=0, ge=0, le=2**31 - 1)
    """The version of the subject; 0 for the newest one when a job starts. 0 to 2147483647."""

    ca_file: str = ""
    """PEM file of the authorities that sign the registry's certificate; empty for those of the
    system."""

    login_file: str = ""
    """File with one line USER:PASSWORD, the login at the registry. Empty for none."""

    token_file: str = ""
    """File with one line, a token that is sent to the registry: `Authorization: Bearer …`. Empty
    for none."""

    timeout_s: float = Field(default=5.0, ge=0.1, le=60)
    """How long one request may take, in seconds. 0.1 to 60."""

    cache_dir: LocalDirectory = "schemas"
    """Directory of schemas that were read from the registry, and are not read again; a relative
    path starts at the working directory. On a Spark cluster each machine needs its own."""

    @model_validator(mode="after")
    def _url_and_logins_fit(self) -> RegistryDefinition:
        check_web_url("registry", self.url, self.ca_file, "login_file")
        if self.login_file and self.token_file:
            raise ValueError("registry.login_file and registry.token_file exclude each other")
        return self
