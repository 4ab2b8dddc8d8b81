"""examples/plant: its Spark program and its derived tables, killed between rows and checkpoint."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from examples.plant import averages
from penstock.config.load import load_settings
from penstock.config.table_places import CHECKPOINT_NAME
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.table_selection import select_tables
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import running_broker
from tests.support.places import path_of
from tests.support.raw_client import RawClient

PLANT = Path(__file__).parents[2] / "examples" / "plant"
START_S = 1_700_000_040  # a minute begins; the readings are years old when they come

Publish = Callable[[int, int], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    with running_broker(tmp_path / "broker", stream=True) as made:
        yield made


@pytest.fixture
def server(broker: Broker) -> str:
    host, port = broker.stream_address
    return f"{host}:{port}"


@pytest.fixture
def publish(broker: Broker) -> Iterator[Publish]:
    """Publish readings, one for each second, of two machines in turn."""
    with RawClient(broker.address) as device:
        device.connect("press")

        def publish(first: int, end: int) -> None:
            for n in range(first, end):
                reading = {"n": n, "celsius": n % 60, "at": START_S + n}
                device.publish(f"plant/a/{7 + n % 2}/temp", json.dumps(reading).encode(), 1)

        yield publish


def forget_done(checkpoint: Path) -> None:
    """As if Spark had been killed after the rows of its last batch were written."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_the_program_counts_and_keeps_each_reading_once(
    spark: SparkSession, server: str, publish: Publish, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    publish(0, 30)
    averages.keep(spark, server, str(table))
    forget_done(table / "_checkpoint")
    publish(30, 50)
    averages.keep(spark, server, str(table))
    kept = spark.read.parquet(str(table)).orderBy("offset").collect()
    assert [(row.machine, row.n) for row in kept] == [(str(7 + n % 2), n) for n in range(50)]
    assert averages.averages(spark, server) == [("a", 50, 24.5)]


@pytest.fixture
def tables(tmp_path: Path) -> list[DerivedTable]:
    """Those of the example, in a directory of the test; who is silent is told after a second."""
    text = (PLANT / "plant.toml").read_text()
    for old, new in (('"tables"', f'"{tmp_path / "tables"}"'), ("limit_s = 300", "limit_s = 1")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "plant.toml").write_text(text)
    names = ["temperatures_now", "temperature_minutes", "silent_machines"]
    chosen = select_tables(load_settings(tmp_path / "plant.toml", environ={}), names)
    return [table for table in chosen if isinstance(table, DerivedTable)]


@pytest.mark.parametrize(
    "is_killed", [False, pytest.param(True, marks=pytest.mark.torture("runs the queries again"))]
)
def test_each_minute_and_each_silence_is_told_once(
    spark: SparkSession,
    server: str,
    publish: Publish,
    tables: list[DerivedTable],
    is_killed: bool,
) -> None:
    now, minutes, silent = tables

    def run(*chosen: DerivedTable) -> None:
        settings = RunSettings(server, available_now=True)
        TablesRun(chosen, settings, lambda *_: None, lambda *_: contextlib.nullcontext(spark)).run()

    def rows(table: DerivedTable, *columns: str) -> list[tuple[object, ...]]:
        found = DeltaTable(path_of(table)).to_pyarrow_table().to_pylist()
        return sorted(tuple(row[column] for column in columns) for row in found)

    publish(0, 75)
    if is_killed:
        run(minutes, silent)
        forget_done(path_of(minutes) / CHECKPOINT_NAME)
        forget_done(path_of(silent) / CHECKPOINT_NAME)
    publish(75, 140)
    published_s = time.monotonic()
    wait_for("the silence", lambda: time.monotonic() > published_s + 2)
    run(minutes, now, silent)
    told = [
        (START_S + minute * 60, machine, 30, mean)
        for minute in range(2)
        for machine, mean in ((7, 29.0), (8, 30.0))
    ]
    starts = DeltaTable(path_of(minutes)).to_pyarrow_table()["window_start"].to_pylist()
    assert sorted(start.timestamp() for start in starts) == [row[0] for row in told]
    assert rows(minutes, "window_start", "machine", "readings", "mean") == [
        (start, *rest) for start, (_, *rest) in zip(sorted(starts), told, strict=True)
    ]
    assert rows(now, "machine", "n") == [(7, 138), (8, 139)]
    for machine in (7, 8):
        states = [
            state for _, who, state in rows(silent, "at", "machine", "state") if who == machine
        ]
        gaps = len(states) // 2  # between the two runs, and wherever this machine was slow
        assert gaps >= is_killed
        assert states == ["silent", "back"] * gaps + ["silent"]
