"""`penstock audit`: a report on messages and connections, from the broker's events.

Everything is imported when the command runs, so that `penstock --help` needs no Spark.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.option_groups import expand_option_groups
from penstock.cli.screen import Screen, print_pairs, print_table
from penstock.cli.spark_jobs import (
    ConnectTimeout,
    Master,
    exit_on_sigterm,
    local_directory,
    require_spark,
)
from penstock.cli.stream_service import StreamCredentialOptions, StreamPlace
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.spark.audit.job import AuditSettings
    from penstock.spark.audit.measures import Measures


class TableFormat(StrEnum):
    """The formats of the tables that an audit writes."""

    DELTA = "delta"
    PARQUET = "parquet"


@expand_option_groups
def audit(
    access: StreamCredentialOptions,
    place: StreamPlace,
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin of the events, as 2026-11-22T14:00, UTC or with +01:00.",
        ),
    ] = "",
    until: Annotated[
        str, typer.Option("--to", metavar="TIME", help="End of the events, excluded, as --from.")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Report to write, HTML.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=local_directory,
            help="Directory for the tables deliveries, connections and drops.",
        ),
    ] = None,
    table_format: Annotated[
        TableFormat, typer.Option("--format", help="Format of these tables.")
    ] = TableFormat.DELTA,
    landed: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE",
            parser=local_directory,
            help="A table of 'penstock table run': measure the time until messages were in it.",
        ),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Show the steps of the message at this offset."),
    ] = None,
    connect_timeout: ConnectTimeout = 60.0,
    master: Master = None,
) -> None:
    """Report how messages and connections ended.

    Reads the stream of events (events.enabled) with Spark; writes a report, tables, or both, and
    prints a summary. With --offset it shows the steps of one message instead.
    """
    with require_spark():
        from penstock.spark.audit.job import AuditSettings, trace_message
        from penstock.spark.audit.job import audit as run_audit
        from penstock.spark.session import LOCAL_MASTER
    address, credentials = place.reach(access)
    settings = AuditSettings(
        server=address,
        since=_parse_time("--from", since),
        until=_parse_time("--to", until),
        output=output,
        tables=tables,
        table_format=table_format.value,
        landed_table=None if landed is None else landed.absolute(),
        connect_timeout_s=connect_timeout,
        credentials=credentials,
        master=master or LOCAL_MASTER,
    )
    exit_on_sigterm()
    if offset is None:
        with _reading(address):
            measures = run_audit(settings)
        _print_summary(measures, settings)
        return
    with _reading(address):
        steps = trace_message(settings, offset)
    if not steps:
        raise ConfigError(
            f"no event tells of offset {offset}: its topic is in no events.topic_filters, it was"
            " not in the sample, or it is outside of the range"
        )
    first_at = steps[0].at
    rows = (
        (
            f"{step.at:%Y-%m-%d %H:%M:%S.%f}",
            f"{(step.at - first_at).total_seconds() * 1000:>9,.1f}",
            step.kind,
            step.client or "",
            step.details,
        )
        for step in steps
    )
    print_table(("at (UTC)", "ms", "what", "client", "details"), rows)


def _reading(address: str) -> AbstractContextManager[object]:
    """Show on standard error that Spark starts, because that takes some seconds."""
    console = Screen(stderr=True)
    progress = f"Spark starts, and reads the events of {address}"
    if console.is_terminal:
        return console.status(progress)
    print(progress, file=sys.stderr, flush=True)
    return nullcontext()


def _print_summary(measures: Measures, settings: AuditSettings) -> None:
    pairs = (
        ("messages followed", f"{measures.messages:,}"),
        ("deliveries", f"{measures.deliveries:,}"),
        *((f"  {state}", f"{count:,}") for state, count in measures.states.items()),
        ("dropped in all", f"{sum(measures.drops_by_reason.values()):,}"),
        ("connections", f"{measures.connections:,}"),
        ("report", str(settings.output or "none: see --output")),
        ("tables", str(settings.tables or "none: see --tables")),
    )
    print_pairs(pairs)


def _parse_time(option: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} must be a time such as 2026-11-22T14:00, not {text!r}"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
