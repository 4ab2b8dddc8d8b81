"""``python -m benchmarks.pushdown``: what travels to Spark for a part of a day, and its time.

A log of one day, whose messages come evenly, is written straight into a store; the stream service
serves it. Between the service and Spark is a relay that counts the bytes it passes on, so that what
is told has really travelled. Each query runs with Spark's switch for push-down off and on; rows are
those that Spark's scan got from Python. The first query for a time has the service read the log
once, to know when its messages were received; it is told by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from penstock.config.stream import StreamDefinition
from penstock.engine.batch.commit import Commit
from penstock.engine.message import Message
from penstock.spark.session import local_spark
from penstock.store.rocks import RocksStore

DAY_S: Final = 86_400
MIDNIGHT_S: Final = 1_795_564_800  # 2026-11-25T00:00:00Z
TOPICS: Final = 100
COMMIT_ROWS: Final = 500
STREAM: Final = StreamDefinition(name="messages", topic_filters=("#",))
SWITCH: Final = "spark.sql.python.filterPushdown.enabled"

QUERIES: Final = {
    "a minute, the first": "received_at >= '2026-11-25T12:00:00Z'"
    " and received_at < '2026-11-25T12:01:00Z'",
    "another minute": "received_at >= '2026-11-25T18:00:00Z'"
    " and received_at < '2026-11-25T18:01:00Z'",
    "1,000 offsets": "offset >= 50000 and offset < 51000",
    "one topic of 100": "topic = 'plant/7/temperature'",
    "one topic in an hour": "topic = 'plant/7/temperature'"
    " and received_at >= '2026-11-25T12:00:00Z' and received_at < '2026-11-25T13:00:00Z'",
}


@dataclass(frozen=True)
class Measured:
    """One query: rows it gave, rows that Spark got, bytes that travelled to it, and its time."""

    rows: int
    got: int
    size_bytes: int
    seconds: float


class Relay(socketserver.ThreadingTCPServer):
    """Passes connections on to a server, and counts the bytes that come back."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.port = port
        self.size_bytes = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Passing(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        relay = self.server
        assert isinstance(relay, Relay)
        with socket.create_connection(("127.0.0.1", relay.port)) as there:
            forth = threading.Thread(target=_pass_on, args=(self.request, there), daemon=True)
            forth.start()
            for size_bytes in _passed(there, self.request):
                relay.size_bytes += size_bytes
            forth.join(1)


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    for _ in _passed(one, other):
        pass


def _passed(one: socket.socket, other: socket.socket) -> Iterator[int]:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
            yield len(data)
        other.shutdown(socket.SHUT_WR)


def write_log(data_dir: Path, rows: int) -> None:
    """A day of messages of about 100 bytes."""
    store = RocksStore(data_dir, (STREAM,))
    for first in range(0, rows, COMMIT_ROWS):
        commit = Commit(first)
        for offset in range(first, min(rows, first + COMMIT_ROWS)):
            topic = f"plant/{offset % TOPICS}/temperature"
            message = Message(topic, b'{"n":%d,"note":"%064d"}' % (offset, offset), 1)
            message.received_at_us = MIDNIGHT_S * 10**6 + offset * DAY_S * 10**6 // rows
            message.offset = offset
            commit.messages.append(message)
        store.commit(commit)
    store.close()


@contextlib.contextmanager
def serving(data_dir: Path) -> Iterator[int]:
    """The stream service of a log; the port it listens on."""
    command = [sys.executable, "-m", "penstock.stream.service", "--data-dir", str(data_dir)]
    process = subprocess.Popen(
        [*command, "--bind", "127.0.0.1:0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rpartition(":")[2])
    finally:
        process.terminate()
        process.wait()


def measure(frame: DataFrame, relay: Relay) -> Measured:
    """Run a query."""
    before = relay.size_bytes
    started_s = time.perf_counter()
    rows = len(frame.collect())
    seconds = time.perf_counter() - started_s
    return Measured(rows, rows_scanned(frame), relay.size_bytes - before, seconds)


def rows_scanned(frame: DataFrame) -> int:
    """How many rows the scan got, as Spark's own metrics have it."""
    jvm: Any = frame._jdf
    scan = jvm.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().get("numOutputRows").get().value())


def run(spark: SparkSession, relay: Relay) -> dict[tuple[str, str], Measured]:
    """Each query with push-down and without."""
    reader = spark.read.format("penstock").option("server", relay.address)
    reader.load().where("offset < 100").collect()  # Spark's workers are up
    found = {}
    for name, text in QUERIES.items():
        for is_on in ("false", "true"):
            spark.conf.set(SWITCH, is_on)
            found[name, is_on] = measure(reader.load().where(text), relay)
    few = spark.read.format("penstock").option("server", relay.address)
    chosen = few.schema("received_at timestamp, topic string").load()
    name = "another minute"
    found[f"{name}, two columns", "true"] = measure(chosen.where(QUERIES[name]), relay)
    return found


def main() -> None:
    """Write the log, run the queries, and print what travelled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20 * DAY_S, help="messages of the day")
    chosen = parser.parse_args()
    console = Console()
    console.print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch) / "data"
        write_log(data_dir, chosen.rows)
        with serving(data_dir) as port, Relay(port) as relay:
            log = Path(scratch) / "spark.log"
            with local_spark("penstock benchmark", log=log) as spark:
                found = run(spark, relay)
            relay.shutdown()
    table = Table(title=f"a day of {chosen.rows:,} messages")
    for heading in ("query", "push-down", "rows", "rows that Spark got", "bytes", "seconds"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for (name, is_on), it in found.items():
        switch = "on" if is_on == "true" else "off"
        figures = f"{it.rows:,}", f"{it.got:,}", f"{it.size_bytes:,}", f"{it.seconds:.2f}"
        table.add_row(name, switch, *figures)
    console.print(table)


if __name__ == "__main__":
    main()
