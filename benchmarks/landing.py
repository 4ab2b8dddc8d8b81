"""``python -m benchmarks.landing``: the rate and latency of messages that land in a Delta table.

A broker gets the messages once. Then these runs alternate, on the same rows, with one Spark that
has all cores:

* Spark alone: ``spark.read.parquet`` → Parquet, with the rows and columns of a landed table;
* ``penstock table run``: the log → Delta, messages without decoding;
* ``penstock tables run``: the log → Delta, payloads as bytes (raw), and decoded (json);
* paho-mqtt: a subscriber whose session has all messages in its queue → Delta, in batches.

The time of a landing is that from the start of the query to the end of its last commit, with the
syncs of its files; Spark alone does not sync. CPU time is that of all processes together: broker,
stream service, Spark with its Python workers, subscriber.

Finally messages are published one by one while a landing runs, to measure the time from PUBLISH to
the table: until the table's log, which is polled every 5 ms, has a commit with the message.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.blocking_client import Client
from benchmarks.broker import Broker, penstock_in
from benchmarks.durability import p99
from benchmarks.machine import machine
from benchmarks.paho_ingestion import subscribe
from benchmarks.publish import publish_messages
from penstock.cli.version import version_text
from penstock.config.table import TableDefinition
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.settings import TRIGGER_S, LandingSettings
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.offsets import Position
from penstock.spark.session import local_spark
from penstock.spark.tables.declared import DeclaredTable
from penstock.stream.client import StreamClient
from tests.support.places import places_in

PUBLISHERS: Final = 10
TOPICS: Final = "bench/{machine:int}"
COLUMNS: Final = {
    "ts": {"type": "timestamp", "unit_from": "ms"},
    "seq": "int",
    "temperature": "float",
    "status": "string",
    "ok": "bool",
}
DECODERS: Final[dict[str, dict[str, Any]]] = {
    "raw": {"kind": "raw"},
    "json": {"kind": "json", "columns": COLUMNS},
}

SPARK: Final = "Spark alone: Parquet → Parquet"
MESSAGES: Final = "Penstock: log → Delta, as they are"
PAHO: Final = "paho-mqtt → Delta"

# The queues of paho-mqtt's sessions have no limit, and its window is large.
_SETTINGS: Final = {
    "limits.max_mqueue_len": 0,
    "limits.max_mqueue_bytes": 0,
    "limits.max_inflight": 0,
    "listener.write_buffer_bytes_max": 2**30,
}
_POLL_S: Final = 0.005
_TRICKLE_TIMEOUT_S: Final = 60.0
_STARTED_TIMEOUT_S: Final = 120.0


def payloads() -> Iterator[bytes]:
    """Yield distinct readings in JSON, about 100 bytes each."""
    for n in itertools.count():
        yield (
            b'{"ts":%d,"seq":%d,"temperature":%.3f,"status":"running","ok":true,"note":"%016x"}'
            % (
                1_768_910_740_000 + n,
                n,
                20 + (n * 7919 % 9973) / 1000,
                n * 0x9E3779B97F4A7C15 % 2**64,
            )
        )


@dataclass(frozen=True)
class Measurement:
    """The figures of one run; cpu_s is the CPU time of all processes."""

    rows: int
    seconds: float
    cpu_s: float


class Bench:
    """A broker with messages, a Spark session, and the runs that write the messages to tables."""

    def __init__(self, broker: Broker, spark: SparkSession, directory: Path) -> None:
        self.rows = 0
        self._broker = broker
        self._spark = spark
        self._directory = directory
        self._runs = itertools.count()
        self._sessions: Iterator[str] = iter(())
        self._input = directory / "input"

    def fill(self, rows: int, sessions: int) -> None:
        """Publish at least ``rows`` messages, to the log and to ``sessions`` offline sessions."""
        names = [f"paho-{number}" for number in range(sessions)]
        for name in names:
            subscribe(self._broker.port, name)
        self._sessions = iter(names)
        publish_messages(self._broker, PUBLISHERS, rows, payloads())
        with StreamClient(self._broker.stream) as client:
            self.rows = client.offsets("messages").latest

    def make_input(self) -> None:
        """Write the input of `copy_with_spark`: Parquet with the rows of a landed table."""
        table = self._new_directory()
        self._land_messages(table)
        self._spark.read.parquet(str(table)).write.parquet(str(self._input))
        shutil.rmtree(table)

    def copy_with_spark(self) -> Measurement:
        """Measure Spark as it reads and writes Parquet."""

        def copy(output: Path) -> int:
            self._spark.read.parquet(str(self._input)).write.parquet(str(output))
            return self.rows

        return self._measure(copy)

    def land_messages(self) -> Measurement:
        """Measure `penstock table run --available-now`."""
        return self._measure(self._land_messages)

    def land_table(self, decoder: dict[str, Any]) -> Measurement:
        """Measure `penstock tables run --available-now` with one table that has ``decoder``."""

        def land(path: Path) -> int:
            definition = {"name": "bench", "topics": TOPICS, "path": str(path), "decoder": decoder}
            table = DeclaredTable(
                TableDefinition.model_validate(definition), places_in(self._directory)
            )
            settings = RunSettings(self._broker.stream, available_now=True)
            TablesRun([table], settings, open_spark=self._open_spark).run()
            return count_rows(path)

        return self._measure(land)

    def ingest_with_paho(self) -> Measurement:
        """Measure the process of a paho-mqtt subscriber; its time starts at its CONNECT."""
        elapsed_s = 0.0

        def ingest(path: Path) -> int:
            nonlocal elapsed_s
            arguments = [str(self._broker.port), next(self._sessions), str(path), str(self.rows)]
            command = [sys.executable, "-m", "benchmarks.paho_ingestion", *arguments]
            elapsed_s = float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            return count_rows(path)

        measured = self._measure(ingest)
        return Measurement(measured.rows, elapsed_s, measured.cpu_s)

    def measure_latencies_s(self, trigger_s: float, messages: int, pause_s: float) -> list[float]:
        """Publish messages one by one while a landing runs.

        Args:
            trigger_s: the shortest time between two commits of the landing.
            messages: the number of messages.
            pause_s: the time between two messages.

        Returns:
            The seconds from before each PUBLISH until its message is in the table.
        """
        path = self._new_directory()
        settings = LandingSettings(
            path,
            self._broker.stream,
            trigger_s=trigger_s,
            starting_offsets=self._end_position(),
            topics=("trickle",),
        )
        landing = Landing(settings, open_spark=self._open_spark)
        running = threading.Thread(target=landing.run)
        running.start()
        publisher = Client(self._broker, "trickle")
        try:
            watch = CommitWatch(path)
            publisher.measure_puback_s("trickle")
            watch.wait_for_rows(1, _STARTED_TIMEOUT_S)  # the workers have started now
            sent_s: list[float] = []
            for _ in range(messages):
                sent_s.append(time.monotonic())
                publisher.measure_puback_s("trickle")
                time.sleep(max(0.0, sent_s[-1] + pause_s - time.monotonic()))
            seen_s = watch.wait_for_rows(messages + 1, _TRICKLE_TIMEOUT_S)
        finally:
            publisher.close()
            landing.stop()
            running.join()
            watch.stop()
        return [
            landed_s - sent_at_s for landed_s, sent_at_s in zip(seen_s[1:], sent_s, strict=True)
        ]

    def _land_messages(self, path: Path) -> int:
        settings = LandingSettings(path, self._broker.stream, available_now=True)
        return Landing(settings, open_spark=self._open_spark).run().rows_landed

    def _end_position(self) -> str:
        """Return the end of the log as a position in JSON."""
        with StreamClient(self._broker.stream) as client:
            log = client.offsets("messages")
        return Position.of_single_log(log.epoch, log.latest).to_json()

    def _open_spark(self, *_: object) -> contextlib.AbstractContextManager[SparkSession]:
        # A new session for each run: the name of a query is unique in a session.
        return contextlib.nullcontext(self._spark.newSession())

    def _new_directory(self) -> Path:
        return self._directory / f"table-{next(self._runs)}"

    def _measure(self, run: Callable[[Path], int]) -> Measurement:
        path = self._new_directory()
        cpu_s, started_s = process_tree_cpu_s(), time.monotonic()
        rows = run(path)
        measured = Measurement(rows, time.monotonic() - started_s, process_tree_cpu_s() - cpu_s)
        if rows != self.rows:
            raise RuntimeError(f"{rows} rows landed of {self.rows}")
        shutil.rmtree(path)
        return measured


class CommitWatch:
    """A thread that polls a table's log and records when each row was committed."""

    def __init__(self, table: Path) -> None:
        self._log = table / "_delta_log"
        self._seen_s: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_rows(self, rows: int, timeout_s: float) -> list[float]:
        """Wait until the table has ``rows``; return the monotonic time of each row, seconds.

        Raises:
            RuntimeError: the table has fewer rows after ``timeout_s``.
        """
        deadline_s = time.monotonic() + timeout_s
        while len(self._seen_s) < rows:
            if time.monotonic() > deadline_s:
                self.stop()
                raise RuntimeError(f"{len(self._seen_s)} of {rows} messages landed in time")
            time.sleep(_POLL_S)
        return self._seen_s

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        version = 0
        while not self._stop.wait(_POLL_S):
            commit = self._log / f"{version:020}.json"
            if commit.exists():
                now_s = time.monotonic()
                actions = [json.loads(line) for line in commit.read_text().splitlines()]
                added = [
                    json.loads(action["add"]["stats"])
                    for action in actions
                    if "add" in action and action["add"]["dataChange"]  # upkeep adds no rows
                ]
                self._seen_s += [now_s] * sum(stats["numRecords"] for stats in added)
                version += 1


def count_rows(table: Path) -> int:
    """Return the number of rows of a Delta table."""
    return int(DeltaTable(table).count())


def process_tree_cpu_s() -> float:
    """Return user and system time of this process and its descendants, ended ones included."""
    parents: dict[int, int] = {}
    times: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            times[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    pids = {os.getpid()}
    while children := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= children
    return sum(times[pid] for pid in pids) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run the benchmarks and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each kind; 0: only measure latencies"
    )
    parser.add_argument("--paho-repeats", type=int, help="runs of paho-mqtt, which takes long")
    parser.add_argument("--trickle", type=int, default=200, help="messages for the latencies")
    parser.add_argument(
        "--pause", type=float, default=0.137, help="seconds between two of these messages"
    )
    arguments = parser.parse_args()
    sessions = arguments.repeats if arguments.paho_repeats is None else arguments.paho_repeats
    console = Console()
    console.print(machine())
    console.print(version_text())
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory) / "data", "file", _SETTINGS) as broker,
        local_spark("penstock bench", log=Path(directory) / "spark.log") as spark,
    ):
        bench = Bench(broker, spark, Path(directory))
        bench.fill(arguments.rows, sessions)
        if arguments.repeats:
            bench.make_input()
        console.print(f"{bench.rows:,} rows; payload {len(next(payloads()))} bytes")
        kinds: dict[str, Callable[[], Measurement]] = {
            SPARK: bench.copy_with_spark,
            MESSAGES: bench.land_messages,
            **{
                f"Penstock: log → Delta, {name}": partial(bench.land_table, decoder)
                for name, decoder in DECODERS.items()
            },
            PAHO: bench.ingest_with_paho,
        }
        runs: dict[str, list[Measurement]] = {kind: [] for kind in kinds}
        for repeat in range(max(arguments.repeats, sessions)):
            for kind, run in kinds.items():
                if repeat < (sessions if kind == PAHO else arguments.repeats):
                    runs[kind].append(run())
        if arguments.repeats:
            console.print(_table(runs))
        if arguments.trickle:
            latencies = Table(
                *("shortest time between commits", "p50 ms", "p90 ms", "p99 ms"),
                title=f"to table: {arguments.trickle} messages, one each {arguments.pause:g} s",
            )
            for trigger_s in (0.0, TRIGGER_S, 1.0):
                waits_s = bench.measure_latencies_s(trigger_s, arguments.trickle, arguments.pause)
                percentiles_s = (
                    statistics.median(waits_s),
                    sorted(waits_s)[len(waits_s) * 9 // 10],
                    p99(waits_s),
                )
                latencies.add_row(
                    f"{trigger_s:g} s",
                    *(f"{1000 * percentile_s:.0f}" for percentile_s in percentiles_s),
                )
            console.print(latencies)


def _table(runs: dict[str, list[Measurement]]) -> Table:
    table = Table(title="medians")
    for heading in ("", "runs", "rows/s", "of Spark alone", "of paho-mqtt", "CPU µs/row"):
        table.add_column(heading, justify="right" if heading else "left")
    rates = {
        kind: statistics.median(run.rows / run.seconds for run in measured)
        for kind, measured in runs.items()
        if measured
    }
    for kind, rate in rates.items():
        cpu_us = statistics.median(run.cpu_s / run.rows * 1e6 for run in runs[kind])
        table.add_row(
            kind,
            str(len(runs[kind])),
            f"{rate:,.0f}",
            f"{rate / rates[SPARK]:.2f}",
            f"{rate / rates[PAHO]:.1f}" if PAHO in rates else "",
            f"{cpu_us:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
