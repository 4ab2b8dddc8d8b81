"""The options that select messages of the log, for `penstock tail` and `penstock replay`.

`log_selection` finds and reads the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.damaged_log import SkipDamaged, damage_handler
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.stream.client import StreamClient

LAST_MAX: Final = 1_000_000
"""Most messages that --last may select: their offsets are in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options that select messages of the log."""

    topics: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", metavar="FILTER", help="Only these topics; repeat it."),
    ] = None
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Begin at an offset, a time (08:10, 'yesterday 08:10', 2026-11-26T08:10), an age"
            " (-10m), or earliest.",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="WHERE",
            help="End before this, as --from. A time of day is the first one after --from.",
        ),
    ] = None
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, max=LAST_MAX, metavar="N", help="Only the last so many."),
    ] = None
    stream: Annotated[
        str, typer.Option(metavar="NAME", help="The stream of the broker to read.")
    ] = "messages"
    skip_damaged: SkipDamaged = False
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The stream service; as the settings say."),
    ] = None
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The broker's TOML file.")
    ] = None
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The broker's data directory.")
    ] = None

    def client(self, access: StreamCredentialOptions, connect_timeout_s: float) -> StreamClient:
        """Return a client of the stream service, not connected.

        Raises:
            ConfigError: the options or the settings have a mistake.
        """
        from penstock.config.load import load_settings
        from penstock.stream.client import StreamClient
        from penstock.stream.requests import find_invalid_filter

        invalid = find_invalid_filter(self.topics or ())
        if invalid is not None:
            raise ConfigError(f"-t: not a topic filter: {invalid!r}")
        settings = load_settings(self.config, {"durability.data_dir": self.data_dir})
        address, credentials = reach_stream(settings, self.server, access, self.data_dir)
        on_damage = damage_handler(skips=self.skip_damaged)
        return StreamClient(address, connect_timeout_s, credentials, on_damage)
