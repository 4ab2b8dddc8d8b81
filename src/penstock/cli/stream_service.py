"""The options of a command for the stream service: address and credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ConfigFile, DataDir
from penstock.errors import ConfigError, PenstockError, StoreError

if TYPE_CHECKING:
    from penstock.config.settings import Settings
    from penstock.stream.credentials import Credentials


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """The options that say which broker's stream service is meant."""

    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The broker's stream service; of a cluster, all."),
    ] = None
    config: ConfigFile = None
    data_dir: DataDir = None

    def reach(
        self, access: StreamCredentialOptions, *, needs_broker: bool = False
    ) -> tuple[str, Credentials]:
        """Return address and credentials of the service; see ``reach_stream``."""
        if self.server is not None:
            return access.reach(self.server)
        from penstock.config.load import load_settings

        settings = load_settings(self.config, {"durability.data_dir": self.data_dir})
        return reach_stream(settings, None, access, self.data_dir, needs_broker=needs_broker)


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
    settings: Settings,
    server: str | None,
    access: StreamCredentialOptions,
    data_dir: Path | None = None,
    *,
    needs_broker: bool = False,
) -> tuple[str, Credentials]:
    """Return address and credentials of the broker's stream service.

    The broker that uses the data directory says where its service is. If none answers, it is where
    the settings say; a service that has another log than the directory is refused. If the user may
    read the broker's own token in the data directory, and the options give no server and no token,
    that token is used.

    Args:
        settings: the settings, with the data directory.
        server: the address that the user gave; None for none.
        access: the options for TLS and token.
        data_dir: the data directory that the user gave, whose broker must answer; None for none.
        needs_broker: whether the service asks the broker for what is wanted, so that a broker that
            hangs is told at once.

    Raises:
        ConfigError: an option has a mistake, the broker has no stream service, or the service at
            the address of the settings has another log.
        StoreError: no broker uses ``data_dir``, or it hangs and is needed.
    """
    from penstock.auth.tokens import OWN_FILE

    own_dir = settings.durability.data_dir
    if settings.stream.certificate:
        access = replace(access, tls=True)
    if server is not None:
        return access.reach(server)
    if access.token_file is None and os.access(own_dir / OWN_FILE, os.R_OK):
        access = replace(access, token_file=own_dir / OWN_FILE)
    told = _told_address(own_dir, must_answer=data_dir is not None, needs_broker=needs_broker)
    if told:
        return access.reach(told)
    address, credentials = access.reach(str(settings.stream.bind))
    _refuse_other_log(address, credentials, own_dir)
    return address, credentials


def _told_address(data_dir: Path, *, must_answer: bool, needs_broker: bool) -> str:
    """Return the URL that the broker which uses ``data_dir`` gives; empty if none answers."""
    from penstock.control.client import BrokerHangs, BrokerUnreachable, ask
    from penstock.control.metric_requests import Health, ReadHealth

    try:
        health = ask(data_dir, ReadHealth(), Health)
    except BrokerUnreachable:
        if must_answer:
            raise
        return ""
    except BrokerHangs:  # its stream service may work
        if needs_broker:
            raise
        return ""
    except StoreError:  # it is older than this
        return ""
    if not health.stream:
        raise ConfigError(
            f"the broker of {data_dir.absolute()} has no stream service: set stream.enabled, and"
            " durability.persistence to file"
        )
    return health.stream


def _refuse_other_log(address: str, credentials: Credentials, data_dir: Path) -> None:
    """Raise ConfigError if the service at ``address`` has another log than ``data_dir``; return if
    that is not known."""
    from penstock.store.watermark import read_watermark
    from penstock.stream.client import StreamClient

    try:
        watermark = read_watermark(data_dir)
        if watermark is None:
            return
        with StreamClient(address, 0.0, credentials) as client:
            log = client.offsets(next(iter(client.streams())))
    except (OSError, PenstockError):  # whoever reads from it is told
        return
    if watermark.epoch not in (log.epoch, *(epoch for epoch, _ in log.lineage)):
        raise ConfigError(
            f"the stream service at {address} has another log than {data_dir.absolute()}: it is of"
            f" epoch {log.epoch}, and not of {watermark.epoch}. Start the broker of that directory,"
            " or name the one that you mean with --server, --config or --data-dir"
        )


def _path(file: Path | None) -> str:
    return "" if file is None else str(file.absolute())
