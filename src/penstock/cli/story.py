"""`penstock story`: a sequence diagram of one message, or of one client's last minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.operator_commands import AsJson, ask_broker
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.options import ConfigFile, DataDir, check_topic
from penstock.cli.screen import print_objects
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream
from penstock.errors import ConfigError
from penstock.telemetry.logs import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.control.story import LogRow, Step
    from penstock.stream.client import StreamClient

SEARCH_S: Final = 2.0
"""Time limit of the search for events, or for messages of a topic, in seconds."""

SERVICE_S: Final = 5.0
"""How long the stream service may be unreachable, in seconds."""

CLIENT_STEPS: Final = 40
"""Most steps of a client that are drawn, without ``--last``."""


@expand_option_groups
def story(
    access: StreamCredentialOptions,
    offset: Annotated[
        int | None, typer.Argument(metavar="[OFFSET]", help="Offset of the message in the log.")
    ] = None,
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Last messages of a topic instead."),
    ] = "",
    client_id: Annotated[
        str,
        typer.Option(
            "--client",
            metavar="CLIENT",
            help="Last minutes of traffic between this client and the broker, instead.",
        ),
    ] = "",
    last: Annotated[
        int | None,
        typer.Option(
            "--last", min=1, max=100, help="How many: 1 message, or 40 steps of a client."
        ),
    ] = None,
    receivers: Annotated[
        int, typer.Option("--receivers", min=1, max=100, help="Most receivers drawn.")
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
    """Draw the steps of a message: received, on disk, queued, sent, acknowledged, bridged, landed
    in a table, dropped and why; or with --client the last minutes of a client. Times of the last
    minutes are known; with events switched on, those of all messages that are followed."""
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
        _draw_client(client_id, last or CLIENT_STEPS, svg, as_json, config, data_dir)
        return
    settings = load_settings(config, {"durability.data_dir": data_dir})
    address, credentials = reach_stream(settings, server, access, data_dir)
    with StreamClient(address, SERVICE_S, credentials) as client:
        offsets = [] if offset is None else [offset]
        if topic:
            messages = last_messages(client, topic, last or 1, SEARCH_S).messages
            offsets = [message.offset for message in reversed(messages)]
            if not offsets:
                raise ConfigError(
                    f"no recent message of {topic!r}: look further back with `penstock tail -t"
                    f" {quote(topic)} --last 1`, and name the message by its offset"
                )
        if svg is not None and len(offsets) > 1:
            raise ConfigError("--svg draws one message: leave --last out")
        for offset_of_one in offsets:
            row, steps, hidden_count = _message_story(
                client, offset_of_one, receivers, config, data_dir
            )
            _print(row, steps, hidden_count, svg, as_json)


def _draw_client(
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

    recorded = ask_broker(config, data_dir, ShowRecorded(client_id), Recorded | None)
    if recorded is None or not (recorded.runs or recorded.refused):
        raise ConfigError(
            f"nothing is recorded of {client_id!r}: it has not connected since the broker started,"
            " or records of other clients replaced its record (events.recorded_clients)"
        )
    steps = client_steps(recorded, last)
    if as_json:
        print_objects([{"recorded": to_builtins(recorded), "steps": to_builtins(steps)}])
    else:
        print("\n".join(as_text(steps)))
    if svg is not None:
        svg.write_text(as_svg(steps, f"client {client_id}"), encoding="utf-8")


def _message_story(
    client: StreamClient,
    offset: int,
    limit: int,
    config: Path | None,
    data_dir: Path | None,
) -> tuple[LogRow, list[Step], int]:
    """Return the message, its steps, and the number of receivers that the steps leave out."""
    from penstock.control.explanation import FindReceivers, Receivers
    from penstock.control.story import message_steps
    from penstock.stream.one_message import find_row, read_events_of, read_landings_of, read_log_end

    row = find_row(client, offset)
    if row is None:
        end = read_log_end(client)
        if offset >= end:
            raise ConfigError(
                f"offset {offset:,} is not in the log yet, which ends before offset {end:,}"
            )
        raise ConfigError(
            f"no stream has a message at offset {offset:,}: it has left the log (retention), or"
            " belongs to no stream"
        )
    found = ask_broker(config, data_dir, FindReceivers(row.topic, offset), Receivers)
    events: Sequence[tuple[str, dict[str, Any]]] = read_events_of(client, offset, SEARCH_S) or ()
    shown = found.receivers[:limit]
    tables = read_landings_of(client, row.topic)
    steps = message_steps(row, shown, tables, events, found.committed)
    return row, steps, found.count - len(shown)


def _print(
    row: LogRow, steps: list[Step], hidden_count: int, svg: Path | None, as_json: bool
) -> None:
    from msgspec import to_builtins

    from penstock.cli.sequence_diagram import as_svg, as_text

    if as_json:
        print_objects([{"message": to_builtins(row), "steps": to_builtins(steps)}])
    else:
        print(f"{printable(row.topic)}, offset {row.offset:,}")
        print("\n".join(as_text(steps)))
        if hidden_count > 0:
            print(f"and {hidden_count:,} more receivers of its topic: --receivers 100")
    if svg is not None:
        svg.write_text(as_svg(steps, f"{row.topic}, offset {row.offset:,}"), encoding="utf-8")
