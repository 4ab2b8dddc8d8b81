"""``python -m benchmarks.sink``: the rate of Spark's sink, and its effect on another publisher.

It stages rows through the stream service, has the broker publish them as one batch, and measures
both. Another client publishes at QoS 1, one message after the other, before and during that.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.blocking_client import Client
from benchmarks.broker import penstock_in
from benchmarks.durability import p99
from penstock.stream.client import StreamClient
from penstock.stream.requests import PublishBatchRequest, StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA
from penstock.version import build_kind

ROWS_PER_FILE = 65_536


def make_rows(count: int) -> pa.Table:
    """Return ``count`` rows to publish, with 100 bytes of payload."""
    columns = [
        pa.array([f"out/{n % 100}" for n in range(count)]),
        pa.array([b"%0100d" % n for n in range(count)], pa.binary()),
        pa.repeat(pa.scalar(1, pa.int8()), count),
        pa.repeat(pa.scalar(False), count),
        pa.nulls(count, PUBLISH_SCHEMA.field("properties").type),
    ]
    return pa.Table.from_arrays(columns, schema=PUBLISH_SCHEMA)


class OtherPublisher:
    """A thread that publishes one message after the other and records each latency of PUBACK."""

    def __init__(self, client: Client) -> None:
        self.latencies_s: list[float] = []
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.latencies_s.append(self._client.measure_puback_s("bystander"))
            time.sleep(0.002)

    def stop(self) -> tuple[float, float]:
        """Stop the thread; return the median and the 99th percentile of the latencies, ms."""
        self._stop.set()
        self._thread.join()
        return statistics.median(self.latencies_s) * 1000, p99(self.latencies_s) * 1000


def main() -> None:
    """Stage and publish the rows, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    arguments = parser.parse_args()
    rows = make_rows(arguments.rows)
    results = Table("", "rows/s", "other publisher, p50 ms", "p99 ms")
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory), "file") as broker,
        StreamClient(broker.stream) as client,
    ):
        client.streams()  # waits until the stream service has started
        publisher = Client(broker, "bystander")
        baseline = OtherPublisher(publisher)
        time.sleep(2.0)
        results.add_row("nothing", "", *(f"{ms:.1f}" for ms in baseline.stop()))

        other = OtherPublisher(publisher)
        started_s = time.monotonic()
        files = [
            client.stage(StageRowsRequest("bench", 0, "run", 0, at), rows.slice(at, ROWS_PER_FILE))
            for at in range(0, rows.num_rows, ROWS_PER_FILE)
        ]
        rate = rows.num_rows / (time.monotonic() - started_s)
        results.add_row("staging", f"{rate:,.0f}", *(f"{ms:.1f}" for ms in other.stop()))

        other = OtherPublisher(publisher)
        started_s = time.monotonic()
        client.publish(PublishBatchRequest("bench", 0, "run", "bench", tuple(files)))
        rate = rows.num_rows / (time.monotonic() - started_s)
        results.add_row("publishing", f"{rate:,.0f}", *(f"{ms:.1f}" for ms in other.stop()))
        publisher.close()
    console = Console()
    console.print(f"{arguments.rows:,} rows of 100 bytes; penstock runs {build_kind()}")
    console.print(results)


if __name__ == "__main__":
    main()
