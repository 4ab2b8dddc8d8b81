"""`penstock events`: list the broker's events, without Spark."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.operator_commands import AsJson, parse_age_s, utc_text
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.screen import print_objects, print_table
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.stream.event_rows import EventRow

SERVICE_S: Final = 5.0
"""How long the stream service may be unreachable, in seconds."""

_OTHER_COLUMNS: Final = ("at", "client", "n")  # fields that are not shown as details
_DROPS: Final = ("dropped", "expired")
_FIRST_DETAILS: Final = ("act", "reason")


@expand_option_groups
def events(
    access: StreamCredentialOptions,
    kinds: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KIND]...", help="Only these, as 'administered' or 'refused'."),
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="PATTERN", help="Client identifier, as 'm-*'.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="AGE", help="Not older than this: 90s, 10m, 12h, 7d.")
    ] = "1h",
    limit: Annotated[int, typer.Option("--limit", min=1, help="The last so many.")] = 100,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The stream service; as the settings say."),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List events: connections, disconnections, refusals, commands of operators, drops, and, where
    they are switched on, each step of messages (docs/audit.md). The newest are last."""
    from penstock.config.load import load_settings
    from penstock.engine.values.event_kinds import KINDS
    from penstock.stream.client import StreamClient
    from penstock.stream.event_rows import read_events

    unknown = [kind for kind in kinds or () if kind not in KINDS]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no kind of event: they are {', '.join(KINDS)}")
    settings = load_settings(config, {"durability.data_dir": data_dir})
    address, credentials = reach_stream(settings, server, access, data_dir)
    now_us = time.time_ns() // 1000
    since_us = now_us - round(parse_age_s("--since", since) * 1_000_000)
    newest: deque[EventRow] = deque(maxlen=limit)
    with StreamClient(address, SERVICE_S, credentials) as stream:
        for event in read_events(stream, kinds or (), since_us, now_us + 1):
            if client is None or fnmatchcase(event.client, client):
                newest.append(event)
    ordered = sorted(newest, key=lambda event: event.at_us)
    if as_json:
        print_objects(event.entry for event in ordered)
    else:
        print_table(("time", "event", "client", "details"), _rows(group_drops(ordered)))


def group_drops(ordered: Sequence[EventRow]) -> list[EventRow]:
    """Return the events with the drops of one client for one reason as one, at the time of the last
    of them, until another event of the client; a client that reads too slowly has thousands."""
    rows: dict[int, EventRow] = {}
    open_groups: dict[str, int] = {}  # by client, the number of its latest row
    for number, event in enumerate(ordered):
        before = rows.get(open_groups.get(event.client, -1))
        fields = event.fields
        if event.kind in _DROPS and before is not None and _is_same_drop(before, event):
            del rows[open_groups[event.client]]
            since = before.fields.get("since", utc_text(before.at_us))
            messages = before.fields["messages"] + fields["messages"]
            fields = fields | {"messages": messages, "since": since}
        rows[number] = replace(event, fields=fields)
        open_groups[event.client] = number
    return list(rows.values())


def _is_same_drop(one: EventRow, other: EventRow) -> bool:
    return one.kind == other.kind and one.fields.get("reason") == other.fields.get("reason")


def _rows(events: list[EventRow]) -> Iterator[tuple[str, ...]]:
    for event in events:
        names = sorted(event.fields, key=_FIRST_DETAILS.__contains__, reverse=True)
        details = [
            f"{name.replace('_', ' ')} {event.fields[name]}"
            for name in names
            if name not in _OTHER_COLUMNS and event.fields[name] not in ("", None)
        ]
        yield utc_text(event.at_us), event.kind.replace("_", " "), event.client, ", ".join(details)
