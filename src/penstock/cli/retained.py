"""`penstock retained`: list, show and clear the retained messages of a running broker."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from penstock.cli.operator_commands import (
    AsJson,
    Cursor,
    DryRun,
    JsonObject,
    Limit,
    OlderThan,
    Yes,
    ask_broker,
    confirm_and_do,
    fetch_entries,
    parse_age_s,
    print_list,
    utc_text,
)
from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.screen import print_objects
from penstock.errors import ConfigError
from penstock.telemetry.terminal import write_bytes

app = typer.Typer(no_args_is_help=True, help="The retained messages of a running broker.")

TopicFilter = Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter.")]


@app.command(name="list")
def list_retained(
    topic_filter: TopicFilter = "#",
    config: ConfigFile = None,
    data_dir: DataDir = None,
    older_than: OlderThan = None,
    limit: Limit = 100,
    cursor: Cursor = "",
    as_json: AsJson = False,
) -> None:
    """List retained messages whose topics match a filter."""
    from penstock.control.admin_requests import ListRetained

    request = ListRetained(topic_filter, parse_age_s("--older-than", older_than), cursor)
    entries, next_cursor = fetch_entries(config, data_dir, request, limit)
    if as_json:
        print_objects(entries)
        return
    print_list(("topic", "bytes", "QoS", "since", "from"), map(_row, entries), next_cursor)


@app.command()
def show(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write the payload of one retained message to standard output, unchanged.

    On a terminal control characters are escaped.
    """
    from penstock.control.admin_requests import ShowRetained

    entry = ask_broker(config, data_dir, ShowRetained(topic), JsonObject | None)
    if entry is None:
        raise ConfigError(f"no message is retained on {topic!r}")
    if as_json:
        print_objects([entry])
    else:
        write_bytes(base64.b64decode(entry["payload_base64"]))


@app.command()
def clear(
    topic_filter: TopicFilter,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove retained messages whose topics match a filter. Subscribers are not notified."""
    from penstock.control.admin_requests import ClearRetained, Count

    older_than_s = parse_age_s("--older-than", older_than)

    def do(only_count: bool) -> int:
        request = ClearRetained(topic_filter, older_than_s, only_count)
        return int(ask_broker(config, data_dir, request, Count).count)

    confirm_and_do("retained messages", "clear", "cleared", dry_run=dry_run, yes=yes, do=do)


def _row(entry: JsonObject) -> tuple[str, ...]:
    return (
        entry["topic"],
        str(entry["bytes"]),
        str(entry["qos"]),
        utc_text(entry["received_at_us"]),
        entry["client_id"],
    )
