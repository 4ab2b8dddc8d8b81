"""``python -m benchmarks.pushdown``: the bytes sent to Spark for a part of a day, and the time.

A log of one day, with messages at equal intervals, is written directly to a store, and the stream
service serves it. A relay between the service and Spark counts the bytes that it forwards. Each
query runs with Spark's push-down off and on; rows are those that Spark's scan got from Python. For
the first query by time the service reads the log once, to index when messages were received; that
query is listed separately.
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
from penstock.engine.api import Commit
from penstock.engine.values.message import Message
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
class Measurement:
    """The figures of one query.

    Attributes:
        rows: the rows of the result.
        rows_scanned: the rows that Spark's scan got from the data source.
        size_bytes: the bytes that the stream service sent.
        seconds: the time of the query.
    """

    rows: int
    rows_scanned: int
    size_bytes: int
    seconds: float


class Relay(socketserver.ThreadingTCPServer):
    """Forwards connections to a server on loopback, and counts the bytes of the answers."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _ForwardingHandler)
        self.port = port
        self.size_bytes = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Return the HOST:PORT on which the relay listens."""
        return f"127.0.0.1:{self.server_address[1]}"


class _ForwardingHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        relay = self.server
        assert isinstance(relay, Relay)
        with socket.create_connection(("127.0.0.1", relay.port)) as server:
            requests = threading.Thread(
                target=_forward_all, args=(self.request, server), daemon=True
            )
            requests.start()
            for size_bytes in _forward(server, self.request):
                relay.size_bytes += size_bytes
            requests.join(1)


def _forward_all(source: socket.socket, destination: socket.socket) -> None:
    for _ in _forward(source, destination):
        pass


def _forward(source: socket.socket, destination: socket.socket) -> Iterator[int]:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            destination.sendall(data)
            yield len(data)
        destination.shutdown(socket.SHUT_WR)


def write_log(data_dir: Path, rows: int) -> None:
    """Write a store with ``rows`` messages of about 100 bytes, received evenly over a day."""
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
def serve_log(data_dir: Path) -> Iterator[int]:
    """Run the stream service of the store in ``data_dir``; yield its port."""
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


def measure(frame: DataFrame, relay: Relay) -> Measurement:
    """Run the query of ``frame`` and measure it."""
    before = relay.size_bytes
    started_s = time.perf_counter()
    rows = len(frame.collect())
    seconds = time.perf_counter() - started_s
    return Measurement(rows, rows_scanned(frame), relay.size_bytes - before, seconds)


def rows_scanned(frame: DataFrame) -> int:
    """Return the number of rows that the scan got, from Spark's metrics."""
    jvm: Any = frame._jdf
    scan = jvm.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().get("numOutputRows").get().value())


def run(spark: SparkSession, relay: Relay) -> dict[tuple[str, str], Measurement]:
    """Run each query without and with push-down; return figures by query and switch."""
    reader = spark.read.format("penstock").option("server", relay.address)
    reader.load().where("offset < 100").collect()  # starts Spark's workers
    measurements = {}
    for name, text in QUERIES.items():
        for is_on in ("false", "true"):
            spark.conf.set(SWITCH, is_on)
            measurements[name, is_on] = measure(reader.load().where(text), relay)
    new_reader = spark.read.format("penstock").option("server", relay.address)
    two_columns = new_reader.schema("received_at timestamp, topic string").load()
    name = "another minute"
    measurements[f"{name}, two columns", "true"] = measure(two_columns.where(QUERIES[name]), relay)
    return measurements


def main() -> None:
    """Write the log, run the queries, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20 * DAY_S, help="messages of the day")
    arguments = parser.parse_args()
    console = Console()
    console.print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch) / "data"
        write_log(data_dir, arguments.rows)
        with serve_log(data_dir) as port, Relay(port) as relay:
            log = Path(scratch) / "spark.log"
            with local_spark("penstock benchmark", log=log) as spark:
                measurements = run(spark, relay)
            relay.shutdown()
    table = Table(title=f"a day of {arguments.rows:,} messages")
    for heading in ("query", "push-down", "rows", "rows that Spark got", "bytes", "seconds"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for (name, is_on), query in measurements.items():
        switch = "on" if is_on == "true" else "off"
        rows = f"{query.rows:,}", f"{query.rows_scanned:,}"
        table.add_row(name, switch, *rows, f"{query.size_bytes:,}", f"{query.seconds:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
