"""`penstock story`: the way of one message, or what one client did lately, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.operator_commands import AsJson, ask_broker
from penstock.cli.option_groups import grouped
from penstock.cli.options import ConfigFile, DataDir, check_topic
from penstock.cli.screen import print_objects
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.control.story import LogRow, Step
    from penstock.stream.client import StreamClient

SEARCH_S: Final = 2.0
"""How long events, or messages of a topic, are looked for, in seconds."""

SERVICE_S: Final = 5.0
"""How long the stream service may be away."""

CLIENT_STEPS: Final = 40
"""Steps of a client that are drawn."""


@grouped
def story(
    access: StreamCredentialOptions,
    offset: Annotated[
        int | None, typer.Argument(metavar="[OFFSET]", help="Of the message, in the log.")
    ] = None,
    topic: Annotated[
        str, typer.Option("--topic", "-t", metavar="TOPIC", help="Its last messages instead.")
    ] = "",
    client_id: Annotated[
        str,
        typer.Option(
            "--client",
            metavar="CLIENT",
            help="What happened between this client and the broker lately, instead.",
        ),
    ] = "",
    last: Annotated[
        int | None,
        typer.Option(
            "--last", min=1, max=100, help="So many of them: 1 message, or 40 steps of a client."
        ),
    ] = None,
    receivers: Annotated[
        int, typer.Option("--receivers", min=1, max=100, help="So many are drawn.")
    ] = 6,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the drawing as SVG, too.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The stream service; as the settings say."),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Draw what became of a message: received, on disk, queued, sent, acknowledged, bridged, in
    which table, dropped and why; or with --client what happened to a client. Of the last minutes
    the times are known; with events switched on, those of all messages that are followed."""
    from shlex import quote

    from penstock.config.load import load_settings
    from penstock.stream.client import StreamClient
    from penstock.stream.last_messages import last_messages

    if (offset is not None) + bool(topic) + bool(client_id) != 1:
        raise ConfigError(
            "name the message by its OFFSET or by --topic TOPIC, or a client by --client CLIENT"
        )
    check_topic(topic)
    if client_id:
        _tell_of_client(client_id, last or CLIENT_STEPS, svg, as_json, config, data_dir)
        return
    settings = load_settings(config, {"durability.data_dir": data_dir})
    address, credentials = reach_stream(settings, server, access)
    with StreamClient(address, SERVICE_S, credentials) as client:
        offsets = [] if offset is None else [offset]
        if topic:
            found = last_messages(client, topic, last or 1, SEARCH_S).messages
            offsets = [message.offset for message in reversed(found)]
            if not offsets:
                raise ConfigError(
                    f"no message of {topic!r} came lately: look further back with `penstock tail -t"
                    f" {quote(topic)} --last 1`, and name it by its offset"
                )
        if svg is not None and len(offsets) > 1:
            raise ConfigError("--svg draws one message: leave --last out")
        for one in offsets:
            row, steps, rest = _steps(client, one, receivers, config, data_dir)
            _print(row, steps, rest, svg, as_json)


def _tell_of_client(
    client_id: str,
    last: int,
    svg: Path | None,
    as_json: bool,
    config: Path | None,
    data_dir: Path | None,
) -> None:
    """Draw the flight recorder's events of a client."""
    from msgspec import to_builtins

    from penstock.cli.sequence_diagram import as_svg, as_text
    from penstock.control.client_story import client_steps
    from penstock.control.recorded import Recorded, ShowRecorded

    found = ask_broker(config, data_dir, ShowRecorded(client_id), Recorded | None)
    if found is None or not (found.runs or found.refused):
        raise ConfigError(
            f"nothing is recorded of {client_id!r}: it was not connected since the broker started,"
            " or others took its place (events.recorded_clients)"
        )
    steps = client_steps(found, last)
    if as_json:
        print_objects([{"recorded": to_builtins(found), "steps": to_builtins(steps)}])
    else:
        print("\n".join(as_text(steps)))
    if svg is not None:
        svg.write_text(as_svg(steps, f"client {client_id}"), encoding="utf-8")


def _steps(
    client: StreamClient,
    offset: int,
    limit: int,
    config: Path | None,
    data_dir: Path | None,
) -> tuple[LogRow, list[Step], int]:
    """Return the message, its steps, and how many receivers are not among them."""
    from penstock.control.explanation import FindReceivers, Receivers
    from penstock.control.story import message_steps
    from penstock.stream.one_message import events_of, landings_of, log_end, row_at

    row = row_at(client, offset)
    if row is None:
        end = log_end(client)
        if offset >= end:
            raise ConfigError(
                f"offset {offset:,} is not in the log yet, which ends before offset {end:,}"
            )
        raise ConfigError(
            f"no stream has a message at offset {offset:,}: it has left the log (retention), or"
            " belongs to no stream"
        )
    asked = FindReceivers(row.topic, offset)
    found = ask_broker(config, data_dir, asked, Receivers)
    events: Sequence[tuple[str, dict[str, Any]]] = events_of(client, offset, SEARCH_S) or ()
    shown = found.receivers[:limit]
    landings = landings_of(client, row.topic)
    steps = message_steps(row, shown, landings, events, found.committed)
    return row, steps, found.count - len(shown)


def _print(row: LogRow, steps: list[Step], rest: int, svg: Path | None, as_json: bool) -> None:
    from msgspec import to_builtins

    from penstock.cli.sequence_diagram import as_svg, as_text

    if as_json:
        print_objects([{"message": to_builtins(row), "steps": to_builtins(steps)}])
    else:
        print(f"{row.topic}, offset {row.offset:,}")
        print("\n".join(as_text(steps)))
        if rest > 0:
            print(f"and {rest:,} more that its topic reaches: --receivers 100")
    if svg is not None:
        svg.write_text(as_svg(steps, f"{row.topic}, offset {row.offset:,}"), encoding="utf-8")
