"""``python -m benchmarks.sql``: the messages that `penstock sql` reads of a day, time and memory.

A log of one day, with messages at equal intervals, is written directly to a store, and the stream
service serves it. Each query runs in its own process, three times with push-down and three times
without; the table shows medians. Messages read are those that the service sent, seconds are those
of the query alone, memory is the peak of the process. For the first query by time the service reads
the log once, to index when messages were received; such a query runs before the measured ones.
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
from benchmarks.pushdown import DAY_S, serve_log, write_log

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
    print(sum(scan.messages_read for scan in session.scans.found), seconds, int(most[1]) / 1024)
"""


@dataclass(frozen=True)
class Measurement:
    """The figures of one query: messages that the service sent, seconds, and peak memory in MiB."""

    messages_read: int
    seconds: float
    memory_mib: float


def measure(port: int, text: str, pushes: str) -> Measurement:
    """Run a query `RUNS` times, each in its own process; return the medians.

    Args:
        port: the port of the stream service.
        text: the query.
        pushes: "on" or "off", whether predicates are pushed down.
    """
    command = [sys.executable, "-c", _PROGRAM, f"127.0.0.1:{port}", pushes, text]
    runs = [
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        for _ in range(RUNS)
    ]
    messages_read, _, _ = runs[0]
    seconds, memory = (median(float(run[column]) for run in runs) for column in (1, 2))
    return Measurement(int(messages_read), seconds, memory)


def main() -> None:
    """Write the log, run the queries, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20 * DAY_S, help="messages of the day")
    arguments = parser.parse_args()
    console = Console()
    console.print(machine())
    table = Table(title=f"a day of {arguments.rows:,} messages")
    for heading in ("query", "push-down", "messages read", "seconds", "MiB"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch) / "data"
        write_log(data_dir, arguments.rows)
        with serve_log(data_dir) as port:
            measure(port, QUERIES["a minute"], "on")
            for name, text in QUERIES.items():
                for pushes in ("off", "on"):
                    query = measure(port, text, pushes)
                    table.add_row(
                        name,
                        pushes,
                        f"{query.messages_read:,}",
                        f"{query.seconds:.2f}",
                        f"{query.memory_mib:,.0f}",
                    )
    console.print(table)


if __name__ == "__main__":
    main()
