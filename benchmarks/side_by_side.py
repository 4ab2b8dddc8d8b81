"""``python -m benchmarks.side_by_side``: Penstock beside other brokers, in one run.

Each scenario is a run of ``penstock bench`` against each broker in turn, again and again, because
the machine's speed drifts: medians are shown, and their ratio to Mosquitto's. CPU time is that of
the broker's process, for a million copies that subscribers got; on two cores it says more than a
rate, which the load generator bounds as well.

With ``--write`` the figures become docs/benchmarks.md, with its plots.
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
from benchmarks.scenarios import DURABLE, MOSQUITTO, OURS, SCENARIOS, Medians, Run, Scenario, median
from benchmarks.side_by_side_page import write_page
from penstock.cli.version import version_text

Start = Callable[[], contextlib.AbstractContextManager[Broker]]

BROKERS: Final[dict[str, Start]] = {
    OURS: partial(peers.penstock, "memory"),
    MOSQUITTO: partial(peers.mosquitto, tcp_nodelay=False),
    "aedes": peers.aedes,
    "amqtt": peers.amqtt,
    DURABLE: partial(peers.penstock, "file"),
}

# What they speak; Mosquitto 2.0.11 stalls with QoS 2 before MQTT 5.
VERSIONS: Final = {"aedes": "3.1.1", "amqtt": "3.1.1"}

_TIMEOUT_S: Final = 120.0
_WARM_UP_S: Final = 0.5


def measure(broker: Broker, version: str, scenario: Scenario, qos: int, seconds: float) -> Run:
    """One run of ``penstock bench``, with this version of MQTT."""
    command = [
        *(sys.executable, "-m", "penstock", "bench", "--url", f"mqtt://127.0.0.1:{broker.port}"),
        *("-q", str(qos), "-d", str(seconds), "--warm-up", str(_WARM_UP_S), "--json"),
        *("-V", version),
        *scenario.options,
    ]
    cpu_s = broker.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
    said: dict[str, Any] = json.loads(done.stdout)
    received = said["copies"]["received"]
    latency = said["latency_ms"]["end_to_end"] or {"p50": 0.0, "p99": 0.0}
    return Run(
        cpu_s=(broker.cpu_s() - cpu_s) / received * 1e6 if received else 0.0,
        rate=said["per_s"]["received"],
        p50_ms=latency["p50"],
        p99_ms=latency["p99"],
        resident_mib=broker.resident_mib(),
        lost=said["copies"]["lost"],
    )


def main() -> None:
    """Measure, print, and write the page where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each broker")
    parser.add_argument("--brokers", nargs="+", default=list(BROKERS), choices=list(BROKERS))
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md and its plots")
    chosen = parser.parse_args()
    console = Console()
    console.print(machine())
    console.print(version_text())
    medians: Medians = {}
    with contextlib.ExitStack() as stack:
        running: dict[str, Broker] = {}
        for name in chosen.brokers:
            try:
                running[name] = stack.enter_context(BROKERS[name]())
            except peers.NotInstalled as reason:
                console.print(f"measured without {name}: {reason}")
        for scenario in SCENARIOS:
            for qos in scenario.levels:
                here = [name for name in scenario.brokers if name in running]
                runs: dict[str, list[Run]] = {name: [] for name in here}
                what = f"{scenario.name}, QoS {qos}"
                for _ in track(range(chosen.repeats), what, console=console, transient=True):
                    for name in here:
                        version = VERSIONS.get(name, "5")
                        run = measure(running[name], version, scenario, qos, chosen.seconds)
                        runs[name].append(run)
                for name in here:
                    medians[scenario.name, qos, name] = median(runs[name])
            console.print(_table(scenario, medians))
    if chosen.write:
        write_page(medians, chosen.repeats, chosen.seconds)


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
