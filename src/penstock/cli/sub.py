"""`penstock sub`: its options; `subscribing` does the work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.connection import Connection
from penstock.cli.option_groups import grouped
from penstock.cli.packet_properties import parse_properties
from penstock.cli.printing import PrintOptions
from penstock.cli.selection import Selection
from penstock.errors import ConfigError
from penstock.protocol.packets import Subscription

FURTHER: Final = """\
A message is acknowledged after it was written to the standard output or file. A consumer that dies
loses nothing if the broker keeps the session and the QoS is not 0:

\b
  penstock sub -t 'plant/#' -q 1 -c -i meter-reader --json | consumer

Exit codes: 0 done, or ended by SIGINT or SIGTERM; 1 it went wrong; 2 a mistake; 27 the time of -W
is over.
"""


@grouped
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
    ended: Annotated[
        list[str] | None,
        typer.Option(
            "-U",
            "--unsubscribe",
            metavar="FILTER",
            help="Unsubscribe from these; without -t, that is all.",
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
    wanted = connection.topics(topics)
    if not wanted and not ended:
        raise ConfigError("give the topics to subscribe to with -t, such as -t 'plant/#'")
    from penstock.cli.client_program import client_for, run_client
    from penstock.cli.output import Output
    from penstock.cli.subscribing import MessageReader, Subscribing, only_subscribe, read

    properties = parse_properties(
        connection.properties, ("connect", "subscribe", "unsubscribe", "will")
    )
    subscriptions = [
        Subscription(one, qos, retain_as_published=retain_as_published) for one in wanted
    ]
    printer = printing.printer(on_terminal=output is None and sys.stdout.isatty())
    client = client_for(connection, properties)
    subscribing = Subscribing(subscriptions, ended or [], properties)
    if only_subscribes or not wanted:
        run_client(only_subscribe(client, subscribing), connection)
    reader = MessageReader(client, selection, printer, Output(output))
    run_client(read(client, subscribing, reader), connection)
