"""`penstock tables`: land messages in the tables that the configuration declares.

Everything is imported when a command runs, so that `penstock --help` needs no Spark.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.dead_letter_causes import cause_line, causes
from penstock.cli.infer import infer
from penstock.cli.option_groups import grouped
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
    explained,
    print_removed,
    spark_installed,
    stop_on_signals,
)
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.cli.table_lines import cut
from penstock.cli.table_rows import print_rows
from penstock.errors import ConfigError
from penstock.telemetry.logs import configure_logs, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.failure_file import TableFailure
    from penstock.spark.table_selection import AnyTable
    from penstock.spark.tables.erased import ErasedMessages
    from penstock.spark.tables.status import TableStatus
    from penstock.stream.credentials import Credentials

SERVER_ANSWER_S_MAX: Final = 1.0

CAUSES_MAX: Final = 20
REASON_CELLS_MAX: Final = 400
"""Most terminal cells of a line with a cause of dead letters, unless ``--full`` is given."""

app = typer.Typer(
    no_args_is_help=True, help="Land messages in declared tables, and look after them."
)
app.command()(grouped(infer))

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
@grouped
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
    """Land messages in the tables, each exactly once, and fill those that are derived.

    A table that fails is tried again, with growing pauses, and ends no other one. Run it again
    however it ended: it continues where the tables are.
    """
    from penstock.cli.table_display import tables_display

    tables, (address, credentials) = _select_tables(config, names, server, access)
    with spark_installed():
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
        configure_logs("debug" if verbose else "warning")  # to where a live display puts lines
        landings = TablesRun(tables, settings, show)
        stop_on_signals(landings.stop)
        landings.run()


@app.command()
@grouped
def status(
    access: StreamCredentialOptions,
    names: Names = None,
    config: Config = None,
    server: Server = None,
) -> None:
    """Show what the tables hold, and how far they are behind the log."""
    tables, (address, credentials) = _select_tables(config, names, server, access)
    with spark_installed():
        from penstock.spark.jobs.landing import CHECKPOINT_NAME
        from penstock.spark.tables.status import table_status
        from penstock.stream.client import StreamClient
    with StreamClient(address, SERVER_ANSWER_S_MAX, credentials) as client:
        for table in tables:
            found = table_status(table, client, table.path / CHECKPOINT_NAME)
            print_heading(table.name)
            print_pairs(_lines(table, found), indent=2)


@app.command()
@grouped
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
            help="Also messages that landed and whose rows somebody has deleted since.",
        ),
    ] = False,
    connect_timeout: ConnectTimeout = 60.0,
    verbose: Verbose = False,
) -> None:
    """Read a range of the log again, and replace the rows that the table has of it.

    Use it after a column was declared, or for messages before the table began. Times without a
    UTC offset are UTC. Rows that were deleted from the table stay deleted, and are reported.
    """
    points = _point("--from", start), _point("--to", end)
    if _is_empty(*points):
        raise ConfigError(f"--from {start} is not before --to {end}")
    exit_on_sigterm()
    (table,), (address, credentials) = _select_tables(config, [name], server, access)
    with spark_installed():
        from penstock.spark.derived.derived_table import DerivedTable
        from penstock.spark.jobs.backfill import backfill as fill
        from penstock.spark.jobs.landing import CHECKPOINT_NAME, LOG_NAME
        from penstock.spark.jobs.tables import RunSettings
        from penstock.spark.session import LOCAL_MASTER, local_spark

    if isinstance(table, DerivedTable):
        raise ConfigError(
            f"table {name} is derived, and has no ranges to replace: remove {table.path} and run"
            " it again, to compute it anew from what is in the log"
        )
    settings = RunSettings(
        server=address,
        credentials=credentials,
        connect_timeout_s=connect_timeout,
        fail_on_data_loss=not accept_data_loss,
        master=master or LOCAL_MASTER,
    )
    log = table.path / CHECKPOINT_NAME / LOG_NAME
    title = f"penstock tables backfill {name}"
    with explained(verbose=verbose), local_spark(title, settings.master, log) as spark:
        for filled in fill(spark, table, settings, *points, restores_erased=restore_deleted):
            print(
                f"offsets {filled.span.start} to {filled.span.end - 1}: {filled.rows:,} rows,"
                f" {filled.dead_letters:,} dead letters"
            )
            if filled.erased is not None:
                print(printable(_erased_line(filled.erased, is_back=restore_deleted)))


@app.command()
@grouped
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

    Shows columns, rows, and why messages would be dead letters; of a derived table the columns.
    """
    tables, (address, credentials) = _select_tables(config, names, server, access)
    with spark_installed():
        from penstock.spark.derived.derived_table import DerivedTable
        from penstock.spark.tables.api import DEAD_LETTERS, ROWS
        from penstock.spark.tables.dry_run import land_sample
        from penstock.stream.client import StreamClient
    with StreamClient(address, SERVER_ANSWER_S_MAX, credentials) as client:
        samples = [
            (table, {} if isinstance(table, DerivedTable) else land_sample(table, client, sample))
            for table in tables
        ]
    for table, parts in samples:
        if isinstance(table, DerivedTable):
            title = f"{table.name}: from {table.definition.source}, {table.derivation.wording}"
            print_heading(title)
            print_rows(table.schema.empty_table())
            continue
        found, dead = parts.get(ROWS), parts.get(DEAD_LETTERS)
        counts = [0 if part is None else part.num_rows for part in (found, dead)]
        if not any(counts):
            print_heading(f"{table.name}: no message in the log matches {table.definition.topics}")
            continue
        print_heading(f"{table.name}: {counts[0]:,} rows, {counts[1]:,} dead letters")
        if found is not None:
            print_rows(found.slice(max(0, found.num_rows - rows)), full=full)
        if dead is not None:
            _print_causes(dead, full=full)


@app.command()
def vacuum(
    names: Names = None,
    config: Config = None,
    older_than: OlderThan = 24,
    dry_run: DryRun = False,
) -> None:
    """Remove the leftovers of killed jobs, and what upkeep and backfills have replaced."""
    tables = _declared(config, names)
    with spark_installed():
        found = [
            file
            for table in tables
            for one in table.open().values()
            for file in one.remove_orphans(older_than, remove=not dry_run)
        ]
    print_removed(found, dry_run=dry_run)


def _select_tables(
    config: Path | None,
    names: list[str] | None,
    server: str | None,
    access: StreamCredentialOptions,
) -> tuple[list[AnyTable], tuple[str, Credentials]]:
    """Return the named tables, and address and credentials of the stream service."""
    from penstock.config.load import load_settings

    tables = _declared(config, names)
    return tables, reach_stream(load_settings(config), server, access)


def _declared(config: Path | None, names: list[str] | None) -> list[AnyTable]:
    from penstock.config.load import load_settings

    with spark_installed():
        from penstock.spark.table_selection import select_tables

        return select_tables(load_settings(config), names or [])


def _print_causes(dead: pa.Table, *, full: bool) -> None:
    columns = (dead.column(name).to_pylist() for name in ("kind", "reason", "offset"))
    found = causes(zip(*columns, strict=True))
    shown = found if full else found[:CAUSES_MAX]
    for cause in shown:
        line = printable(cause_line(cause))
        print(f"  {line if full else cut(line, REASON_CELLS_MAX)}")
    if len(shown) < len(found):
        rest = sum(cause.count for cause in found[len(shown) :])
        print(f"  {rest:,} for {len(found) - len(shown):,} other causes; --full shows them")


def _erased_line(erased: ErasedMessages, *, is_back: bool) -> str:
    topics = ", ".join(f"{topic} ({messages:,})" for topic, messages in erased.topics)
    if erased.topics_count > len(erased.topics):
        topics += f" and {erased.topics_count - len(erased.topics):,} more"
    what = "are back" if is_back else "are left out; --restore-deleted brings them back"
    return (
        f"  {erased.messages:,} messages that somebody deleted since they landed {what}:"
        f" offsets {erased.first} to {erased.last}, topics {topics}"
    )


def _point(option: str, text: str) -> int | datetime:
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
    """Return whether nothing can lie between both; false for an offset and a time."""
    if isinstance(start, int) and isinstance(end, int):
        return start >= end
    return isinstance(start, datetime) and isinstance(end, datetime) and start >= end


def _lines(table: AnyTable, found: TableStatus) -> list[tuple[str, str]]:
    from penstock.spark.tables.api import DEAD_LETTERS

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
