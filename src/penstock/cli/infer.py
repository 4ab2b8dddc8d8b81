"""`penstock tables infer`: write a declaration of tables from the messages in the log."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.screen import Screen
from penstock.cli.spark_jobs import spark_installed
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.spark.tables.inferred import TriedTable
    from penstock.stream.client import StreamClient

SERVER_ANSWER_S_MAX: Final = 5.0
_TOPICS_SHOWN: Final = 5
_REASONS_SHOWN: Final = 5
_LOOK_AROUND: Final = 1000

Show = Callable[[str], None]


def infer(
    access: StreamCredentialOptions,
    topics: Annotated[
        str,
        typer.Option(
            "--topics",
            "-t",
            metavar="FILTER",
            help="An MQTT filter of messages; its levels may have names, plant/{line}/#.",
        ),
    ],
    sample: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1_000_000, help="Messages to look at, the newest."),
    ] = 10_000,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there, not to standard output."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is there.")
    ] = False,
    stream: Annotated[
        str, typer.Option(metavar="NAME", help="The stream of the broker to read.")
    ] = "messages",
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The broker's TOML file."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The stream service, if not at stream.bind."),
    ] = None,
) -> None:
    """Look at messages in the log, and write a declaration of the tables they would make.

    Topic levels that vary become columns, and so do the fields of payloads, each with its type;
    comments say why. Try it with 'penstock tables validate -c FILE'.
    """
    from penstock.config.load import load_settings

    if output is not None and output.exists() and not force:
        raise ConfigError(f"{output} is there already: give --force to write over it")
    settings = load_settings(config)
    address, credentials = reach_stream(settings, server, access)
    tables = settings.tables
    taken = [one.name for one in tables.declared] + [one.name for one in tables.derived]
    with spark_installed():
        from penstock.decoding.topic_pattern import TopicPattern
        from penstock.spark.tables.inferred import tried_tables
        from penstock.spark.tables.sample import newest
        from penstock.stream.client import StreamClient
    topic_filter = TopicPattern.parse(topics).topic_filter
    with StreamClient(address, SERVER_ANSWER_S_MAX, credentials) as client, _shown() as show:
        show("reading the log")
        messages = newest(
            client, stream, topic_filter, sample, lambda count: show(f"{count:,} messages read")
        )
        if not messages.num_rows:
            raise ConfigError(_no_messages(client, stream, topics))
        show(f"looking at {messages.num_rows:,} messages")
        found = tried_tables(messages, topics, taken)
    if not found:
        raise ConfigError(
            f"all {messages.num_rows:,} messages that match {topics} have empty payloads, as those"
            " that remove a retained message: there is nothing to infer a table from"
        )
    offsets = messages.column("offset")
    head = [
        f"# Written by penstock tables infer --topics {shlex.quote(topics)}, from",
        f"# {messages.num_rows:,} messages at offsets {offsets[0]} to {offsets[-1]}.",
        "# Names and types are guesses, which you may change as you like.",
    ]
    if config is not None:
        head.append(f"# To be added to {config}.")
    text = "\n".join([*head, "", *_body(found, stream)]) + "\n"
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
    _print_summary(found, messages.num_rows, output)


def _body(found: list[TriedTable], stream: str) -> Iterator[str]:
    from penstock.decoding.inference.toml import table_lines

    for number, tried in enumerate(found):
        if number:
            yield ""
        shown = dict(list(tried.dead_letters.items())[:_REASONS_SHOWN])
        rest = sum(tried.dead_letters.values()) - sum(shown.values())
        if rest:
            shown["for other reasons"] = rest
        yield from table_lines(tried.table, shown, stream)


def _print_summary(found: list[TriedTable], count: int, output: Path | None) -> None:
    """Print on standard error the findings, and the next steps."""
    dead = sum(sum(tried.dead_letters.values()) for tried in found)
    names = ", ".join(tried.table.name for tried in found)
    file = "FILE" if output is None else str(output)
    print(
        f"{len(found)} table{'s' if len(found) > 1 else ''} from {count:,} messages ({names});"
        f" {dead:,} would be dead letters. Next: penstock tables validate -c {file}",
        file=sys.stderr,
    )


def _no_messages(client: StreamClient, stream: str, topics: str) -> str:
    from penstock.spark.tables.sample import newest

    log = client.offsets(stream)
    if log.earliest == log.latest:
        return f"the log is empty: publish some messages to {topics}, and try again"
    others = newest(client, stream, "#", _LOOK_AROUND).column("topic").unique().to_pylist()
    if not others:
        return f"no message in the stream {stream} matches {topics}"
    shown = ", ".join(others[:_TOPICS_SHOWN])
    more = " …" if len(others) > _TOPICS_SHOWN else ""
    return (
        f"no message in the stream {stream} matches {topics}; its newest topics are {shown}{more}"
    )


@contextmanager
def _shown() -> Iterator[Show]:
    """Show the current step on standard error while it takes time, if that is a terminal."""
    screen = Screen(stderr=True)
    if not screen.is_terminal:
        yield lambda _text: None
        return
    with screen.status("", spinner="dots") as status:
        yield lambda text: status.update(text)
