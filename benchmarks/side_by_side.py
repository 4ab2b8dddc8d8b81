"""``python -m benchmarks.side_by_side``: compares Penstock with other brokers.

In each scenario ``penstock bench`` runs against the brokers alternately, because the machine's
speed drifts: the tables show medians, and their ratio to Mosquitto's. CPU time is that of the
broker's process for a million copies received by subscribers. On two cores it is more reliable than
the rate, which the load generator limits too.

``--write`` writes the figures to docs/benchmarks.md, with plots.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import peers
from benchmarks.broker import Broker
from benchmarks.machine import machine
from benchmarks.scenarios import (
    DURABLE,
    MOSQUITTO,
    PENSTOCK,
    SCENARIOS,
    Medians,
    Run,
    Scenario,
    median,
)
from benchmarks.side_by_side_page import write_page
from penstock.cli.version import version_text

Start = Callable[[], contextlib.AbstractContextManager[Broker]]

BROKERS: Final[dict[str, Start]] = {
    PENSTOCK: partial(peers.penstock, "memory"),
    MOSQUITTO: partial(peers.mosquitto, tcp_nodelay=False),
    "aedes": peers.aedes,
    "amqtt": peers.amqtt,
    DURABLE: partial(peers.penstock, "file"),
}

# The MQTT version of each broker, 5 by default: Mosquitto 2.0.11 stalls with QoS 2 and MQTT 3.1.1.
VERSIONS: Final = {"aedes": "3.1.1", "amqtt": "3.1.1"}

_TIMEOUT_S: Final = 120.0
_WARM_UP_S: Final = 0.5


def measure(broker: Broker, version: str, scenario: Scenario, qos: int, seconds: float) -> Run:
    """Run ``penstock bench`` with an MQTT version ("3.1.1" or "5"), and return its figures.

    Raises:
        RuntimeError: ``penstock bench`` failed.
    """
    command = [
        *(sys.executable, "-m", "penstock", "bench", "--url", f"mqtt://127.0.0.1:{broker.port}"),
        *("-q", str(qos), "-d", str(seconds), "--warm-up", str(_WARM_UP_S), "--json"),
        *("-V", version),
        *scenario.options,
    ]
    cpu_s = broker.cpu_s()
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if not process.stdout:
        raise RuntimeError(f"{' '.join(command)} failed: {process.stderr.strip()[-300:]}")
    report: dict[str, Any] = json.loads(process.stdout)
    received = report["copies"]["received"]
    latency = report["latency_ms"]["end_to_end"] or {"p50": 0.0, "p99": 0.0}
    return Run(
        cpu_s=(broker.cpu_s() - cpu_s) / received * 1e6 if received else 0.0,
        rate=report["per_s"]["received"],
        p50_ms=latency["p50"],
        p99_ms=latency["p99"],
        resident_mib=broker.resident_mib(),
        lost=report["copies"]["lost"],
    )


def main() -> None:
    """Run the scenarios and print tables; with ``--write`` write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each broker")
    parser.add_argument("--brokers", nargs="+", default=list(BROKERS), choices=list(BROKERS))
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks.md and its plots"
    )
    arguments = parser.parse_args()
    console = Console()
    console.print(machine())
    console.print(version_text())
    medians: Medians = {}
    with contextlib.ExitStack() as stack:
        running: dict[str, Broker] = {}
        for name in arguments.brokers:
            try:
                running[name] = stack.enter_context(BROKERS[name]())
            except peers.NotInstalled as reason:
                console.print(f"measured without {name}: {reason}")
        for scenario in SCENARIOS:
            for qos in scenario.levels:
                names = [name for name in scenario.brokers if name in running]
                runs: dict[str, list[Run]] = {name: [] for name in names}
                title = f"{scenario.name}, QoS {qos}"
                for _ in track(range(arguments.repeats), title, console=console, transient=True):
                    for name in names:
                        version = VERSIONS.get(name, "5")
                        run = measure(running[name], version, scenario, qos, arguments.seconds)
                        runs[name].append(run)
                for name in names:
                    medians[scenario.name, qos, name] = median(runs[name])
            console.print(_table(scenario, medians))
    if arguments.write:
        write_page(medians, arguments.repeats, arguments.seconds)


def _table(scenario: Scenario, medians: Medians) -> Table:
    table = Table(title=scenario.name)
    headings = ("broker", "QoS", "CPU s / million", "of Mosquitto's", "copies/s", "of Mosquitto's")
    for heading in (*headings, "p50 ms", "p99 ms", "MiB", "lost"):
        table.add_column(heading, justify="left" if heading == "broker" else "right")
    for qos in scenario.levels:
        base = medians.get((scenario.name, qos, MOSQUITTO))
        for name in scenario.brokers:
            run = medians.get((scenario.name, qos, name))
            if run is None:
                continue
            table.add_row(
                name,
                str(qos),
                f"{run.cpu_s:.2f}",
                f"{run.cpu_s / base.cpu_s:.2f}" if base and base.cpu_s else "",
                f"{run.rate:,.0f}",
                f"{run.rate / base.rate:.2f}" if base and base.rate else "",
                f"{run.p50_ms:.2f}",
                f"{run.p99_ms:.2f}",
                f"{run.resident_mib:.0f}",
                f"{run.lost:,}",
            )
    return table


if __name__ == "__main__":
    main()
