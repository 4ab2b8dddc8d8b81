"""`penstock sub`: the options of the command; `subscribing` does the work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.connection import Connection
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.packet_properties import parse_properties
from penstock.cli.printing import PrintOptions
from penstock.cli.selection import Selection
from penstock.errors import ConfigError
from penstock.protocol.packets import Subscription

EPILOG: Final = """\
A message is acknowledged after it was written to standard output or a file. A consumer that is
killed loses nothing if the broker keeps the session and the QoS is not 0:

\b
  penstock sub -t 'plant/#' -q 1 -c -i meter-reader --json | consumer

Exit codes: 0 done, or ended by SIGINT or SIGTERM; 1 failed; 2 a mistake; 27 the time of -W is over.
"""


@expand_option_groups
def sub(
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", metavar="FILTER", help="Topics to subscribe to; repeat it."),
    ] = None,
    qos: Annotated[
        int, typer.Option("-q", "--qos", min=0, max=2, metavar="0|1|2", help="Highest QoS.")
    ] = 0,
    selection: Selection,
    printing: PrintOptions,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE|DIR",
            help="Append to this file; of a directory, to a file for each topic.",
        ),
    ] = None,
    unsubscribe_filters: Annotated[
        list[str] | None,
        typer.Option(
            "-U",
            "--unsubscribe",
            metavar="FILTER",
            help="Unsubscribe from these; without -t do nothing else.",
        ),
    ] = None,
    only_subscribes: Annotated[
        bool, typer.Option("-E", help="End when the broker has answered the subscriptions.")
    ] = False,
    retain_as_published: Annotated[
        bool,
        typer.Option("--retain-as-published", help="Leave the retain flag as published, MQTT 5."),
    ] = False,
    connection: Connection,
) -> None:
    """Print the messages of topics."""
    selection.check()
    filters = connection.with_url_topic(topics)
    if not filters and not unsubscribe_filters:
        raise ConfigError("give the topics to subscribe to with -t, such as -t 'plant/#'")
    from penstock.cli.client_program import client_for, run_client
    from penstock.cli.output import Output
    from penstock.cli.subscribing import MessageReader, SubscriptionRequest, only_subscribe, read

    properties = parse_properties(
        connection.properties, ("connect", "subscribe", "unsubscribe", "will")
    )
    subscriptions = [
        Subscription(topic_filter, qos, retain_as_published=retain_as_published)
        for topic_filter in filters
    ]
    printer = printing.printer(on_terminal=output is None and sys.stdout.isatty())
    client = client_for(connection, properties)
    request = SubscriptionRequest(subscriptions, unsubscribe_filters or [], properties)
    if only_subscribes or not filters:
        run_client(only_subscribe(client, request), connection)
    reader = MessageReader(client, selection, printer, Output(output))
    run_client(read(client, request, reader), connection)
