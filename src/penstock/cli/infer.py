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
from penstock.cli.spark_jobs import require_spark
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.spark.tables.inferred import CheckedTable
    from penstock.stream.client import StreamClient

SERVER_ANSWER_S_MAX: Final = 5.0
_TOPICS_SHOWN: Final = 5
_REASONS_SHOWN: Final = 5
_OTHER_MESSAGES: Final = 1000  # newest messages whose topics are named if none matches

ShowStep = Callable[[str], None]


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
    """Infer a declaration of tables from messages in the log.

    Topic levels that vary become columns, and so do the fields of payloads, each with its type;
    comments say why. Try it with 'penstock tables validate -c FILE'.
    """
    from penstock.config.load import load_settings

    if output is not None and output.exists() and not force:
        raise ConfigError(f"{output} is there already: give --force to write over it")
    settings = load_settings(config)
    address, credentials = reach_stream(settings, server, access)
    tables = settings.tables
    used_names = [table.name for table in tables.declared]
    used_names += [table.name for table in tables.derived]
    with require_spark():
        from penstock.decoding.topic_pattern import TopicPattern
        from penstock.spark.tables.inferred import infer_and_check_tables
        from penstock.spark.tables.sample import newest_messages
        from penstock.stream.client import StreamClient
    topic_filter = TopicPattern.parse(topics).topic_filter
    with StreamClient(address, SERVER_ANSWER_S_MAX, credentials) as client, _show_steps() as show:
        show("reading the log")
        messages = newest_messages(
            client, stream, topic_filter, sample, lambda count: show(f"{count:,} messages read")
        )
        if not messages.num_rows:
            raise ConfigError(_no_messages(client, stream, topics))
        show(f"looking at {messages.num_rows:,} messages")
        inferred = infer_and_check_tables(messages, topics, used_names, client, stream)
    if not inferred:
        raise ConfigError(
            f"all {messages.num_rows:,} messages that match {topics} have empty payloads, as"
            " messages that remove a retained one: there is nothing to infer a table from"
        )
    offsets = messages.column("offset")
    head = [
        f"# Written by penstock tables infer --topics {shlex.quote(topics)}, from",
        f"# {messages.num_rows:,} messages at offsets {offsets[0]} to {offsets[-1]}.",
        "# Names and types are guesses, which you may change as you like.",
    ]
    if config is not None:
        head.append(f"# To be added to {config}.")
    text = "\n".join([*head, "", *_declaration_lines(inferred, stream)]) + "\n"
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
    _print_summary(inferred, messages.num_rows, output)


def _declaration_lines(inferred: list[CheckedTable], stream: str) -> Iterator[str]:
    from penstock.decoding.inference.toml import table_lines

    for number, tried in enumerate(inferred):
        if number:
            yield ""
        reasons = dict(list(tried.dead_letters.items())[:_REASONS_SHOWN])
        rest = sum(tried.dead_letters.values()) - sum(reasons.values())
        if rest:
            reasons["for other reasons"] = rest
        yield from table_lines(tried.table, reasons, stream)


def _print_summary(inferred: list[CheckedTable], count: int, output: Path | None) -> None:
    """Print on standard error which tables were inferred, and the next step."""
    dead_letters = sum(sum(tried.dead_letters.values()) for tried in inferred)
    names = ", ".join(tried.table.name for tried in inferred)
    file = "FILE" if output is None else str(output)
    print(
        f"{len(inferred)} table{'s' if len(inferred) > 1 else ''} from {count:,} messages"
        f" ({names}); {dead_letters:,} would be dead letters. Next: penstock tables validate -c"
        f" {file}",
        file=sys.stderr,
    )


def _no_messages(client: StreamClient, stream: str, topics: str) -> str:
    from penstock.spark.tables.sample import newest_messages

    log = client.offsets(stream)
    if log.earliest == log.latest:
        return f"the log is empty: publish some messages to {topics}, and try again"
    messages = newest_messages(client, stream, "#", _OTHER_MESSAGES)
    other_topics = messages.column("topic").unique().to_pylist()
    if not other_topics:
        return f"no message in the stream {stream} matches {topics}"
    shown = ", ".join(other_topics[:_TOPICS_SHOWN])
    more = " …" if len(other_topics) > _TOPICS_SHOWN else ""
    return (
        f"no message in the stream {stream} matches {topics}; its newest topics are {shown}{more}"
    )


@contextmanager
def _show_steps() -> Iterator[ShowStep]:
    """Yield a function that shows the current step on standard error, if that is a terminal."""
    screen = Screen(stderr=True)
    if not screen.is_terminal:
        yield lambda _text: None
        return
    with screen.status("", spinner="dots") as status:
        yield lambda text: status.update(text)
