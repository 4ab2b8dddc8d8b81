"""The options of a command for the stream service: address and credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config.settings import Settings
    from penstock.stream.credentials import Credentials

SERVER: Final = "127.0.0.1:8815"

Server = Annotated[
    str,
    typer.Option(metavar="HOST:PORT,…", help="The broker's stream service; of a cluster, all."),
]


@dataclass(frozen=True, slots=True)
class StreamCredentialOptions:
    """The options for TLS and the token. A token itself is never on the command line."""

    tls: Annotated[bool, typer.Option("--tls", help="The stream service speaks TLS.")] = False
    tls_ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CA of its certificate, PEM; implies --tls."),
    ] = None
    tls_cert_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Our own certificate, PEM, where it asks for one."),
    ] = None
    tls_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token that the stream service asks for."),
    ] = None

    def reach(self, server: str) -> tuple[str, Credentials]:
        """Return the address and the credentials for the service at `server`; raise ConfigError if
        `server` is no address.

        In a cluster `server` has several addresses, separated by commas.
        """
        from penstock.spark.option_values import parse_service_addresses
        from penstock.stream.credentials import Credentials

        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError("--tls-cert-file and --tls-key-file, two PEM files, belong together")
        server_addresses, uses_tls = parse_service_addresses("--server", server)
        tls_files = (self.tls_ca_file, self.tls_cert_file)
        return server_addresses, Credentials(
            self.tls or uses_tls or any(tls_files),
            _path(self.tls_ca_file),
            token_file=_path(self.token_file),
            certificate_file=_path(self.tls_cert_file),
            key_file=_path(self.tls_key_file),
        )


def reach_stream(
    settings: Settings, server: str | None, access: StreamCredentialOptions
) -> tuple[str, Credentials]:
    """Return address and credentials of the broker's stream service, from settings and options.

    If the user may read the broker's own token in the data directory, and the options give no
    server and no token, that token is used.
    """
    from penstock.auth.tokens import OWN_FILE

    if settings.stream.certificate:
        access = replace(access, tls=True)
    own_token = settings.durability.data_dir / OWN_FILE
    if server is None and access.token_file is None and os.access(own_token, os.R_OK):
        access = replace(access, token_file=own_token)
    return access.reach(server or str(settings.stream.bind))


def _path(file: Path | None) -> str:
    return "" if file is None else str(file.absolute())
