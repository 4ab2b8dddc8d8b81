"""`penstock replay`: its options; `replaying` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.broker_options import BrokerOptions
from penstock.cli.log_options import LogOptions
from penstock.cli.option_groups import grouped
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.cli.topic_map import parse_topic_map
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.client.options import Settings

FURTHER: Final = """\
\b
  penstock replay --from 08:00 --until 08:10 -t 'plant/#' --prefix replayed/
  penstock replay --from -1h -t plant/line1/# --topic-map plant/line1=test/a --speed 10
  penstock replay --from 1234 --until 2345 --to-same-topics -h other.example

Messages are read from the log (--server, --token-file, …) and published again through MQTT (-h, -u,
…). The end is fixed when it begins: it never reads what it published. It keeps payload, QoS,
properties and order, and the retain flag only with --keep-retain.

Exit codes: 0 the broker has acknowledged everything (QoS 0: it was sent); 1 it has not; 2 a
mistake.
"""


@grouped
def replay(
    *,
    chosen: LogOptions,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Publish to this and the topic, as 'replayed/'."),
    ] = None,
    topic_map: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Replace the first levels of topics; repeat it."),
    ] = None,
    to_same_topics: Annotated[
        bool,
        typer.Option("--to-same-topics", help="Publish to the topics they had, once more."),
    ] = False,
    speed: Annotated[
        float,
        typer.Option(min=0.001, max=1_000_000.0, metavar="N", help="N times as fast as they came."),
    ] = 1.0,
    as_fast_as_possible: Annotated[
        bool, typer.Option("--as-fast-as-possible", help="Without pauses.")
    ] = False,
    qos: Annotated[
        int | None,
        typer.Option("-q", "--qos", min=0, max=2, metavar="0|1|2", help="QoS; as it was."),
    ] = None,
    keep_retain: Annotated[
        bool, typer.Option("--keep-retain", help="Retain what was retained.")
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
    """Publish messages of the log again, as they came or faster."""
    if chosen.begin is None and chosen.last is None:
        raise ConfigError(
            "say which messages: --from 08:00, --from -10m, --from 1234 or --last 100"
        )
    mapped = parse_topic_map(prefix, topic_map or ())
    if not to_same_topics and not mapped.changes_all(chosen.topics or ()):
        raise ConfigError(
            "messages would be published to the topics they came from: give --prefix replayed/, or"
            " a --topic-map that fits every -t; --to-same-topics if that is meant, as on another"
            " broker"
        )
    from penstock.cli.client_program import StatusPrinter, run_client
    from penstock.cli.replaying import Pace, Replaying, Republishing
    from penstock.client import Client

    settings: Settings = {
        **connection.login(),
        "client_id": client_id,
        "status_changed": None if connection.quiet else StatusPrinter(prints_first_attempts=False),
    }
    client = Client(connection.parsed_url().server, **settings)
    pace = Pace(None if as_fast_as_possible else speed)
    has_properties = client.options.version == "5"
    republishing = Republishing(mapped, qos, keep_retain, with_properties=has_properties)
    replaying = Replaying(chosen, access, republishing, pace)
    work = replaying.dry_run() if dry_run else replaying.run(client, quiet=connection.quiet)
    run_client(work, connection)
