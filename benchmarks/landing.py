"""``python -m benchmarks.landing``: messages into a table, beside Spark alone and beside paho-mqtt.

A broker gets the messages once. Then take turns, on the same rows, with one Spark of all cores:

* Spark alone: ``spark.read.parquet`` → Parquet, of the very columns that the first landing gave;
* ``penstock table run``: the log → Delta, messages as they are;
* ``penstock tables run``: the log → Delta, payloads as they are (raw), and decoded (json);
* paho-mqtt: a subscriber whose session has all of the messages waiting → Delta, in batches.

A landing counts from before the query is made until after its last commit, and syncs its files;
Spark alone does not. CPU time is that of all processes together: broker, stream service, Spark with
its Python workers, subscriber.

At last messages come one by one while a landing runs: how long until each is in the table? It is
there when a commit that has its offset is in the table's log, which is looked at every few ms.
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
from benchmarks.publish import publish_so_many
from penstock.cli.version import version_text
from penstock.config.table import TableDefinition
from penstock.spark.jobs.landing import TRIGGER_S, Landing, LandingSettings
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.offsets import Position
from penstock.spark.session import local_spark
from penstock.spark.tables.declared import DeclaredTable
from penstock.stream.client import StreamClient

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
AS_THEY_ARE: Final = "Penstock: log → Delta, as they are"
PAHO: Final = "paho-mqtt → Delta"

# All messages wait for paho-mqtt's sessions, none is dropped, and no window holds it up.
_SETTINGS: Final = {
    "limits.max_mqueue_len": 0,
    "limits.max_mqueue_bytes": 0,
    "limits.max_inflight": 0,
    "listener.write_buffer_bytes_max": 2**30,
}
_LOOK_S: Final = 0.005
_TRICKLE_TIMEOUT_S: Final = 60.0
_STARTED_TIMEOUT_S: Final = 120.0


def payloads() -> Iterator[bytes]:
    """Readings in JSON, about 100 bytes each, no two the same."""
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
class Measured:
    """One run."""

    rows: int
    seconds: float
    cpu_s: float


class Bench:
    """A broker with messages, a Spark, and what lands them."""

    def __init__(self, broker: Broker, spark: SparkSession, directory: Path) -> None:
        self.rows = 0
        self._broker = broker
        self._spark = spark
        self._directory = directory
        self._runs = itertools.count()
        self._sessions: Iterator[str] = iter(())
        self._input = directory / "input"

    def fill(self, rows: int, sessions: int) -> None:
        """Publish at least so many messages, which wait for as many sessions of paho-mqtt, too."""
        names = [f"paho-{number}" for number in range(sessions)]
        for name in names:
            subscribe(self._broker.port, name)
        self._sessions = iter(names)
        publish_so_many(self._broker, PUBLISHERS, rows, payloads())
        with StreamClient(self._broker.stream) as client:
            self.rows = client.offsets("messages").latest

    def make_input(self) -> None:
        """Let Spark write what Spark alone will read: the rows and columns of a landed table."""
        table = self._new_directory()
        self._land_as_they_are(table)
        self._spark.read.parquet(str(table)).write.parquet(str(self._input))
        shutil.rmtree(table)

    def spark_alone(self) -> Measured:
        """Read Parquet and write it."""

        def copy(output: Path) -> int:
            self._spark.read.parquet(str(self._input)).write.parquet(str(output))
            return self.rows

        return self._measured(copy)

    def as_they_are(self) -> Measured:
        """`penstock table run --available-now`."""
        return self._measured(self._land_as_they_are)

    def declared(self, decoder: dict[str, Any]) -> Measured:
        """`penstock tables run --available-now` with one table."""

        def land(path: Path) -> int:
            definition = {"name": "bench", "topics": TOPICS, "path": str(path), "decoder": decoder}
            table = DeclaredTable(TableDefinition.model_validate(definition), self._directory)
            settings = RunSettings(self._broker.stream, available_now=True)
            TablesRun([table], settings, open_spark=self._open_spark).run()
            return rows_of(path)

        return self._measured(land)

    def paho(self) -> Measured:
        """A subscriber of its own process; its time counts from its CONNECT."""
        took_s = 0.0

        def ingest(path: Path) -> int:
            nonlocal took_s
            arguments = [str(self._broker.port), next(self._sessions), str(path), str(self.rows)]
            command = [sys.executable, "-m", "benchmarks.paho_ingestion", *arguments]
            took_s = float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            return rows_of(path)

        measured = self._measured(ingest)
        return Measured(measured.rows, took_s, measured.cpu_s)

    def trickle_s(self, trigger_s: float, messages: int, pause_s: float) -> list[float]:
        """Seconds from before each PUBLISH until its message is in the table."""
        path = self._new_directory()
        settings = LandingSettings(
            path,
            self._broker.stream,
            trigger_s=trigger_s,
            starting_offsets=self._end(),
            topics=("trickle",),
        )
        landing = Landing(settings, open_spark=self._open_spark)
        running = threading.Thread(target=landing.run)
        running.start()
        publisher = Client(self._broker, "trickle")
        try:
            watch = CommitWatch(path)
            publisher.publish_s("trickle")
            watch.wait_for_rows(1, _STARTED_TIMEOUT_S)  # workers are up from here on
            sent: list[float] = []
            for _ in range(messages):
                sent.append(time.monotonic())
                publisher.publish_s("trickle")
                time.sleep(max(0.0, sent[-1] + pause_s - time.monotonic()))
            seen = watch.wait_for_rows(messages + 1, _TRICKLE_TIMEOUT_S)
        finally:
            publisher.close()
            landing.stop()
            running.join()
            watch.end()
        return [there - before for there, before in zip(seen[1:], sent, strict=True)]

    def _land_as_they_are(self, path: Path) -> int:
        settings = LandingSettings(path, self._broker.stream, available_now=True)
        return Landing(settings, open_spark=self._open_spark).run().rows_landed

    def _end(self) -> str:
        """The end of the log, as a position."""
        with StreamClient(self._broker.stream) as client:
            log = client.offsets("messages")
        return Position.of_single_log(log.epoch, log.latest).to_json()

    def _open_spark(self, *_: object) -> contextlib.AbstractContextManager[SparkSession]:
        return contextlib.nullcontext(
            self._spark.newSession()
        )  # a session knows a query's name once

    def _new_directory(self) -> Path:
        return self._directory / f"table-{next(self._runs)}"

    def _measured(self, run: Callable[[Path], int]) -> Measured:
        path = self._new_directory()
        cpu_s, started_s = all_cpu_s(), time.monotonic()
        rows = run(path)
        measured = Measured(rows, time.monotonic() - started_s, all_cpu_s() - cpu_s)
        if rows != self.rows:
            raise RuntimeError(f"{rows} rows landed of {self.rows}")
        shutil.rmtree(path)
        return measured


class CommitWatch:
    """When each row was seen in a table's log, in the order of landing."""

    def __init__(self, table: Path) -> None:
        self._log = table / "_delta_log"
        self._seen_s: list[float] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_rows(self, rows: int, timeout_s: float) -> list[float]:
        """When each of so many rows was seen."""
        deadline_s = time.monotonic() + timeout_s
        while len(self._seen_s) < rows:
            if time.monotonic() > deadline_s:
                self.end()
                raise RuntimeError(f"{len(self._seen_s)} of {rows} messages landed in time")
            time.sleep(_LOOK_S)
        return self._seen_s

    def end(self) -> None:
        """Look no longer."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        version = 0
        while not self._ends.wait(_LOOK_S):
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


def rows_of(table: Path) -> int:
    """The rows of a Delta table."""
    return int(DeltaTable(table).count())


def all_cpu_s() -> float:
    """User and system time of this process and all below it, with those that have ended."""
    parents: dict[int, int] = {}
    times: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            times[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(times[pid] for pid in ours) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each; 0: messages one by one only"
    )
    parser.add_argument("--paho-repeats", type=int, help="runs of paho-mqtt, which takes long")
    parser.add_argument("--trickle", type=int, default=200, help="messages that come one by one")
    parser.add_argument("--pause", type=float, default=0.137, help="seconds between two of them")
    chosen = parser.parse_args()
    sessions = chosen.repeats if chosen.paho_repeats is None else chosen.paho_repeats
    console = Console()
    console.print(machine())
    console.print(version_text())
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory) / "data", "file", _SETTINGS) as broker,
        local_spark("penstock bench", log=Path(directory) / "spark.log") as spark,
    ):
        bench = Bench(broker, spark, Path(directory))
        bench.fill(chosen.rows, sessions)
        if chosen.repeats:
            bench.make_input()
        console.print(f"{bench.rows:,} rows; payload {len(next(payloads()))} bytes")
        kinds: dict[str, Callable[[], Measured]] = {
            SPARK: bench.spark_alone,
            AS_THEY_ARE: bench.as_they_are,
            **{
                f"Penstock: log → Delta, {name}": partial(bench.declared, decoder)
                for name, decoder in DECODERS.items()
            },
            PAHO: bench.paho,
        }
        runs: dict[str, list[Measured]] = {kind: [] for kind in kinds}
        for repeat in range(max(chosen.repeats, sessions)):
            for kind, run in kinds.items():
                if repeat < (sessions if kind == PAHO else chosen.repeats):
                    runs[kind].append(run())
        if chosen.repeats:
            console.print(_table(runs))
        if chosen.trickle:
            shown = Table(
                *("shortest time between commits", "p50 ms", "p90 ms", "p99 ms"),
                title=f"publish to table, {chosen.trickle} messages, one each {chosen.pause:g} s",
            )
            for trigger_s in (0.0, TRIGGER_S, 1.0):
                waits = bench.trickle_s(trigger_s, chosen.trickle, chosen.pause)
                marks = statistics.median(waits), sorted(waits)[len(waits) * 9 // 10], p99(waits)
                shown.add_row(f"{trigger_s:g} s", *(f"{1000 * mark:.0f}" for mark in marks))
            console.print(shown)


def _table(runs: dict[str, list[Measured]]) -> Table:
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
