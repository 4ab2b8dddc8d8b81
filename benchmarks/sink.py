"""``python -m benchmarks.sink``: rows published as Spark's sink does it, and who waits meanwhile.

Stages rows through the stream service, has the broker publish them as one batch, and measures both;
beside it a client publishes at QoS 1, one message after the other, before and during that.
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
from penstock.stream.requests import PutRequest, SetRequest
from penstock.stream.rows import PUBLISH_SCHEMA
from penstock.version import build_kind

ROWS_OF_A_FILE = 65_536


def table(count: int) -> pa.Table:
    """So many rows with 100 bytes of payload."""
    columns = [
        pa.array([f"out/{n % 100}" for n in range(count)]),
        pa.array([b"%0100d" % n for n in range(count)], pa.binary()),
        pa.repeat(pa.scalar(1, pa.int8()), count),
        pa.repeat(pa.scalar(False), count),
        pa.nulls(count, PUBLISH_SCHEMA.field("properties").type),
    ]
    return pa.Table.from_arrays(columns, schema=PUBLISH_SCHEMA)


class Bystander:
    """Publishes one message after the other, and notes how long each acknowledgement takes."""

    def __init__(self, client: Client) -> None:
        self.waits_s: list[float] = []
        self._client = client
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            self.waits_s.append(self._client.publish_s("bystander"))
            time.sleep(0.002)

    def end(self) -> tuple[float, float]:
        """Median and 99th percentile, ms."""
        self._ends.set()
        self._thread.join()
        return statistics.median(self.waits_s) * 1000, p99(self.waits_s) * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    chosen = parser.parse_args()
    rows = table(chosen.rows)
    shown = Table("", "rows/s", "QoS 1 beside it, p50 ms", "p99 ms")
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory), "file") as broker,
        StreamClient(broker.stream) as client,
    ):
        client.streams()  # it may still be starting
        publisher = Client(broker, "bystander")
        alone = Bystander(publisher)
        time.sleep(2.0)
        shown.add_row("nothing", "", *(f"{ms:.1f}" for ms in alone.end()))

        beside = Bystander(publisher)
        started_s = time.monotonic()
        files = [
            client.stage(PutRequest("bench", 0, "run", 0, at), rows.slice(at, ROWS_OF_A_FILE))
            for at in range(0, rows.num_rows, ROWS_OF_A_FILE)
        ]
        rate = rows.num_rows / (time.monotonic() - started_s)
        shown.add_row("staging", f"{rate:,.0f}", *(f"{ms:.1f}" for ms in beside.end()))

        beside = Bystander(publisher)
        started_s = time.monotonic()
        client.publish(SetRequest("bench", 0, "run", "bench", tuple(files)))
        rate = rows.num_rows / (time.monotonic() - started_s)
        shown.add_row("publishing", f"{rate:,.0f}", *(f"{ms:.1f}" for ms in beside.end()))
        publisher.close()
    console = Console()
    console.print(f"{chosen.rows:,} rows of 100 bytes; penstock runs {build_kind()}")
    console.print(shown)


if __name__ == "__main__":
    main()
