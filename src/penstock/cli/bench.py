"""`penstock bench`: the options of the command; `penstock.bench` does the work."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.broker_options import BrokerOptions
from penstock.cli.exit_codes import EXIT_FAILED
from penstock.cli.option_groups import expand_option_groups
from penstock.errors import ConfigError
from penstock.telemetry.logs import printable

if TYPE_CHECKING:
    from penstock.bench.run import Run
    from penstock.cli.bench_display import Display

EPILOG: Final = """\
\b
  penstock bench -q 1                              one to one, as fast as it goes
  penstock bench -P 10 -S 10 -q 1 -w 100 -d 30     ten to ten, each subscriber its publisher's
  penstock bench -S 50 -q 1 -r 200                 one to fifty, 200 messages a second
  penstock bench -P 10 -q 2 -n 100000 --json       so many messages, figures as JSON

With -r latencies count from the moment a message was due, not from when it was sent. Ctrl-C ends
it early, with the figures so far. The figures are explained in docs/bench.md.

Exit codes: 0 done; 1 messages were lost with QoS 1 or 2, or duplicated with QoS 2, were never
acknowledged, or the broker was lost; 2 a mistake.
"""

_DURATION_S: Final = 10.0
_WARM_UP_S: Final = 1.0
_END_TO_END: Final = 1000
_TOPIC: Final = "bench/%i"
_CLIENTS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchBrokerOptions(BrokerOptions):
    """The options for a broker as in ``pub``, without -P and -d, which mean something else here."""

    password: Annotated[
        str | None, typer.Option("--pw", metavar="PASSWORD", help="Others see it with 'ps'.")
    ] = None
    debug: Annotated[bool, typer.Option("--debug", help="Tell what happens.")] = False


@expand_option_groups
def bench(
    *,
    publishers: Annotated[
        int,
        typer.Option(
            "-P", "--publishers", min=1, max=_CLIENTS_MAX, metavar="COUNT", help="Publishers; 1."
        ),
    ] = 1,
    subscribers: Annotated[
        int,
        typer.Option(
            "-S", "--subscribers", min=0, max=_CLIENTS_MAX, metavar="COUNT", help="Subscribers; 1."
        ),
    ] = 1,
    payload_bytes: Annotated[
        int,
        typer.Option(
            "-s", "--size", max=200_000_000, metavar="BYTES", help="Size of a payload; 64."
        ),
    ] = 64,
    qos: Annotated[
        int,
        typer.Option(
            "-q", "--qos", min=0, max=2, metavar="0|1|2", help="QoS to and from the broker."
        ),
    ] = 0,
    window: Annotated[
        int,
        typer.Option(
            "-w",
            "--window",
            min=1,
            max=65_000,
            metavar="COUNT",
            help="Most unacknowledged messages of a publisher; 100.",
        ),
    ] = 100,
    rate_per_s: Annotated[
        float,
        typer.Option(
            "-r", "--rate", min=0, metavar="PER_SECOND", help="Rate of all messages; 0: no limit."
        ),
    ] = 0.0,
    duration_s: Annotated[
        float | None,
        typer.Option("-d", "--duration", min=0.001, metavar="SECONDS", help="Measured time; 10."),
    ] = None,
    messages: Annotated[
        int | None,
        typer.Option(
            "-n", "--messages", min=1, metavar="COUNT", help="Messages instead of -d, in all."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC",
            help="bench/%i, where %i is the publisher's number; without %i all share one topic, and"
            " every subscriber gets everything.",
        ),
    ] = None,
    keeps_sessions: Annotated[
        bool,
        typer.Option("-c", "--persistent", help="Sessions outlive connections, until the end."),
    ] = False,
    warm_up_s: Annotated[
        float | None,
        typer.Option(
            "--warm-up", min=0, metavar="SECONDS", help="Not measured, before -d; 1, with -n 0."
        ),
    ] = None,
    end_to_end: Annotated[
        int | None,
        typer.Option(
            "--end-to-end",
            min=0,
            metavar="COUNT",
            help="Most messages of a publisher that subscribers do not have; 0: any. 1000 without"
            " a rate.",
        ),
    ] = None,
    drain_s: Annotated[
        float,
        typer.Option("--drain", min=0, metavar="SECONDS", help="Silence that ends the wait; 3."),
    ] = 3.0,
    patience_s: Annotated[
        float,
        typer.Option("--patience", min=0, metavar="SECONDS", help="Wait for a lost broker; 5."),
    ] = 5.0,
    id_prefix: Annotated[
        str,
        typer.Option("-I", "--id-prefix", metavar="PREFIX", help="Start of client identifiers."),
    ] = "bench-",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    broker: BenchBrokerOptions,
) -> None:
    """Measure a broker: throughput, latency, loss, duplicates."""
    url = broker.parsed_url()
    if duration_s is not None and messages is not None:
        raise ConfigError("give only one of -d and -n")
    if messages is None and duration_s is None:
        duration_s = _DURATION_S
    if warm_up_s is None:
        warm_up_s = _WARM_UP_S if messages is None else 0.0
    if end_to_end is None:
        end_to_end = 0 if rate_per_s else _END_TO_END
    from penstock.bench.connections import Connections
    from penstock.bench.plan import Plan
    from penstock.bench.run import Run
    from penstock.cli.bench_display import Display
    from penstock.cli.client_program import run_client

    plan = Plan(
        publishers=publishers,
        subscribers=subscribers,
        payload_bytes=payload_bytes,
        qos=qos,
        window=window,
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        messages=messages,
        topic=topic or url.topic or _TOPIC,
        warm_up_s=warm_up_s,
        end_to_end=end_to_end if subscribers else 0,
    )
    connections = Connections(
        url.server, broker.login(), keeps_sessions=keeps_sessions, patience_s=patience_s
    )
    display = Display(plan, connections, is_live=not as_json and not broker.quiet)
    run = Run(plan, connections, id_prefix, drain_s, display.update)
    run_client(_run(run, display, as_json), broker)


async def _run(run: Run, display: Display, as_json: bool) -> int:
    with display:
        figures = await run.execute()
    if as_json:
        print(json.dumps(figures.as_json()))
    else:
        display.print_figures(figures)
    for problem in figures.problems:
        print(f"penstock: {printable(problem)}", file=sys.stderr)
    return EXIT_FAILED if figures.problems else 0
