"""`penstock pub`: the options of the command; `publishing` does the work."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.connection import Connection
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.packet_properties import parse_properties
from penstock.cli.payloads import Payload
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.client.options import Settings

EPILOG: Final = """\
\b
  penstock pub -t plant/line1/temp -q 1 -m 21.5
  tail -f readings.log | penstock pub -t plant/log -q 1 -l
  penstock pub --outbox box -i logger -t plant/log -l < readings.log

With --outbox lines are on disk as soon as they are read, also while no broker is reachable;
messages that remain in it are sent by the next 'penstock pub --outbox', even without a message.

Exit codes: 0 the broker has acknowledged everything (QoS 0: it was sent); 1 it has not; 2 a
mistake; 27 the time of -W is over.
"""

_QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024


@expand_option_groups
def pub(
    *,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic name.")
    ] = None,
    payload: Payload,
    by_line: Annotated[
        bool,
        typer.Option("-l", "--stdin-line", help="Each line of standard input is a message."),
    ] = False,
    qos: Annotated[
        int | None,
        typer.Option("-q", "--qos", min=0, max=2, metavar="0|1|2", help="QoS; 0, 1 with an outbox"),
    ] = None,
    retain: Annotated[
        bool, typer.Option("-r", "--retain", help="Retain the message for later subscribers.")
    ] = False,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, metavar="COUNT", help="How often to publish.")
    ] = 1,
    repeat_delay_s: Annotated[
        float,
        typer.Option("--repeat-delay", min=0.0, metavar="SECONDS", help="Pause in between."),
    ] = 0.0,
    outbox: Annotated[
        Path | None,
        typer.Option("--outbox", metavar="DIR", help="Store messages here until acknowledged."),
    ] = None,
    max_inflight: Annotated[
        int,
        typer.Option(
            "-M", "--max-inflight", min=1, metavar="COUNT", help="Most unacknowledged messages."
        ),
    ] = 100,
    timeout_s: Annotated[
        float | None,
        typer.Option("-W", "--timeout", min=0.0, metavar="SECONDS", help="Give up after this."),
    ] = None,
    connection: Connection,
) -> None:
    """Publish messages."""
    topic = topic or connection.parsed_url().topic
    if payload.count + by_line > 1:
        raise ConfigError("give only one of -m, -f, -n, -s and -l")
    is_message = payload.count + by_line == 1
    if not is_message and outbox is None:
        raise ConfigError("give a message: -m TEXT, -f FILE, -n, -s or -l")
    if is_message and not topic:
        raise ConfigError("give the topic with -t, such as -t plant/line1/temp")
    if by_line and repeat > 1:
        raise ConfigError("--repeat goes with -m, -f, -n and -s")
    if outbox is not None and qos == 0:
        raise ConfigError("an outbox keeps messages of QoS 1 and 2: leave out -q 0")
    from penstock.cli.client_program import client_for, run_client
    from penstock.cli.publishing import PublishRun, publish

    properties = parse_properties(connection.properties, ("connect", "publish", "will"))
    settings: Settings = {"max_inflight": max_inflight, "queue_bytes_max": _QUEUE_BYTES_MAX}
    if outbox is not None:
        settings["outbox"] = outbox
    client = client_for(connection, properties, settings)
    level = qos if qos is not None else int(outbox is not None)
    run = PublishRun(client, topic, level, retain, properties.get("publish"))
    if by_line:
        work = run.publish_lines
    elif payload.count:
        work = partial(run.publish_repeatedly, payload.read(), repeat, repeat_delay_s)
    else:
        work = run.publish_nothing
    run_client(publish(run, work, timeout_s, connection.quiet), connection)
