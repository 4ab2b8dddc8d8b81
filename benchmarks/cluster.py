"""``python -m benchmarks.cluster``: compares the primary of a cluster with a single broker.

Three NATS servers on this machine store the log, each syncing every append, and one broker is the
primary, on the same cores. Its runs alternate with those of a broker without a cluster, which syncs
its own disk, because the machine's speed drifts: the tables show medians, and the median of the
ratios of the runs.

QoS 1 without a subscriber, window 100, 64 bytes, by 1, 10 and 100 publishers; then the time from
PUBLISH to PUBACK at 2,000 messages a second. CPU time is that of the broker's process, a message;
a second table has the time of every process, for on three machines the servers and standbys have
cores of their own. ``--standbys`` puts standbys on these cores, too. ``--payload`` decides how well
messages compress: records of the log are compressed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
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
from benchmarks.cpu_shares import Share, Shares
from benchmarks.machine import machine
from benchmarks.publish import PAYLOADS, WINDOW, Measurement, publish
from penstock.cli.version import version_text
from penstock.cluster.jetstream import JetStreamLog
from penstock.config.cluster import Cluster
from tests.support.nats_cluster import NatsCluster, nats_cluster

ALONE: Final = "alone, file"
PRIMARY: Final = "primary of a cluster"
RATE: Final = 2000
_WARM_UP_S: Final = 1.0
_TIMEOUT_S: Final = 120.0


class Latency(NamedTuple):
    """The time from PUBLISH to PUBACK, milliseconds."""

    p50: float
    p99: float


class Running(NamedTuple):
    """What runs.

    Attributes:
        brokers: both, by name.
        standbys: the standbys.
        servers: the NATS servers.
    """

    brokers: dict[str, Broker]
    standbys: list[Broker]
    servers: NatsCluster

    def processes(self, name: str) -> dict[str, int]:
        """Return the process numbers of all that works when broker ``name`` is measured."""
        processes = {"broker": self.brokers[name].pid, "load generator": os.getpid()}
        if name == PRIMARY:
            for number, standby in enumerate(self.standbys, 1):
                processes[f"standby {number}"] = standby.pid
            leader = self._leader()
            servers = sorted(self.servers.servers, key=lambda server: server.name != leader)
            for number, server in enumerate(servers):
                role = f"follower {number}" if number else "leader"
                processes[f"NATS server, {role}"] = server.process.pid
        return processes

    def _leader(self) -> str:
        log = JetStreamLog(Cluster(log=self.servers.urls), "benchmark")
        with contextlib.closing(log):
            return log.state(_TIMEOUT_S).leader


@contextlib.contextmanager
def brokers(directory: Path, standbys: int) -> Iterator[Running]:
    """Start both, the primary with its servers and standbys."""
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(nats_cluster(directory / "nats"))
        running = {ALONE: stack.enter_context(penstock_in(directory / "alone", "file"))}
        others: list[Broker] = []
        for number in range(1 + standbys):
            settings = {
                "cluster.log": json.dumps(servers.urls),
                "cluster.node": f"b{number}",
                "cluster.members": f'["b{number}"]',
                "cluster.server_name": servers.servers[number].name,
                "stream.bind": "127.0.0.1:0",
            }
            place = directory / f"b{number}"
            wait = number == 0
            started = stack.enter_context(penstock_in(place, "file", settings, until_primary=wait))
            if number == 0:
                running[PRIMARY] = started
            else:
                others.append(started)
        yield Running(running, others, servers)


def measure_latency(broker: Broker, seconds: float) -> Latency:
    """Return the time to PUBACK of 10 publishers that send 2,000 messages a second together."""
    command = [
        *(sys.executable, "-m", "penstock", "bench", "--url", f"mqtt://127.0.0.1:{broker.port}"),
        *("-P", "10", "-S", "0", "-q", "1", "-r", str(RATE), "-d", str(seconds)),
        *("--warm-up", str(_WARM_UP_S), "--json"),
    ]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if not process.stdout:
        raise RuntimeError(f"{' '.join(command)} failed: {process.stderr.strip()[-300:]}")
    latency_ms: dict[str, Any] = json.loads(process.stdout)["latency_ms"]["acknowledgement"]
    return Latency(latency_ms["p50"], latency_ms["p99"])


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each broker")
    parser.add_argument("--publishers", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--standbys", type=int, default=0, choices=[0, 1, 2])
    parser.add_argument("--payload", choices=list(PAYLOADS), default="same")
    arguments = parser.parse_args()
    console = Console()
    console.print(machine())
    console.print(version_text())
    repeats = range(arguments.repeats)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-cluster-bench-") as directory,
        brokers(Path(directory), arguments.standbys) as running,
    ):
        for publishers in arguments.publishers:
            runs: dict[str, list[Measurement]] = {name: [] for name in running.brokers}
            shares: dict[str, list[dict[str, Share]]] = {name: [] for name in running.brokers}
            what = f"{publishers} publisher(s)"
            for _ in track(repeats, what, console=console, transient=True):
                for name, broker in running.brokers.items():
                    seen = Shares(running.processes(name))
                    payload = PAYLOADS[arguments.payload]
                    measured = publish(broker, publishers, arguments.seconds, payload=payload)
                    runs[name].append(measured)
                    shares[name].append(seen.until_now(measured.messages))
            console.print(_rates(publishers, runs))
            for name in running.brokers:
                console.print(_shares(name, shares[name]))
        latencies: dict[str, list[Latency]] = {name: [] for name in running.brokers}
        for _ in track(repeats, "latency", console=console, transient=True):
            for name, broker in running.brokers.items():
                latencies[name].append(measure_latency(broker, arguments.seconds))
        console.print(_latencies(latencies))


def _rates(publishers: int, runs: dict[str, list[Measurement]]) -> Table:
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


def _shares(name: str, turns: list[dict[str, Share]]) -> Table:
    """Return the median of each process; connecting and warming up are in it."""
    table = _table(name, "CPU µs/message", "of all cores", heading="process")
    for process in turns[0]:
        shares = [turn[process] for turn in turns]
        table.add_row(
            process,
            f"{statistics.median(share.cpu_us_per_message for share in shares):.2f}",
            f"{statistics.median(share.of_cores for share in shares):.0%}",
        )
    return table


def _ratio(values: list[float], alone: list[float]) -> str:
    """Return the median of the ratios of each pair of runs."""
    return f"{statistics.median(a / b for a, b in zip(values, alone, strict=True)):.2f}"


def _latencies(latencies: dict[str, list[Latency]]) -> Table:
    title = f"PUBLISH to PUBACK at {RATE:,} messages/s: medians of {len(latencies[ALONE])}"
    table = _table(title, "p50 ms", "p99 ms")
    for name, measured in latencies.items():
        table.add_row(
            name,
            f"{statistics.median(run.p50 for run in measured):.2f}",
            f"{statistics.median(run.p99 for run in measured):.2f}",
        )
    return table


def _table(title: str, *headings: str, heading: str = "broker") -> Table:
    table = Table(title=title)
    table.add_column(heading)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


if __name__ == "__main__":
    main()
