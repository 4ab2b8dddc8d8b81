"""Sparkplug tables through Spark: data whose names and types only a birth has, wherever jobs,
batches and tasks begin."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.config.derived import DerivedDefinition
from penstock.config.table import TableDefinition, Tables
from penstock.config.table_places import CHECKPOINT_NAME
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.jobs.backfill import backfill
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.ranges import TASK_OFFSETS_MIN
from penstock.spark.table_selection import AnyTable
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.dry_run import land_sample
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from penstock.sql.session import SqlSession
from penstock.stream.client import StreamClient
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.places import path_of, places_in
from tests.unit.decoding.sparkplug_payloads import metric, payload

NBIRTH = "spBv1.0/plant/NBIRTH/edge"
NDATA = "spBv1.0/plant/NDATA/edge"
LATE = "spBv1.0/plant/NDATA/late"
SIGNED = payload(metric("m", "Int32", alias=5, int_value=0))
UNSIGNED = payload(metric("m", "UInt32", alias=5, int_value=0))
BY_NAME = payload({"name": "m", "int_value": 2**32 - 1})
BY_ALIAS = payload({"alias": 5, "int_value": 2**32 - 1})
DEFINITION = {
    "name": "metrics",
    "topics": "spBv1.0/{group}/{message}/{node}/{device:#}",
    "decoder": "sparkplug_b",
    "partition_by": [],
    "group": "",
}

Run = Callable[..., None]


@pytest.fixture
def table(tmp_path: Path) -> DeclaredTable:
    return DeclaredTable(TableDefinition.model_validate(DEFINITION), places_in(tmp_path / "tables"))


@pytest.fixture
def settings(service: ServiceProcess) -> RunSettings:
    return RunSettings(service.address, available_now=True)


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[StreamClient]:
    with StreamClient(service.address, connect_timeout_s=0) as connected:
        yield connected


@pytest.fixture
def run(spark: SparkSession, settings: RunSettings) -> Run:
    def run_once(*tables: AnyTable) -> None:
        open_spark = lambda *_: contextlib.nullcontext(spark)  # noqa: E731
        TablesRun(tables, settings, open_spark=open_spark).run()

    return run_once


def publish(log: LogWriter, topic: str, message: bytes, count: int = 1) -> None:
    log.append(count, topics=(topic,), payload=lambda _: message)


def values(path: Path) -> dict[int, Any]:
    """The value of each message by its offset; a dead letter's reason."""
    rows = DeltaTable(path).to_pyarrow_table(columns=["offset", "value_int"]).to_pylist()
    found = {row["offset"]: row["value_int"] for row in rows}
    dead = path.with_name(f"{path.name}_dead_letters")
    if DeltaTable.is_deltatable(str(dead)):
        letters = DeltaTable(dead).to_pyarrow_table(columns=["offset", "reason"]).to_pylist()
        found |= {row["offset"]: row["reason"] for row in letters}
    return found


UNKNOWN = "Metric 'm' has no data type, and no NBIRTH of its node is known."


def test_types_come_from_births_across_jobs_retention_and_new_checkpoints(
    log: LogWriter, table: DeclaredTable, run: Run, spark: SparkSession, settings: RunSettings
) -> None:
    """Issue 37: an Int32 of -1 landed as 4294967295."""
    publish(log, NBIRTH, SIGNED)
    publish(log, NDATA, BY_NAME)
    publish(log, LATE, BY_NAME)
    run(table)
    log.trim(2)
    publish(log, NDATA, BY_ALIAS)
    run(table)
    shutil.rmtree(path_of(table) / CHECKPOINT_NAME)
    publish(log, NBIRTH, UNSIGNED)
    publish(log, NDATA, BY_ALIAS)
    run(table)
    wanted = {0: 0, 1: -1, 2: UNKNOWN, 3: -1, 4: 0, 5: 2**32 - 1}
    assert values(path_of(table)) == wanted
    backfill(spark, table, settings, 2, 6)
    assert values(path_of(table)) == wanted


def test_a_task_knows_the_births_in_the_ranges_of_others(
    log: LogWriter, table: DeclaredTable, run: Run
) -> None:
    publish(log, NBIRTH, SIGNED)
    publish(log, NDATA, BY_ALIAS, TASK_OFFSETS_MIN)
    publish(log, NBIRTH, UNSIGNED)
    publish(log, NDATA, BY_ALIAS, TASK_OFFSETS_MIN + 100)
    run(table)
    assert len(DeltaTable(path_of(table)).file_uris()) == 2, "one of each task"
    found = values(path_of(table))
    second = TASK_OFFSETS_MIN + 1
    assert {found[offset] for offset in range(1, second)} == {-1}
    assert {found[offset] for offset in range(second + 1, log.end)} == {2**32 - 1}


def test_derived_tables_and_queries_know_the_same_births(
    log: LogWriter,
    table: DeclaredTable,
    run: Run,
    client: StreamClient,
    service: ServiceProcess,
    tmp_path: Path,
) -> None:
    definition = DerivedDefinition.model_validate(
        {"name": "last", "source": "metrics", "kind": "last_known", "keys": ["node"], "group": ""}
    )
    last = DerivedTable(definition, table.definition, places_in(tmp_path / "tables"))
    log.begin_run()
    publish(log, NBIRTH, SIGNED)
    run(table, last)
    log.append(1, topics=("other",))
    log.trim(1)
    publish(log, NDATA, BY_ALIAS)
    run(table, last)
    assert values(path_of(table))[2] == -1
    rows = DeltaTable(path_of(last)).to_pyarrow_table().to_pylist()
    assert [(row["name"], row["value_int"]) for row in rows] == [("m", -1)]

    parts = land_sample(table, client, 10)
    assert parts[ROWS].column("value_int").to_pylist() == [-1]
    assert parts[DEAD_LETTERS].num_rows == 0

    def query(places: Tables | None) -> list[tuple[str | None, ...]]:
        connect = lambda: StreamClient(service.address, 0)  # noqa: E731
        with SqlSession(connect, [table.definition], places=places) as session:
            (statement,) = session.statements("SELECT value_int FROM metrics")
            return list(statement.rows())

    assert query(Tables(dir=str(tmp_path / "tables"))) == [("-1",)]
    assert query(None) == [], "without the table's births it is not known, and no number is wrong"
