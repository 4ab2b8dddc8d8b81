"""`penstock clients`: list the clients of a running broker, and disconnect one or all."""

from __future__ import annotations

from typing import Annotated, Final

import typer

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
    parse_age_s,
    print_entry,
    print_list,
    session_filter_of,
    utc_text,
)
from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.screen import print_objects
from penstock.errors import ConfigError

_VERSIONS: Final = {0: "", 3: "3.1", 4: "3.1.1", 5: "5"}

app = typer.Typer(no_args_is_help=True, help="Clients that are connected to a running broker.")


@app.command(name="list")
def list_clients(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    client: Client = None,
    user: User = None,
    address: Peer = None,
    older_than: OlderThan = None,
    limit: Limit = 100,
    cursor: Cursor = "",
    as_json: AsJson = False,
) -> None:
    """List connected clients, those with the oldest sessions first."""
    from penstock.control.admin_requests import ListSessions

    request = ListSessions(session_filter_of(client, user, address, older_than, True), cursor)
    entries, next_cursor = fetch_entries(config, data_dir, request, limit)
    if as_json:
        print_objects(entries)
        return
    headings = ("client", "user", "address", "MQTT", "listener", "since", "window", "queue")
    print_list(headings, map(_row, entries), next_cursor)


@app.command()
def show(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT", autocompletion=complete_client_ids)],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one client in full: address, window, queue, drops, subscriptions."""
    from penstock.control.admin_requests import ShowSession

    entry = ask_broker(config, data_dir, ShowSession(client_id), JsonObject | None)
    if entry is None:
        raise ConfigError(f"there is no session of a client {client_id!r}")
    if as_json:
        print_objects([entry])
    else:
        print_entry(entry)


@app.command()
def kick(
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
    address: Peer = None,
    older_than: OlderThan = None,
    why: Annotated[str, typer.Option("--why", help="A reason string for MQTT 5 clients.")] = "",
    ban: Annotated[
        str | None, typer.Option("--ban", metavar="AGE", help="Refused for so long: 10m, 7d.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Disconnect clients; MQTT 5 clients get reason code 0x98. Sessions stay, and without '--ban'
    they may connect again at once."""
    from penstock.control.admin_requests import Count, Kick

    if (client_id is None) == (client is user is address is older_than is None):
        raise ConfigError("name one client, or give options that say which")
    if client_id is not None:
        client = exact_pattern(client_id)
    ban_s = None if ban is None else parse_age_s("--ban", ban)
    session_filter = session_filter_of(client, user, address, older_than, True)

    def do(only_count: bool) -> int:
        request = Kick(session_filter, why, ban_s, only_count)
        count = int(ask_broker(config, data_dir, request, Count).count)
        if client_id is not None and count == 0:
            raise ConfigError(f"no client {client_id!r} is connected")
        return count

    is_confirmed = yes or client_id is not None
    confirm_and_do(
        "clients", "disconnect", "disconnected", dry_run=dry_run, yes=is_confirmed, do=do
    )


@app.command()
def drain(
    to: Annotated[
        str, typer.Option("--to", metavar="HOST[:PORT]", help="The server to go to.")
    ] = "",
    per_s: Annotated[
        float,
        typer.Option("--per-second", min=0.001, max=1_000_000, help="Clients sent away a second."),
    ] = 100.0,
    moved: Annotated[
        bool, typer.Option("--moved", help="Permanently: 0x9D instead of 0x9C.")
    ] = False,
    end: Annotated[bool, typer.Option("--end", help="Let clients in again.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Only say how far it is.")] = False,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Empty the broker: refuse new clients, and send connected ones elsewhere, some a second.

    The broker refuses clients until '--end', or until its next start. Sessions and messages stay.
    """
    from msgspec import to_builtins

    from penstock.control.admin_requests import Drain, DrainState, EndDrain, ShowDrain

    if end:
        if not ask_broker(config, data_dir, EndDrain(), bool):
            raise ConfigError("the broker is not being emptied")
        return
    request = ShowDrain() if status else Drain(to, moved, per_s)
    state = ask_broker(config, data_dir, request, DrainState)
    if as_json:
        print_objects([to_builtins(state)])
    elif not state.draining:
        print(f"the broker serves; {state.left:,} connections")
    else:
        print(
            f"being emptied: {state.sent_away:,} sent away, {state.refused:,} refused,"
            f" {state.left:,} connections left"
        )


def _row(entry: JsonObject) -> tuple[str, ...]:
    return (
        entry["client_id"],
        "" if entry["user"] is None else entry["user"],
        "bridge" if entry["bridge"] else entry["address"] or "",
        _VERSIONS.get(entry["version"], str(entry["version"])),
        entry["listener"],
        utc_text(entry["since_us"]),
        f"{entry['window']}/{entry['window_size']}",
        str(entry["queue"]),
    )
