"""`penstock rr`: the options of the command; `requesting` does the work."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.connection import Connection
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.packet_properties import parse_properties
from penstock.cli.payloads import Payload
from penstock.cli.printing import PrintOptions
from penstock.errors import ConfigError
from penstock.protocol.properties import Properties

EPILOG: Final = """\
\b
  penstock rr -t plant/line1/commands -m status -W 5

A responder publishes to the response topic in the properties of the request, with their correlation
data. With MQTT 3.1.1 both sides must know the topic: -e.

Exit codes: 0 there was a response; 1 failed; 2 a mistake; 27 the time of -W is over.
"""


@expand_option_groups
def rr(
    *,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic of requests.")
    ] = None,
    payload: Payload,
    response_topic: Annotated[
        str | None,
        typer.Option("-e", metavar="TOPIC", help="Response topic; else a unique one."),
    ] = None,
    qos: Annotated[
        int, typer.Option("-q", "--qos", min=0, max=2, metavar="0|1|2", help="QoS both ways.")
    ] = 0,
    timeout_s: Annotated[
        float | None,
        typer.Option("-W", "--timeout", min=0.0, metavar="SECONDS", help="Wait no longer."),
    ] = None,
    no_retained: Annotated[
        bool, typer.Option("-R", "--no-retained", help="A retained message is no response.")
    ] = False,
    printing: PrintOptions,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE|DIR", help="Append the response.")
    ] = None,
    connection: Connection,
) -> None:
    """Publish a request, and print the response."""
    topic = topic or connection.parsed_url().topic
    if not topic:
        raise ConfigError("give the topic to ask on with -t")
    if payload.count != 1:
        raise ConfigError("give one request: -m TEXT, -f FILE, -n or -s")
    from penstock.cli.client_program import client_for, run_client
    from penstock.cli.output import Output
    from penstock.cli.requesting import Exchange, send_request

    by_command = parse_properties(connection.properties, ("connect", "publish", "will"))
    printer = printing.printer(on_terminal=output is None and sys.stdout.isatty())
    client = client_for(connection, by_command)
    is_v5 = client.options.version == "5"
    if response_topic is None and not is_v5:
        raise ConfigError("before MQTT 5 a request has no response topic in it: give -e")
    response_topic = response_topic or f"penstock/responses/{secrets.token_hex(12)}"
    properties = by_command.get("publish", Properties()) if is_v5 else None
    if properties is not None:
        properties.response_topic = response_topic
        if properties.correlation_data is None:
            properties.correlation_data = secrets.token_bytes(12)
    request = payload.read()
    target = Output(output)

    exchange = Exchange(client, topic, response_topic, qos, no_retained, properties)
    run_client(send_request(exchange, request, printer, target, timeout_s), connection)
