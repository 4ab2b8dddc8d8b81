"""The options of `penstock top`; Textual is imported only when the screen is shown."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.operator_commands import (
    AsJson,
    Client,
    Peer,
    User,
    operator_name,
    session_filter_of,
)
from penstock.cli.options import ConfigFile, DataDir
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.cli.top.broker_api import BrokerApi

BY_WORDS: Final = "limited|rate|queue|window|unsent|dropped"

EPILOG: Final = """\
\b
  penstock top                                     the broker of this data directory
  penstock top --url https://broker:8080 --token-file token
  penstock top --by queue --client 'press-*'       some clients, the longest queues first
  penstock top --batch -n 1                        for a ticket: one sample, plain text
  penstock top --json --every 10                   for a pipe: one object each ten seconds

On the screen '?' lists the keys. docs/top.md explains the figures.
"""


def top(
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An admin process, instead of the data directory."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A token file; its first token is used.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="CA of its certificate, PEM.")
    ] = None,
    every_s: Annotated[
        float,
        typer.Option("--every", min=0.5, max=3600, metavar="SECONDS", help="Time between samples."),
    ] = 1.0,
    by: Annotated[
        str, typer.Option("--by", metavar=BY_WORDS, help="Measure to rank clients by.")
    ] = "limited",
    client: Client = None,
    user: User = None,
    address: Peer = None,
    rows: Annotated[int, typer.Option("--rows", min=1, max=1000, help="Most clients shown.")] = 50,
    batch: Annotated[
        bool, typer.Option("--batch", help="Print each sample as plain text; needs no Textual.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("-n", min=1, metavar="COUNT", help="Samples to print.")
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Show a running broker: rates, latencies, memory, and clients by the limits they are at."""
    is_batch = batch or as_json or count is not None
    if not is_batch and find_spec("textual") is None:
        raise ConfigError(
            'the screen needs Textual: pip install "penstock[top]"; without it there is --batch'
        )
    from penstock.cli.top.columns import MEASURES
    from penstock.cli.top.poller import PollRequest

    measure = next((measure for measure in MEASURES if measure == by), None)
    if measure is None:
        raise ConfigError(f"--by must be one of {', '.join(MEASURES)}, not {by!r}")
    api = _api(url, token_file, ca, config, data_dir)
    request = PollRequest(measure, session_filter_of(client, user, address, None, None), rows)
    if is_batch:
        from penstock.cli.top.batch import print_samples

        with contextlib.suppress(KeyboardInterrupt):
            print_samples(api, request, every_s, count, as_json=as_json)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("the screen needs a terminal; --batch prints plain text")
    from penstock.cli.top.screens.app import show

    show(api, request, every_s)


def _api(
    url: str | None,
    token_file: Path | None,
    ca: Path | None,
    config: Path | None,
    data_dir: Path | None,
) -> BrokerApi:
    from penstock.cli.top.broker_api import AdminApi, ControlSocket

    if url is None:
        if token_file is not None or ca is not None:
            raise ConfigError("--token-file and --ca belong to --url")
        from penstock.config.load import load_settings

        settings = load_settings(config, {"durability.data_dir": data_dir})
        return ControlSocket(settings.durability.data_dir, operator_name(os.environ))
    if token_file is None:
        raise ConfigError("the API needs a token: --token-file FILE")
    from penstock.auth.admin_tokens import read_admin_grants

    return AdminApi(url, read_admin_grants(token_file)[0].token, ca)
