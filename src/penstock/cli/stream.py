"""`penstock stream`: list and forget the readers of the log and the tables that messages land in.

Everything is imported when a command runs, so that `penstock --help` needs no Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.option_groups import expand_option_groups
from penstock.cli.screen import print_objects, print_table
from penstock.cli.stream_service import StreamCredentialOptions, StreamPlace
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.control.landed_requests import TableState
    from penstock.control.reader_requests import ReaderState
    from penstock.stream.client import StreamClient

SERVER_ANSWER_S_MAX: Final = 5.0
_PROGRESS_HEADINGS: Final = ("offset", "lag", "lag in time")

app = typer.Typer(no_args_is_help=True, help="Readers of the log, its tables, and their progress.")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]


@app.command()
@expand_option_groups
def readers(access: StreamCredentialOptions, place: StreamPlace, as_json: AsJson = False) -> None:
    """List the registered groups of readers, and how far each is behind the log."""
    with _client(place, access) as client:
        found = client.readers()
    if as_json:
        _print_json(found)
        return
    print_table(
        ("group", "reads", *_PROGRESS_HEADINGS, "lease left", "lost", "about"),
        (
            (
                state.group,
                *_progress_cells(state),
                duration_text(state.lease_left_s) if state.lease_left_s else "ended",
                f"{state.lost:,}",
                state.about,
            )
            for state in found
        ),
    )


@app.command()
@expand_option_groups
def release(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="As 'penstock stream readers'.")],
    access: StreamCredentialOptions,
    place: StreamPlace,
) -> None:
    """Forget a group of readers: the log no longer keeps messages for it."""
    with _client(place, access) as client:
        if not client.release(group):
            raise ConfigError(f"there is no group {group}")


@app.command()
@expand_option_groups
def tables(access: StreamCredentialOptions, place: StreamPlace, as_json: AsJson = False) -> None:
    """List the tables that messages land in, and how far each is behind the log."""
    with _client(place, access) as client:
        found = client.tables()
    if as_json:
        _print_json(found)
        return
    print_table(
        ("table", "lands", *_PROGRESS_HEADINGS, "receipts", "refused"),
        (
            (state.table, *_progress_cells(state), f"{state.receipts:,}", f"{state.refused:,}")
            for state in found
        ),
    )


@app.command()
@expand_option_groups
def forget(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="As 'penstock stream tables'.")],
    access: StreamCredentialOptions,
    place: StreamPlace,
) -> None:
    """Forget a table. A job that still lands messages in it registers the table again."""
    with _client(place, access) as client:
        if not client.forget(table):
            raise ConfigError(f"there is no table {table}")


def _progress_cells(state: ReaderState | TableState) -> tuple[str, str, str, str]:
    return (
        ", ".join((state.stream, *state.topics)),
        f"{state.offset:,}",
        f"{state.lag_messages:,}",
        duration_text(state.lag_s),
    )


def _print_json(states: Sequence[object]) -> None:
    import msgspec

    print_objects(msgspec.to_builtins(state) for state in states)


def duration_text(seconds: float | None) -> str:
    """Return a duration with its unit: 90 s, 3 min, 5 h, 2 d; "unknown" for None."""
    if seconds is None:
        return "unknown"
    for length_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _client(place: StreamPlace, access: StreamCredentialOptions) -> StreamClient:
    from penstock.stream.client import StreamClient

    address, credentials = place.reach(access, needs_broker=True)
    return StreamClient(address, SERVER_ANSWER_S_MAX, credentials)
