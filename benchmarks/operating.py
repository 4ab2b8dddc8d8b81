"""``python -m benchmarks.operating``: what being watched and asked costs a broker under load.

Ten thousand clients are connected, and a load runs at a fixed rate. Runs take turns: the broker is
left alone; its metrics are scraped every second; all clients are listed over the control socket;
somebody asks why a client gets nothing; `penstock top` polls; all of it. The table compares the
broker's own CPU time a copy, and the end-to-end latency of the load.

Admin process, operators and load generator share the machine with the broker, so on few cores the
latency has their CPU time in it too; the broker's CPU time has not.
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
def connected(broker: Broker, count: int) -> Iterator[None]:
    """Clients that subscribed to one topic each, and are silent."""
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            client = socket.create_connection(("127.0.0.1", broker.port))
            opened.append(client)
            asked = [Subscription(f"idle/{number}", 1)]
            client.sendall(
                encode(Connect(f"idle-{number}", 5, True, 0), 5) + encode(Subscribe(1, asked), 5)
            )
        for client in opened:
            assert client.recv(4096)
        yield
    finally:
        for client in opened:
            client.close()


class Operator(threading.Thread):
    """Does one thing every second, until it is told to stop; it yields to whoever has work."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act
        self._stopped = threading.Event()

    def run(self) -> None:
        """Act, then wait for the next second."""
        os.setpriority(os.PRIO_PROCESS, 0, 19)  # of this thread alone, on Linux
        while not self._stopped.is_set():
            begun_s = time.monotonic()
            self._act()
            self._stopped.wait(max(0.0, 1.0 - (time.monotonic() - begun_s)))

    def stop(self) -> None:
        """Stop, and wait for it."""
        self._stopped.set()
        self.join()


def acts_on(broker: Broker, data_dir: Path) -> dict[str, Callable[[], object]]:
    """What operators do, by name; first nothing."""

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

    def ask_why() -> None:
        ask(data_dir, Explain("idle-77", "idle/77"), Explanation)

    def poll_broker() -> None:
        poll(ControlSocket(data_dir, "a benchmark"), PollRequest("rate"))

    def all_of_it() -> None:
        scrape()
        list_all()
        ask_why()
        poll_broker()

    return {
        "left alone": lambda: None,
        "scraped": scrape,
        "all clients listed": list_all,
        "asked why": ask_why,
        "penstock top": poll_broker,
        "all of it": all_of_it,
    }


def load(broker: Broker, rate: int, seconds: float) -> tuple[float, float, float]:
    """Return the broker's CPU µs a copy, the latency's p99 in ms, and copies a second."""
    command = [
        *(sys.executable, "-m", "penstock", "bench", "--url", f"mqtt://127.0.0.1:{broker.port}"),
        *("-P", "10", "-S", "10", "-q", "0", "-r", str(rate), "-d", str(seconds)),
        *("--warm-up", "1", "--json"),
    ]
    before_s = broker.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    received = told["copies"]["received"]
    cpu_us = (broker.cpu_s() - before_s) / received * 1e6
    return cpu_us, told["latency_ms"]["end_to_end"]["p99"], told["per_s"]["received"]


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS, help="connected and silent")
    parser.add_argument("--rates", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, in turns")
    parser.add_argument("--acts", nargs="+", help="of these alone, such as 'penstock top'")
    chosen = parser.parse_args()
    console = Console(width=110)
    console.print(f"{version_text()}\n{machine()}, {chosen.clients:,} clients")
    table = Table(title=f"medians of {chosen.repeats} runs in turns; each act once a second")
    for heading in ("copies a second", "", "CPU µs a copy", "ratio", "p99 ms", "ratio"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        data_dir = Path(directory)
        with penstock_in(data_dir, "file", _SETTINGS) as broker, connected(broker, chosen.clients):
            for rate in chosen.rates:
                acts = acts_on(broker, data_dir)
                for name in [*acts][1:]:
                    if chosen.acts and name not in chosen.acts:
                        del acts[name]
                for row in _rows(broker, acts, rate, chosen.seconds, chosen.repeats):
                    table.add_row(*row)
    console.print(table)


def _rows(
    broker: Broker,
    acts: dict[str, Callable[[], object]],
    rate: int,
    seconds: float,
    repeats: int,
) -> Iterator[tuple[str, ...]]:
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in acts}
    for _ in range(repeats):
        for name, act in acts.items():
            operator = Operator(act)
            operator.start()
            try:
                runs[name].append(load(broker, rate, seconds))
            finally:
                operator.stop()
    alone: list[float] = []
    for name, figures in runs.items():
        cpu_us, p99_ms, per_s = (statistics.median(column) for column in zip(*figures, strict=True))
        alone = alone or [cpu_us, p99_ms]
        yield (
            f"{per_s:,.0f}",
            name,
            f"{cpu_us:.3f}",
            f"{cpu_us / alone[0]:.2f}",
            f"{p99_ms:.2f}",
            f"{p99_ms / alone[1]:.2f}",
        )


if __name__ == "__main__":
    main()
