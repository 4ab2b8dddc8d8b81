"""``python -m benchmarks.sql``: what `penstock sql` reads of a day, its time and its memory.

A log of one day, whose messages come evenly, is written straight into a store; the stream service
serves it. Each query is a process of its own, with push-down and without, three times, of which the
medians are shown: messages read are those that the service sent, seconds are those of the query
alone, memory is the most that the process had. The first query for a time has the service read the
log once, to know when its messages were received; one goes before those measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.pushdown import DAY_S, serving, write_log

RUNS: Final = 3
MINUTE: Final = "received_at >= '2026-11-25 12:00:00Z' AND received_at < '2026-11-25 12:01:00Z'"
TOPIC: Final = "topic = 'plant/7/temperature'"

_LONGEST: Final = "SELECT count(*), max(octet_length(payload)) FROM messages"

QUERIES: Final = {
    "a minute of one topic": f"{_LONGEST} WHERE {MINUTE} AND {TOPIC}",
    "a minute": f"{_LONGEST} WHERE {MINUTE}",
    "one topic": f"{_LONGEST} WHERE {TOPIC}",
    "messages by topic, of the day": "SELECT topic, count(*) FROM messages GROUP BY topic",
}

_PROGRAM: Final = """
import re
import sys
import time
from pathlib import Path
from penstock.sql.session import SqlSession
from penstock.stream.client import StreamClient
address, pushes, text = sys.argv[1:]
with SqlSession(lambda: StreamClient(address, 5.0), pushes=pushes == "on") as session:
    (statement,) = session.statements(text)
    started_s = time.perf_counter()
    list(statement.rows())
    seconds = time.perf_counter() - started_s
    most = re.search(r"VmHWM:\\s*([0-9]+) kB", Path("/proc/self/status").read_text())
    print(sum(scan.read for scan in session.scans.found), seconds, int(most[1]) / 1024)
"""


@dataclass(frozen=True)
class Measured:
    """One query: messages that the service sent, seconds, and MiB of the process at most."""

    read: int
    seconds: float
    memory_mib: float


def measure(port: int, text: str, pushes: str) -> Measured:
    """Run a query in a process of its own, some times; medians."""
    command = [sys.executable, "-c", _PROGRAM, f"127.0.0.1:{port}", pushes, text]
    found = [
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        for _ in range(RUNS)
    ]
    read, _, _ = found[0]
    seconds, memory = (median(float(one[place]) for one in found) for place in (1, 2))
    return Measured(int(read), seconds, memory)


def main() -> None:
    """Write the log, run the queries, and print what was read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20 * DAY_S, help="messages of the day")
    chosen = parser.parse_args()
    console = Console()
    console.print(machine())
    table = Table(title=f"a day of {chosen.rows:,} messages")
    for heading in ("query", "push-down", "messages read", "seconds", "MiB"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch) / "data"
        write_log(data_dir, chosen.rows)
        with serving(data_dir) as port:
            measure(port, QUERIES["a minute"], "on")
            for name, text in QUERIES.items():
                for pushes in ("off", "on"):
                    it = measure(port, text, pushes)
                    figures = f"{it.read:,}", f"{it.seconds:.2f}", f"{it.memory_mib:,.0f}"
                    table.add_row(name, pushes, *figures)
    console.print(table)


if __name__ == "__main__":
    main()
