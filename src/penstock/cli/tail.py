"""`penstock tail`: its options; `tailing` does the work."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.log_options import LogOptions
from penstock.cli.option_groups import grouped
from penstock.cli.printing import PrintOptions
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.errors import ConfigError

FURTHER: Final = """\
\b
  penstock tail                                     the last ten messages
  penstock tail -t 'plant/#' --follow               and what comes
  penstock tail --from 08:00 --until 08:10 --json   ten minutes of this morning
  penstock tail --from 1234 -F '%o %t %p'           from an offset on
  penstock tail --from -1h --output hour.parquet    an hour, as a file

A line has the local time at which the broker received the message, its offset, topic and payload.
-F knows %o offset, %e epoch and %c publisher beside the codes of 'penstock sub'. It reads the log,
not the broker: retained flags are as published, and sessions have no part in it.
"""

DEFAULT_LAST: Final = 10


@grouped
def tail(
    *,
    chosen: LogOptions,
    printing: PrintOptions,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write a file that ends in .parquet, .arrow, .csv, .json or .jsonl.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is there.")
    ] = False,
    access: StreamCredentialOptions,
) -> None:
    """Print messages of the log, by time, offset and topic."""
    if follow and chosen.until is not None:
        raise ConfigError("--follow goes on until Ctrl-C: leave out --until")
    if chosen.begin is None and chosen.until is None and chosen.last is None:
        chosen = replace(chosen, last=DEFAULT_LAST)
    formatter = printing.formatter(on_terminal=output is None and sys.stdout.isatty(), of_log=True)
    from penstock.cli.client_program import run_until_signal
    from penstock.cli.tailing import FileSink, OutputSink, Tailing

    if output is None:
        sink: OutputSink | FileSink = OutputSink(formatter)
    else:
        if printing.json or printing.form is not None or printing.verbose:
            raise ConfigError("the name of --output says the format: leave out --json, -F and -v")
        sink = FileSink(output, force=force)
    raise typer.Exit(run_until_signal(Tailing(chosen, access, sink, follow=follow).run()))
