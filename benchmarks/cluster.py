"""``python -m benchmarks.cluster``: a broker of a cluster beside one that keeps its log alone.

Three NATS servers on this machine keep the log, each syncing every append, and one broker is the
primary, on the same cores. It takes turns with a broker that has no cluster and syncs its own disk,
because the machine's speed drifts: medians are shown, and the median of the ratios of each turn.

QoS 1 without a subscriber, window 100, 64 bytes, by 1, 10 and 100 publishers; then the time from
PUBLISH to PUBACK at 2,000 messages a second. CPU time is that of the broker's process, a message.
On three machines the servers and standbys have cores of their own; ``--standbys`` puts standbys on
these cores, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.broker import Broker, penstock_in
from benchmarks.machine import machine
from benchmarks.publish import WINDOW, Measured, publish
from penstock.cli.version import version_text
from tests.support.nats_cluster import nats_cluster

ALONE: Final = "alone, file"
PRIMARY: Final = "primary of a cluster"
RATE: Final = 2000
_WARM_UP_S: Final = 1.0
_TIMEOUT_S: Final = 120.0


class Latency(NamedTuple):
    """Milliseconds from PUBLISH to PUBACK."""

    p50: float
    p99: float


@contextlib.contextmanager
def brokers(directory: Path, standbys: int) -> Iterator[dict[str, Broker]]:
    """Start both, the primary with its servers and standbys."""
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(nats_cluster(directory / "nats"))
        running = {ALONE: stack.enter_context(penstock_in(directory / "alone", "file"))}
        for number in range(1 + standbys):
            settings = {
                "cluster.log": json.dumps(servers.urls),
                "cluster.node": f"b{number}",
                "cluster.server_name": servers.servers[number].name,
                "stream.bind": "127.0.0.1:0",
            }
            place = directory / f"b{number}"
            wait = number == 0
            started = stack.enter_context(penstock_in(place, "file", settings, until_primary=wait))
            running.setdefault(PRIMARY, started)
        yield running


def acknowledged_after(broker: Broker, seconds: float) -> Latency:
    """Return the time to PUBACK of 10 publishers with 2,000 messages a second between them."""
    command = [
        *(sys.executable, "-m", "penstock", "bench", "--url", f"mqtt://127.0.0.1:{broker.port}"),
        *("-P", "10", "-S", "0", "-q", "1", "-r", str(RATE), "-d", str(seconds)),
        *("--warm-up", str(_WARM_UP_S), "--json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
    said: dict[str, Any] = json.loads(done.stdout)["latency_ms"]["acknowledgement"]
    return Latency(said["p50"], said["p99"])


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=7, help="turns")
    parser.add_argument("--publishers", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--standbys", type=int, default=0, choices=[0, 1, 2])
    chosen = parser.parse_args()
    console = Console()
    console.print(machine())
    console.print(version_text())
    turns = range(chosen.repeats)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-cluster-bench-") as directory,
        brokers(Path(directory), chosen.standbys) as running,
    ):
        for publishers in chosen.publishers:
            runs: dict[str, list[Measured]] = {name: [] for name in running}
            what = f"{publishers} publisher(s)"
            for _ in track(turns, what, console=console, transient=True):
                for name, broker in running.items():
                    runs[name].append(publish(broker, publishers, chosen.seconds))
            console.print(_rates(publishers, runs))
        latencies: dict[str, list[Latency]] = {name: [] for name in running}
        for _ in track(turns, "latency", console=console, transient=True):
            for name, broker in running.items():
                latencies[name].append(acknowledged_after(broker, chosen.seconds))
        console.print(_latencies(latencies))


def _rates(publishers: int, runs: dict[str, list[Measured]]) -> Table:
    title = f"{publishers} publisher(s), QoS 1, window {WINDOW}: medians of {len(runs[ALONE])}"
    table = _table(title, "messages/s", "of alone", "CPU µs/message", "of alone")
    for name, measured in runs.items():
        rates = [run.messages_per_s for run in measured]
        cpu_us = [run.cpu_us_per_message for run in measured]
        alone = runs[ALONE]
        table.add_row(
            name,
            f"{statistics.median(rates):,.0f}",
            _ratio(rates, [run.messages_per_s for run in alone]),
            f"{statistics.median(cpu_us):.2f}",
            _ratio(cpu_us, [run.cpu_us_per_message for run in alone]),
        )
    return table


def _ratio(values: list[float], alone: list[float]) -> str:
    """Return the median of the ratios of each turn."""
    return f"{statistics.median(a / b for a, b in zip(values, alone, strict=True)):.2f}"


def _latencies(latencies: dict[str, list[Latency]]) -> Table:
    title = f"PUBLISH to PUBACK at {RATE:,} messages/s: medians of {len(latencies[ALONE])}"
    table = _table(title, "p50 ms", "p99 ms")
    for name, measured in latencies.items():
        table.add_row(
            name,
            f"{statistics.median(one.p50 for one in measured):.2f}",
            f"{statistics.median(one.p99 for one in measured):.2f}",
        )
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    table.add_column("broker")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


if __name__ == "__main__":
    main()
