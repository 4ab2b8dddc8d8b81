"""`penstock replay`: the options of the command; `replaying` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.broker_options import BrokerOptions
from penstock.cli.log_options import LogOptions
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.cli.topic_map import parse_topic_map
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.client.options import Settings

EPILOG: Final = """\
\b
  penstock replay --from 08:00 --until 08:10 -t 'plant/#' --prefix replayed/
  penstock replay --from -1h -t plant/line1/# --topic-map plant/line1=test/a --speed 10
  penstock replay --from 1234 --until 2345 --to-same-topics -h other.example

Messages are read from the log (--server, --token-file, …) and published again through MQTT (-h, -u,
…). The end is fixed at the start: the command never reads its own messages. It keeps payload, QoS,
properties and order, and the retain flag only with --keep-retain.

Exit codes: 0 the broker has acknowledged everything (QoS 0: it was sent); 1 it has not; 2 a
mistake.
"""


@expand_option_groups
def replay(
    *,
    log_options: LogOptions,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Prefix of the new topics, as 'replayed/'."),
    ] = None,
    topic_map: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Replace the first levels of topics; repeat it."),
    ] = None,
    to_same_topics: Annotated[
        bool,
        typer.Option("--to-same-topics", help="Publish to the original topics."),
    ] = False,
    speed: Annotated[
        float,
        typer.Option(min=0.001, max=1_000_000.0, metavar="N", help="N times the original speed."),
    ] = 1.0,
    as_fast_as_possible: Annotated[
        bool, typer.Option("--as-fast-as-possible", help="Without pauses.")
    ] = False,
    qos: Annotated[
        int | None,
        typer.Option("-q", "--qos", min=0, max=2, metavar="0|1|2", help="QoS; as published."),
    ] = None,
    keep_retain: Annotated[
        bool, typer.Option("--keep-retain", help="Retain messages published as retained.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be published.")
    ] = False,
    client_id: Annotated[
        str, typer.Option("-i", "--id", metavar="ID", help="Client identifier.")
    ] = "",
    connection: BrokerOptions,
    access: StreamCredentialOptions,
) -> None:
    """Publish messages of the log again, at their original speed or faster."""
    if log_options.begin is None and log_options.last is None:
        raise ConfigError(
            "say which messages: --from 08:00, --from -10m, --from 1234 or --last 100"
        )
    topics = parse_topic_map(prefix, topic_map or ())
    if not to_same_topics and not topics.changes_all(log_options.topics or ()):
        raise ConfigError(
            "messages would be published to their original topics: give --prefix replayed/, or a"
            " --topic-map that fits every -t; --to-same-topics if that is meant, as on another"
            " broker"
        )
    from penstock.cli.client_program import StatusPrinter, run_client
    from penstock.cli.replaying import Pace, ReplayRun, Republisher
    from penstock.client import Client

    settings: Settings = {
        **connection.login(),
        "client_id": client_id,
        "status_changed": None if connection.quiet else StatusPrinter(prints_first_attempts=False),
    }
    client = Client(connection.parsed_url().server, **settings)
    pace = Pace(None if as_fast_as_possible else speed)
    has_properties = client.options.version == "5"
    republisher = Republisher(topics, qos, keep_retain, with_properties=has_properties)
    replay_run = ReplayRun(log_options, access, republisher, pace)
    work = replay_run.dry_run() if dry_run else replay_run.run(client, quiet=connection.quiet)
    run_client(work, connection)
