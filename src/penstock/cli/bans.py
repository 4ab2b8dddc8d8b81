"""`penstock bans`: list, make and lift the bans of a running broker."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.operator_commands import (
    AsJson,
    Cursor,
    JsonObject,
    Limit,
    ask_broker,
    exact_pattern,
    fetch_entries,
    parse_age_s,
    print_list,
    session_filter_of,
)
from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.screen import print_objects
from penstock.errors import ConfigError
from penstock.telemetry.logs import printable

app = typer.Typer(no_args_is_help=True, help="Clients that a running broker refuses for a time.")

Kind = Annotated[str, typer.Argument(metavar="client|user|address")]
Value = Annotated[str, typer.Argument(metavar="WHO", help="An address may be a network.")]


@app.command(name="list")
def list_bans(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    limit: Limit = 100,
    cursor: Cursor = "",
    as_json: AsJson = False,
) -> None:
    """List bans, the oldest first; too many wrong passwords also make a ban."""
    from penstock.control.admin_requests import ListBans

    entries, next_cursor = fetch_entries(config, data_dir, ListBans(cursor), limit)
    if as_json:
        print_objects(entries)
        return
    print_list(("kind", "who", "seconds left", "reason"), map(_row, entries), next_cursor)


@app.command()
def show(
    kind: Kind,
    value: Value,
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Show one ban as JSON; exit code 2 if there is none."""
    from penstock.control.admin_requests import ListBans

    entries, _ = fetch_entries(config, data_dir, ListBans(), 1_000_000)
    bans = [ban for ban in entries if (ban["kind"], ban["value"]) == (kind, value)]
    if not bans:
        raise ConfigError(f"there is no ban of {kind} {value}")
    print_objects(bans)


@app.command()
def add(
    kind: Kind,
    value: Value,
    lasts: Annotated[
        str | None,
        typer.Option("--for", metavar="AGE", help="10m, 12h, 7d; else until the broker ends."),
    ] = None,
    why: Annotated[str, typer.Option("--why", help="A sentence, for lists and the log.")] = "",
    kick: Annotated[bool, typer.Option("--kick", help="Also disconnect matching clients.")] = False,
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Refuse a client identifier, a user or an address. Open connections stay open without --kick.

    MQTT 5 clients are refused with 0x8A. Bans end with the broker.
    """
    from penstock.control.admin_requests import Count, Kick, MakeBan

    banned = ask_broker(
        config, data_dir, MakeBan(kind, value, parse_age_s("--for", lasts), why), str
    )
    print(f"banned {kind} {printable(banned)}")
    if kick:
        names = {kind: banned if kind == "address" else exact_pattern(value)}
        session_filter = session_filter_of(
            names.get("client"), names.get("user"), names.get("address"), None, connected=True
        )
        kicked = ask_broker(config, data_dir, Kick(session_filter, why), Count)
        print(f"disconnected {kicked.count:,}")


@app.command()
def lift(kind: Kind, value: Value, config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """End a ban before its time."""
    from penstock.control.admin_requests import LiftBan

    if not ask_broker(config, data_dir, LiftBan(kind, value), bool):
        raise ConfigError(f"there is no ban of {kind} {value}")


def _row(entry: JsonObject) -> tuple[str, ...]:
    left_s = entry["left_s"]
    return entry["kind"], entry["value"], "" if left_s is None else f"{left_s:.0f}", entry["reason"]
