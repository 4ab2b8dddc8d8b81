"""The common part of commands for operators: how they ask the broker, and how they print lists.

On a terminal a list is a table. In a pipe each entry is one line with aligned columns, and headings
do not wrap; `--json` prints one object a line.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from penstock.cli import screen
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.control.admin_requests import ListBans, ListRetained, ListSessions, SessionFilter
    from penstock.control.client import Request

JsonObject = dict[str, Any]

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print how many would be changed.")]
Client = Annotated[
    str | None, typer.Option("--client", metavar="PATTERN", help="Client identifier, as 'm-*'.")
]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="PATTERN", help="User name; '' for those without one."),
]
Peer = Annotated[
    str | None,
    typer.Option("--address", metavar="WHERE", help="Connected from: a pattern, or 10.0.0.0/8."),
]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="AGE", help="Older than this: 90s, 10m, 12h, 7d."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Entries shown.")]
Cursor = Annotated[
    str, typer.Option("--cursor", metavar="CURSOR", help="Continue where a list ended.")
]

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_ANSWER_S_MAX: Final = 600.0
_OPERATOR_NAME_LENGTH_MAX: Final = 200


def parse_age_s(option: str, text: str | None) -> float:
    """Return an age such as 10m in seconds, 0.0 for None; raise ConfigError if `text` is no age."""
    if text is None:
        return 0.0
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])", text)
    if match is None:
        raise ConfigError(f"{option} must be an age such as 90s, 10m, 12h or 7d, not {text!r}")
    return float(match[1]) * _UNITS_S[match[2]]


def ask_broker(
    config: Path | None, data_dir: Path | None, request: Request, answer_type: Any
) -> Any:
    """Ask the broker that uses the data directory; return its answer, of type `answer_type`.

    A request that changes something gets the name of the operator. Raises as `control.client.ask`
    does.
    """
    from penstock.config.load import load_settings
    from penstock.control.client import ask

    if getattr(request, "by", None) == "":
        request = msgspec.structs.replace(request, by=operator_name(os.environ))
    settings = load_settings(config, {"durability.data_dir": data_dir})
    return ask(settings.durability.data_dir, request, answer_type, _ANSWER_S_MAX)


def operator_name(environment: Mapping[str, str]) -> str:
    """Return the name of the operator for the broker's log and events: the user, or the user that
    ran `sudo`, and the address of an SSH session."""
    user = environment.get("SUDO_USER", "")
    if not user:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # in a container the user may have no name
            user = f"uid {os.getuid()}"
    address = environment.get("SSH_CONNECTION", "").partition(" ")[0]
    name = f"{user} at {address}" if address else user
    return name[:_OPERATOR_NAME_LENGTH_MAX]


def fetch_entries(
    config: Path | None,
    data_dir: Path | None,
    request: ListSessions | ListRetained | ListBans,
    limit: int,
) -> tuple[list[JsonObject], str]:
    """Return at most `limit` entries of a list, read page by page, and the cursor of the next page,
    which is empty at the end."""
    from msgspec.structs import replace

    from penstock.control.admin_requests import LIMIT_MAX, Page

    entries: list[JsonObject] = []
    while True:
        page_request = replace(request, limit=min(LIMIT_MAX, limit - len(entries)))
        page = ask_broker(config, data_dir, page_request, Page)
        entries += page.entries
        if not page.cursor or len(entries) >= limit:
            return entries, page.cursor
        request = replace(request, cursor=page.cursor)


def confirm_and_do(
    things: str, verb: str, participle: str, *, dry_run: bool, yes: bool, do: Callable[[bool], int]
) -> None:
    """Ask the operator to confirm a change, make it, and print how many things were changed.

    Args:
        things: the name of the things, in the plural.
        verb: the verb of the change, such as "remove".
        participle: the past participle of the verb, such as "removed".
        dry_run: only print how many things would be changed.
        yes: do not ask.
        do: makes the change, or only counts if called with true; returns the number of things.

    Raises:
        ConfigError: the operator did not agree.
    """
    count = do(True)
    if dry_run or count == 0:
        print(f"{count:,} {things} would be {participle}")
    elif yes or typer.confirm(f"{verb} {count:,} {things}?"):
        print(f"{participle} {do(False):,} {things}")
    else:
        raise ConfigError(f"no {things} were {participle}")


def session_filter_of(
    client: str | None,
    user: str | None,
    address: str | None,
    older_than: str | None,
    connected: bool | None,
) -> SessionFilter:
    """Return the filter of sessions that the options describe."""
    from penstock.control.admin_requests import SessionFilter

    older_than_s = parse_age_s("--older-than", older_than)
    return SessionFilter(client, user, address, connected, older_than_s)


def exact_pattern(text: str) -> str:
    """Return a pattern that matches only `text`."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)


def print_list(headings: tuple[str, ...], rows: Iterable[Iterable[str]], cursor: str) -> None:
    """Print a table on a terminal, else lines; then the cursor of the next page, if there is
    one."""
    screen.print_table(headings, rows)
    if cursor:
        typer.echo(f"there are more: --cursor {cursor}", err=not sys.stdout.isatty())


def print_entry(entry: JsonObject) -> None:
    """Print all fields of an object, a line each."""
    screen.print_pairs(_flatten(entry))


def utc_text(at_us: int | None) -> str:
    """Return a time, µs since the Unix epoch, as text in UTC; empty for 0 or None."""
    if not at_us:
        return ""
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def _flatten(entry: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield name and value of each field, and of each field of nested objects."""
    for name, value in entry.items():
        if name.endswith("_us"):
            yield name.removesuffix("_us").replace("_", " "), utc_text(value) or "never"
        elif isinstance(value, list):
            for item in value:
                words = (f"{key} {part}" for key, part in item.items() if key != "filter")
                yield name.removesuffix("s"), f"{item.get('filter', '')}  {', '.join(words)}"
        elif isinstance(value, dict):
            for key, part in value.items():
                yield f"{name} {key}", str(part)
        else:
            yield name.replace("_", " "), "" if value is None else str(value)
