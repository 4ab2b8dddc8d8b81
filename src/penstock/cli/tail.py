"""`penstock tail`: the options of the command; `tailing` does the work."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.log_options import LogOptions
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.options import EscapeFormulas
from penstock.cli.printing import PrintOptions
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.errors import ConfigError

EPILOG: Final = """\
\b
  penstock tail                                     the last ten messages
  penstock tail -t 'plant/#' --follow               and new messages, until Ctrl-C
  penstock tail --from 08:00 --until 08:10 --json   ten minutes of this morning
  penstock tail --from 1234 -F '%o %t %p'           from an offset on
  penstock tail --from -1h --output hour.parquet    an hour, as a file

A line has the local time at which the broker received the message, its offset, topic and payload.
-F knows %o offset, %e epoch and %c publisher beside the codes of 'penstock sub'. The command reads
the log and uses no session: retained flags are as published.
"""

DEFAULT_LAST: Final = 10


@expand_option_groups
def tail(
    *,
    log_options: LogOptions,
    printing: PrintOptions,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new messages, until Ctrl-C.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write a file that ends in .parquet, .arrow, .csv, .json or .jsonl.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    escape_formulas: EscapeFormulas = False,
    access: StreamCredentialOptions,
) -> None:
    """Print messages of the log, by time, offset and topic."""
    if follow and log_options.until is not None:
        raise ConfigError("--follow continues until Ctrl-C: leave out --until")
    if log_options.begin is None and log_options.until is None and log_options.last is None:
        log_options = replace(log_options, last=DEFAULT_LAST)
    formatter = printing.formatter(
        on_terminal=output is None and sys.stdout.isatty(), from_log=True
    )
    from penstock.cli.client_program import run_until_signal
    from penstock.cli.tailing import FileSink, OutputSink, TailRun

    if output is None:
        sink: OutputSink | FileSink = OutputSink(formatter)
    else:
        if printing.json or printing.form is not None or printing.verbose:
            raise ConfigError("the name of --output decides the format: leave out --json, -F, -v")
        sink = FileSink(output, force=force, escape_formulas=escape_formulas)
    tail_run = TailRun(log_options, access, sink, follow=follow)
    raise typer.Exit(run_until_signal(tail_run.run()))
