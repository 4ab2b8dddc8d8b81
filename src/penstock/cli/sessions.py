"""`penstock sessions`: list, show and remove the sessions of a running broker."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import clients
from penstock.cli.completion import complete_client_ids
from penstock.cli.operator_commands import (
    AsJson,
    Client,
    Cursor,
    DryRun,
    JsonObject,
    Limit,
    OlderThan,
    Peer,
    User,
    Yes,
    ask_broker,
    confirm_and_do,
    exact_pattern,
    fetch_entries,
    print_list,
    session_filter_of,
    utc_text,
)
from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.screen import print_objects
from penstock.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="The sessions of a running broker.")
app.command()(clients.show)

Connected = Annotated[
    bool | None,
    typer.Option("--connected/--away", help="Only those with, or without a connection."),
]


@app.command(name="list")
def list_sessions(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    client: Client = None,
    user: User = None,
    address: Peer = None,
    older_than: OlderThan = None,
    connected: Connected = None,
    limit: Limit = 100,
    cursor: Cursor = "",
    as_json: AsJson = False,
) -> None:
    """List sessions, the oldest first."""
    from penstock.control.admin_requests import ListSessions

    request = ListSessions(session_filter_of(client, user, address, older_than, connected), cursor)
    entries, next_cursor = fetch_entries(config, data_dir, request, limit)
    if as_json:
        print_objects(entries)
        return
    headings = ("client", "user", "is", "since", "ends", "queue", "bytes", "filters", "dropped")
    print_list(headings, map(_row, entries), next_cursor)


@app.command()
def remove(
    client_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[CLIENT]",
            help="One, or those the options name.",
            autocompletion=complete_client_ids,
        ),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    client: Client = None,
    user: User = None,
    older_than: OlderThan = None,
    connected: Annotated[
        bool, typer.Option("--connected", help="Sessions of connected clients instead.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """End sessions, and drop their queued messages; without options all sessions without a
    connection."""
    from penstock.control.admin_requests import Count, RemoveSessions

    if client_id is not None:
        if not client is user is older_than is None:
            raise ConfigError("name one client, or give options that say which")
        client = exact_pattern(client_id)
    session_filter = session_filter_of(client, user, None, older_than, connected)

    def do(only_count: bool) -> int:
        request = RemoveSessions(session_filter, only_count)
        count = int(ask_broker(config, data_dir, request, Count).count)
        if client_id is not None and count == 0:
            state = "connected" if connected else "away; one that is connected needs --connected"
            raise ConfigError(f"no session of a client {client_id!r} is {state}")
        return count

    confirm_and_do("sessions", "remove", "removed", dry_run=dry_run, yes=yes, do=do)


def _row(entry: JsonObject) -> tuple[str, ...]:
    return (
        entry["client_id"],
        "" if entry["user"] is None else entry["user"],
        "connected" if entry["connected"] else "away",
        utc_text(entry["since_us"]),
        "" if entry["connected"] else utc_text(entry["expires_at_us"]) or "never",
        str(entry["queue"]),
        str(entry["queue_bytes"]),
        str(entry["subscriptions"]),
        str(entry["dropped"]),
    )
