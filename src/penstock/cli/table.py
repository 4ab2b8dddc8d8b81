"""`penstock table`: land messages in a Delta table, and show a table.

Everything is imported when a command runs, so that `penstock --help` needs no Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

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
    local_directory,
    print_removed,
    print_traceback_if,
    require_spark,
    stop_on_signals,
    table_directory,
)
from penstock.cli.stream_service import StreamCredentialOptions, StreamPlace
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.stream.credentials import Credentials

SERVER_ANSWER_S_MAX: Final = 1.0

app = typer.Typer(no_args_is_help=True, help="Land messages in a Delta table, and show a table.")

TablePath = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        parser=table_directory,
        help="Directory or URL of the table, such as readings.",
    ),
]
StreamName = Annotated[str, typer.Option(metavar="NAME", help="Stream to read.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        parser=local_directory,
        help="The job's lock and output; default: TABLE/_checkpoint.",
    ),
]


@app.command()
@expand_option_groups
def run(
    table: TablePath,
    access: StreamCredentialOptions,
    place: StreamPlace,
    stream: StreamName = "messages",
    topics: Annotated[
        str,
        typer.Option(metavar="FILTERS", help="Only these: MQTT topic filters, comma-separated."),
    ] = "",
    checkpoint: Checkpoint = None,
    available_now: AvailableNow = False,
    trigger: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Shortest time between two commits.")
    ] = 0.5,
    starting_offsets: Annotated[
        str,
        typer.Option(metavar="WHERE", help="earliest, latest or a position; for a new table."),
    ] = "earliest",
    starting_timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin with messages since 2026-11-21T08:00:00Z, as an example; for a new table.",
        ),
    ] = None,
    max_offsets: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Most offsets of one commit.")
    ] = None,
    accept_data_loss: AcceptDataLoss = False,
    connect_timeout: ConnectTimeout = 60.0,
    master: Master = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Register as a reader: messages are kept until they have landed."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Land the messages of a stream in a Delta table, each exactly once.

    Run it again after any end, even a crash: it continues where the table ends.
    """
    from penstock.cli.table_display import progress_display

    with require_spark():
        from penstock.spark.jobs.landing import Landing
        from penstock.spark.jobs.settings import LandingSettings
        from penstock.spark.options import parse_options
        from penstock.spark.session import LOCAL_MASTER
        from penstock.spark.topics import parse_topics

    address, credentials = place.reach(access)
    options = {}
    if starting_timestamp is not None:
        options["startingTimestamp"] = starting_timestamp
    if starting_timestamp is None or starting_offsets != "earliest":
        options["startingOffsets"] = starting_offsets
    if group is not None:
        options["groupId"] = group
    checked = parse_options(options)
    settings = LandingSettings(
        table=table,
        server=address,
        stream=stream,
        topics=parse_topics(topics),
        checkpoint=checkpoint,
        available_now=available_now,
        trigger_s=trigger,
        starting_offsets=starting_offsets,
        starting_timestamp=starting_timestamp,
        offsets_per_batch_max=max_offsets,
        fail_on_data_loss=not accept_data_loss,
        connect_timeout_s=connect_timeout,
        credentials=credentials,
        master=master or LOCAL_MASTER,
        group=checked.group,
    )
    title = f"{stream} → {table}"
    with print_traceback_if(verbose), progress_display(Screen(), title) as show:
        landing = Landing(settings, show)
        stop_on_signals(landing.stop)
        landing.run()


@app.command()
@expand_option_groups
def status(
    table: TablePath,
    access: StreamCredentialOptions,
    place: StreamPlace,
    stream: StreamName = "messages",
) -> None:
    """Show the content of the table, and how far it is behind the log."""
    with require_spark():
        from penstock.cli.table_rows import lost_line
        from penstock.spark.contents import open_landed, read_contents, read_landed_end
        from penstock.spark.tables.landed_table import ROWS
        from penstock.spark.tables.lost_rows import find_lost_rows
    contents = read_contents(table)
    service = place.reach(access)
    landed, selection_of = open_landed(table)
    lost = find_lost_rows({ROWS: landed}, selection_of)
    epoch = contents.epoch
    landed_end = None if epoch is None else read_landed_end(table, epoch, stream)
    pairs = (
        ("table", table),
        ("holds", contents.description),
        ("rows", f"{contents.rows:,}"),
        ("files", f"{contents.files:,}, {contents.size_bytes:,} bytes"),
        ("changed", f"{contents.changed_at:%Y-%m-%d %H:%M:%S} UTC, version {contents.version}"),
        ("epoch", epoch or "-"),
        ("last offset", f"{landed_end - 1:,}" if landed_end else "-"),
        ("lag", _lag_text(table, service, stream)),
        *(("lost history", lost_line(one)) for one in lost),
    )
    print_pairs(pairs)


@app.command()
def show(
    table: TablePath,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, max=10_000, help="How many.")] = 10,
    full: Full = False,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="Only messages that the log no longer has."),
    ] = False,
) -> None:
    """Show the newest messages of the table, or rows made from them."""
    with require_spark():
        from penstock.cli.table_rows import lost_line, print_lost_rows, print_rows, print_values
        from penstock.spark.contents import newest_rows, open_landed
        from penstock.spark.tables.columns import MESSAGE_SCHEMA
        from penstock.spark.tables.landed_table import ROWS
        from penstock.spark.tables.lost_rows import find_lost_rows
    if lost:
        landed, selection_of = open_landed(table)
        for one in find_lost_rows({ROWS: landed}, selection_of):
            print_heading(lost_line(one))
            print_lost_rows(landed, one.span, rows, full=full)
        return
    newest = newest_rows(table, rows)
    if not set(MESSAGE_SCHEMA.names) <= set(newest.column_names):
        print_rows(newest, full=full)
        return
    headings = ("offset", "received at (UTC)", "topic", "payload", "qos", "client")
    print_values([headings], [_message_cells(row) for row in newest.to_pylist()], full=full)


@app.command()
def vacuum(
    table: TablePath,
    older_than: OlderThan = 24,
    dry_run: DryRun = False,
) -> None:
    """Remove files of killed jobs, which belong to no version of the table."""
    with require_spark():
        from penstock.spark.contents import remove_orphans
    names = remove_orphans(table, older_than, remove=not dry_run)
    print_removed(names, dry_run=dry_run)


def _lag_text(table: str, service: tuple[str, Credentials], stream: str) -> str:
    from penstock.errors import PenstockError
    from penstock.spark.contents import read_landed_end
    from penstock.stream.client import StreamClient

    address, credentials = service
    try:
        with StreamClient(address, SERVER_ANSWER_S_MAX, credentials) as client:
            log = client.offsets(stream)
    except ConfigError as error:
        return f"unknown: {error}"
    except PenstockError:
        return f"unknown: no stream service answers at {address}"
    landed_end = read_landed_end(table, log.epoch, stream)
    if landed_end is None:
        return f"unknown: the log at {address} is of epoch {log.epoch}"
    return f"{max(0, log.latest - landed_end):,} of {log.latest:,} offsets"


def _message_cells(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["offset"],
        f"{row['received_at']:%Y-%m-%d %H:%M:%S.%f}",
        row["topic"],
        _payload_text(bytes(row["payload"])),
        str(row["qos"]) + (" retained" if row["retain"] else ""),
        row["client_id"],
    )


def _payload_text(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"0x{payload.hex()}"
    return text if text.isprintable() else f"0x{payload.hex()}"
