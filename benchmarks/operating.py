"""``python -m benchmarks.operating``: the cost of monitoring and of operators' requests under load.

Ten thousand clients are connected, and a load runs at a fixed rate. Runs of these kinds alternate:
no operator; metrics are scraped every second; all clients are listed over the control socket; a
request explains why a client gets no messages; all of these; `penstock top` polls. The table
compares the broker's CPU time for each copy, and the end-to-end latency of the load.

Admin process, operators and load generator share the machine with the broker: with few cores the
latency includes their CPU time, but the broker's CPU time does not.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.broker import Broker, penstock_in
from benchmarks.machine import machine
from penstock.cli.top.broker_api import ControlSocket
from penstock.cli.top.poller import PollRequest, poll
from penstock.cli.version import version_text
from penstock.control.admin_requests import LIMIT_MAX, ListSessions, Page
from penstock.control.client import ask
from penstock.control.explanation import Explain, Explanation
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Subscribe, Subscription

CLIENTS: Final = 10_000
_SETTINGS: Final = {
    "admin.bind": "127.0.0.1:0",
    "listener.max_connections": 15_000,
    "memory.budget_bytes": 17 * 2**30,
}


@contextmanager
def connect_idle_clients(broker: Broker, count: int) -> Iterator[None]:
    """Connect ``count`` clients with one subscription each, which send nothing."""
    sockets: list[socket.socket] = []
    try:
        for number in range(count):
            client = socket.create_connection(("127.0.0.1", broker.port))
            sockets.append(client)
            subscriptions = [Subscription(f"idle/{number}", 1)]
            client.sendall(
                encode(Connect(f"idle-{number}", 5, True, 0), 5)
                + encode(Subscribe(1, subscriptions), 5)
            )
        for client in sockets:
            assert client.recv(4096)
        yield
    finally:
        for client in sockets:
            client.close()


class Operator(threading.Thread):
    """A thread of low priority that calls a function every second until `stop`."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action = action
        self._stopped = threading.Event()

    def run(self) -> None:
        """Call the function at the start of every second."""
        os.setpriority(os.PRIO_PROCESS, 0, 19)  # of this thread alone, on Linux
        while not self._stopped.is_set():
            begun_s = time.monotonic()
            self._action()
            self._stopped.wait(max(0.0, 1.0 - (time.monotonic() - begun_s)))

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopped.set()
        self.join()


def operator_actions(broker: Broker, data_dir: Path) -> dict[str, Callable[[], object]]:
    """Return the functions that an operator calls, by name; the first does nothing."""

    def scrape() -> None:
        with urllib.request.urlopen(f"{broker.admin}/metrics", timeout=10) as answer:
            assert b"penstock_" in answer.read()

    def list_all() -> None:
        cursor = ""
        while True:
            page = ask(data_dir, ListSessions(cursor=cursor, limit=LIMIT_MAX), Page)
            cursor = page.cursor
            if not cursor:
                return

    def explain() -> None:
        ask(data_dir, Explain("idle-77", "idle/77"), Explanation)

    def poll_broker() -> None:
        poll(ControlSocket(data_dir, "a benchmark"), PollRequest("rate"))

    def do_all() -> None:
        scrape()
        list_all()
        explain()

    return {
        "no operator": lambda: None,
        "scraped": scrape,
        "all clients listed": list_all,
        "explain": explain,
        "all of these": do_all,
        "penstock top": poll_broker,
    }


def load(broker: Broker, rate: int, seconds: float) -> tuple[float, float, float]:
    """Run the load; return the broker's CPU µs for a copy, p99 latency in ms, copies a second."""
    command = [
        *(sys.executable, "-m", "penstock", "bench", "--url", f"mqtt://127.0.0.1:{broker.port}"),
        *("-P", "10", "-S", "10", "-q", "0", "-r", str(rate), "-d", str(seconds)),
        *("--warm-up", "1", "--json"),
    ]
    before_s = broker.cpu_s()
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    report: dict[str, Any] = json.loads(process.stdout)
    received = report["copies"]["received"]
    cpu_us = (broker.cpu_s() - before_s) / received * 1e6
    return cpu_us, report["latency_ms"]["end_to_end"]["p99"], report["per_s"]["received"]


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS, help="idle clients")
    parser.add_argument("--rates", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind")
    parser.add_argument("--actions", nargs="+", help="only these kinds, such as 'penstock top'")
    arguments = parser.parse_args()
    console = Console(width=110)
    console.print(f"{version_text()}\n{machine()}, {arguments.clients:,} clients")
    table = Table(title=f"medians of {arguments.repeats} runs; each action once a second")
    for heading in ("copies a second", "", "CPU µs a copy", "ratio", "p99 ms", "ratio"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        data_dir = Path(directory)
        with (
            penstock_in(data_dir, "file", _SETTINGS) as broker,
            connect_idle_clients(broker, arguments.clients),
        ):
            for rate in arguments.rates:
                actions = operator_actions(broker, data_dir)
                for name in [*actions][1:]:
                    if arguments.actions and name not in arguments.actions:
                        del actions[name]
                for row in _rows(broker, actions, rate, arguments.seconds, arguments.repeats):
                    table.add_row(*row)
    console.print(table)


def _rows(
    broker: Broker,
    actions: dict[str, Callable[[], object]],
    rate: int,
    seconds: float,
    repeats: int,
) -> Iterator[tuple[str, ...]]:
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, action in actions.items():
            operator = Operator(action)
            operator.start()
            try:
                runs[name].append(load(broker, rate, seconds))
            finally:
                operator.stop()
    baseline: list[float] = []
    for name, figures in runs.items():
        cpu_us, p99_ms, per_s = (statistics.median(column) for column in zip(*figures, strict=True))
        baseline = baseline or [cpu_us, p99_ms]
        yield (
            f"{per_s:,.0f}",
            name,
            f"{cpu_us:.3f}",
            f"{cpu_us / baseline[0]:.2f}",
            f"{p99_ms:.2f}",
            f"{p99_ms / baseline[1]:.2f}",
        )


if __name__ == "__main__":
    main()
