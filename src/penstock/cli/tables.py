"""`penstock tables`: land messages in the tables that the configuration declares.

Everything is imported when a command runs, so that `penstock --help` needs no Spark.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.dead_letter_causes import cause_line, count_causes
from penstock.cli.infer import infer
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.screen import Screen, print_heading, print_pairs
from penstock.cli.spark_jobs import (
    AcceptDataLoss,
    AvailableNow,
    ConnectTimeout,
    DryRun,
    Full,
    Master,
    OlderThan,
    Verbose,
    exit_on_sigterm,
    print_removed,
    print_traceback_if,
    require_spark,
    stop_on_signals,
)
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.cli.table_lines import truncate
from penstock.cli.table_rows import erased_line, lost_line, print_lost_rows, print_rows
from penstock.errors import ConfigError
from penstock.telemetry.logs import configure_logs, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.failure_file import TableFailure
    from penstock.spark.table_selection import AnyTable
    from penstock.spark.tables.status import TableStatus
    from penstock.stream.credentials import Credentials

SERVER_ANSWER_S_MAX: Final = 1.0

CAUSES_MAX: Final = 20
REASON_CELLS_MAX: Final = 400
"""Most terminal cells of a line with a cause of dead letters, without ``--full``."""

app = typer.Typer(
    no_args_is_help=True, help="Land messages in declared tables, and maintain the tables."
)
app.command()(expand_option_groups(infer))

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="The tables; default: all.")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="A TOML file with [[tables.declared]]."),
]
Server = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,…", help="The stream service, if not at stream.bind."),
]


@app.command()
@expand_option_groups
def run(
    access: StreamCredentialOptions,
    names: Names = None,
    config: Config = None,
    available_now: AvailableNow = False,
    trigger: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            max=86_400.0,
            help="Shortest time from one commit to the next, for all; not their commit_s_min.",
        ),
    ] = None,
    server: Server = None,
    master: Master = None,
    accept_data_loss: AcceptDataLoss = False,
    connect_timeout: ConnectTimeout = 60.0,
    verbose: Verbose = False,
) -> None:
    """Land messages in the declared tables, each exactly once, and fill derived tables.

    A table that fails is tried again, with growing pauses, and stops no other one. Run it again
    after any end, even a crash: it continues where the tables end.
    """
    from penstock.cli.table_display import tables_display

    tables, (address, credentials) = _select_tables(config, names, server, access)
    with require_spark():
        from penstock.spark.jobs.tables import RunSettings, TablesRun
        from penstock.spark.session import LOCAL_MASTER

    settings = RunSettings(
        server=address,
        credentials=credentials,
        available_now=available_now,
        trigger_s=trigger,
        connect_timeout_s=connect_timeout,
        fail_on_data_loss=not accept_data_loss,
        master=master or LOCAL_MASTER,
    )
    with tables_display(Screen(), [table.name for table in tables]) as show:
        configure_logs("debug" if verbose else "warning")  # after the live display has started
        landings = TablesRun(tables, settings, show)
        stop_on_signals(landings.stop)
        landings.run()


@app.command()
@expand_option_groups
def status(
    access: StreamCredentialOptions,
    names: Names = None,
    config: Config = None,
    server: Server = None,
) -> None:
    """Show the content of the tables, and how far they are behind the log."""
    tables, (address, credentials) = _select_tables(config, names, server, access)
    with require_spark():
        from penstock.spark.tables.status import table_status
        from penstock.stream.client import StreamClient
    with StreamClient(address, SERVER_ANSWER_S_MAX, credentials) as client:
        for table in tables:
            state = table_status(table, client, table.job_dir)
            print_heading(table.name)
            print_pairs(_status_pairs(table, state), indent=2)


@app.command()
def lost(
    names: Names = None,
    config: Config = None,
    rows: Annotated[
        int, typer.Option("--rows", "-n", min=1, max=100_000, help="Most rows of each table.")
    ] = 20,
    full: Full = False,
) -> None:
    """Show rows and dead letters of messages that the log no longer has.

    An older copy of the broker's data directory was put back after they had landed.
    """
    tables = _load_tables(config, names)
    with require_spark():
        from penstock.spark.tables.lost_rows import find_lost_rows
    for table in tables:
        opened = table.open()
        found = find_lost_rows(opened, table.selection)
        if not found:
            print_heading(f"{table.name}: the log has all that has landed, as far as its job knows")
        for one in found:
            print_heading(f"{table.name}: {lost_line(one)}")
            for part in opened.values():
                print_lost_rows(part, one.span, rows, full=full)


@app.command()
@expand_option_groups
def backfill(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table.")],
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="An offset, or a time in ISO 8601.")
    ],
    end: Annotated[str, typer.Option("--to", metavar="WHERE", help="The same; it is excluded.")],
    access: StreamCredentialOptions,
    config: Config = None,
    server: Server = None,
    master: Master = None,
    accept_data_loss: AcceptDataLoss = False,
    restore_deleted: Annotated[
        bool,
        typer.Option(
            "--restore-deleted",
            help="Also messages that landed and whose rows were deleted since.",
        ),
    ] = False,
    connect_timeout: ConnectTimeout = 60.0,
    verbose: Verbose = False,
) -> None:
    """Read a range of the log again, and replace the rows of the table that came from it.

    Use it after a column was declared, or for messages before the table began. Times without a
    UTC offset are UTC. Rows that were deleted from the table stay deleted, and are reported.
    """
    limits = _parse_limit("--from", start), _parse_limit("--to", end)
    if _is_empty(*limits):
        raise ConfigError(f"--from {start} is not before --to {end}")
    exit_on_sigterm()
    (table,), (address, credentials) = _select_tables(config, [name], server, access)
    with require_spark():
        from penstock.spark.derived.derived_table import DerivedTable
        from penstock.spark.jobs.backfill import backfill as fill
        from penstock.spark.jobs.settings import LOG_NAME
        from penstock.spark.jobs.tables import RunSettings
        from penstock.spark.session import LOCAL_MASTER, local_spark

    if isinstance(table, DerivedTable):
        raise ConfigError(
            f"table {name} is derived, and has no ranges to replace: remove {table.location} and"
            " run it again, to compute it anew from what is in the log"
        )
    settings = RunSettings(
        server=address,
        credentials=credentials,
        connect_timeout_s=connect_timeout,
        fail_on_data_loss=not accept_data_loss,
        master=master or LOCAL_MASTER,
    )
    log = table.job_dir / LOG_NAME
    title = f"penstock tables backfill {name}"
    with print_traceback_if(verbose), local_spark(title, settings.master, log) as spark:
        for filled in fill(spark, table, settings, *limits, restores_erased=restore_deleted):
            print(
                f"offsets {filled.span.start} to {filled.span.end - 1}: {filled.rows:,} rows,"
                f" {filled.dead_letters:,} dead letters"
            )
            if filled.erased is not None:
                print(printable(erased_line(filled.erased, is_restored=restore_deleted)))


@app.command()
@expand_option_groups
def validate(
    access: StreamCredentialOptions,
    names: Names = None,
    config: Config = None,
    server: Server = None,
    sample: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="Messages to look at.")
    ] = 1000,
    rows: Annotated[
        int, typer.Option("--rows", "-n", min=0, max=1000, help="Rows to show of each table.")
    ] = 5,
    full: Full = False,
) -> None:
    """Try the declarations on the latest messages; nothing is written.

    Shows columns, rows, and why messages would be dead letters; of a derived table only the
    columns.
    """
    tables, (address, credentials) = _select_tables(config, names, server, access)
    with require_spark():
        from penstock.spark.derived.derived_table import DerivedTable
        from penstock.spark.tables.dry_run import land_sample
        from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
        from penstock.stream.client import StreamClient
    with StreamClient(address, SERVER_ANSWER_S_MAX, credentials) as client:
        samples = [
            (table, {} if isinstance(table, DerivedTable) else land_sample(table, client, sample))
            for table in tables
        ]
    for table, parts in samples:
        if isinstance(table, DerivedTable):
            title = f"{table.name}: from {table.definition.source}, {table.derivation.description}"
            print_heading(title)
            print_rows(table.schema.empty_table())
            continue
        landed, dead_letters = parts.get(ROWS), parts.get(DEAD_LETTERS)
        counts = [0 if part is None else part.num_rows for part in (landed, dead_letters)]
        if not any(counts):
            print_heading(f"{table.name}: no message in the log matches {table.definition.topics}")
            continue
        print_heading(f"{table.name}: {counts[0]:,} rows, {counts[1]:,} dead letters")
        if landed is not None:
            print_rows(landed.slice(max(0, landed.num_rows - rows)), full=full)
        if dead_letters is not None:
            _print_causes(dead_letters, full=full)


@app.command()
def vacuum(
    names: Names = None,
    config: Config = None,
    older_than: OlderThan = 24,
    dry_run: DryRun = False,
) -> None:
    """Remove files of killed jobs, and files that upkeep and backfills have replaced."""
    tables = _load_tables(config, names)
    with require_spark():
        files = [
            file
            for table in tables
            for part in table.open().values()
            for file in part.remove_orphans(older_than, remove=not dry_run)
        ]
    print_removed(files, dry_run=dry_run)


def _select_tables(
    config: Path | None,
    names: list[str] | None,
    server: str | None,
    access: StreamCredentialOptions,
) -> tuple[list[AnyTable], tuple[str, Credentials]]:
    """Return the named tables, and the address and the credentials of the stream service."""
    from penstock.config.load import load_settings

    tables = _load_tables(config, names)
    return tables, reach_stream(load_settings(config), server, access)


def _load_tables(config: Path | None, names: list[str] | None) -> list[AnyTable]:
    from penstock.config.load import load_settings

    with require_spark():
        from penstock.spark.table_selection import select_tables

        return select_tables(load_settings(config), names or [])


def _print_causes(dead_letters: pa.Table, *, full: bool) -> None:
    columns = (dead_letters.column(name).to_pylist() for name in ("kind", "reason", "offset"))
    causes = count_causes(zip(*columns, strict=True))
    shown = causes if full else causes[:CAUSES_MAX]
    for cause in shown:
        line = printable(cause_line(cause))
        print(f"  {line if full else truncate(line, REASON_CELLS_MAX)}")
    if len(shown) < len(causes):
        rest = sum(cause.count for cause in causes[len(shown) :])
        print(f"  {rest:,} for {len(causes) - len(shown):,} other causes; --full shows them")


def _parse_limit(option: str, text: str) -> int | datetime:
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} must be an offset or a time such as 2026-11-22T18:00:00, not {text!r}"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _is_empty(start: int | datetime, end: int | datetime) -> bool:
    """Return whether the range is empty; False if one limit is an offset and the other a time."""
    if isinstance(start, int) and isinstance(end, int):
        return start >= end
    return isinstance(start, datetime) and isinstance(end, datetime) and start >= end


def _status_pairs(table: AnyTable, found: TableStatus) -> list[tuple[str, str]]:
    from penstock.spark.tables.landed_table import DEAD_LETTERS

    rows, dead_letters, lag = found.rows, found.dead_letters, found.lag
    behind = "unknown: no stream service answers"
    if lag is not None:
        behind = f"{lag.offsets:,} offsets, {lag.seconds:,.1f} s"
    lines = [("rows", "none yet" if rows is None else f"{rows.rows:,}")]
    if rows is not None:
        lines += [("files", f"{rows.files:,}, {rows.size_bytes:,} bytes")]
        if DEAD_LETTERS in table.open():
            lines += [("dead letters", f"{0 if dead_letters is None else dead_letters.rows:,}")]
        last = f"{found.landed_end - 1:,}" if found.landed_end else "unknown"
        lines += [("last offset", last)]
    lines += [("behind", behind)]
    lines += [("lost history", lost_line(lost)) for lost in found.lost]
    if found.per_second is not None:
        lines += [("pace", f"{found.per_second:,.0f} offsets a second, lately")]
    if found.watermark is not None:
        lines += [("complete until", f"{found.watermark:%Y-%m-%d %H:%M:%S} UTC")]
    if rows is not None:
        changed = f"{rows.changed_at:%Y-%m-%d %H:%M:%S} UTC, version {rows.version}"
        lines += [("last commit", changed)]
        if rows.oldest_at is not None:
            lines += [("oldest version", f"{rows.oldest_at:%Y-%m-%d %H:%M:%S} UTC")]
    lines += [("upkeep", text) for text in found.upkeep.sentences()]
    if found.failure is not None:
        lines += [_failure_line(found.failure)]
    return lines


def _failure_line(failure: TableFailure) -> tuple[str, str]:
    if failure.gave_up:
        return "gave up", f"{failure.at:%Y-%m-%d %H:%M:%S} UTC: {failure.sentence}"
    times = "once" if failure.attempts == 1 else f"{failure.attempts:,} times"
    since = f"since {failure.since:%Y-%m-%d %H:%M:%S} UTC"
    return "failing", f"{since}, {times}, the last time: {failure.sentence}"
