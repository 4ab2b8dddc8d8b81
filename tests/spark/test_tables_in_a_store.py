"""Declared tables in an object store: each message once, wherever its job runs, with what it keeps.

The tasks of Spark write to the store, and the driver commits there; a job's own directory holds
nothing that a landing needs.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table import IcebergNames, TableDefinition
from penstock.spark.contents import newest_rows, read_table
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.plain_types import read_rows
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from penstock.spark.tables.places import TablePlaces
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.object_store import KEYS, ObjectStore, object_store
from tests.support.table_readers import read_back

FORMATS = ("delta", "iceberg", "parquet")


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def places(store: ObjectStore, tmp_path: Path) -> TablePlaces:
    """The credentials are in a file: what a task is sent has its name."""
    credentials = tmp_path / "credentials"
    keys = (f"{name.lower()} = {value}" for name, value in KEYS.items())
    credentials.write_text("\n".join(["[default]", *keys]))
    bucket = f"lake-{uuid4().hex[:12]}"
    store.make_bucket(bucket)
    return TablePlaces(
        f"s3://{bucket}/bronze",
        IcebergNames(properties={"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"}),
        ObjectStoreSettings(endpoint=store.endpoint, credentials_file=str(credentials)),
        str(tmp_path / "jobs"),
    )


def declare(kind: str, places: TablePlaces, **settings: object) -> DeclaredTable:
    definition = {
        "name": kind,
        "format": kind,
        "group": "",
        "topics": "plant/{line:int}/{quantity}",
        "decoder": {"kind": "json", "columns": {"value": {"type": "int", "path": "$"}}},
        **settings,
    }
    return DeclaredTable(TableDefinition.model_validate(definition), places)


def offsets(table: DeclaredTable, name: str = ROWS) -> list[int]:
    files = table.open()[name].recent_files(timedelta.max)
    found = [read_rows(file, ["offset"]).column("offset").to_pylist() for file in files]
    return sorted(offset for one in found for offset in one)


class Lander:
    """Runs landings until what is there has landed."""

    def __init__(self, spark: SparkSession, service: ServiceProcess) -> None:
        self._spark = spark
        self._settings = RunSettings(service.address, available_now=True)

    def __call__(self, *tables: DeclaredTable) -> None:
        run = TablesRun(
            tables, self._settings, open_spark=lambda *_: contextlib.nullcontext(self._spark)
        )
        run.run()


@pytest.fixture
def land(spark: SparkSession, service: ServiceProcess) -> Lander:
    return Lander(spark, service)


def test_a_job_goes_on_where_its_table_is_with_nothing_of_its_own(
    log: LogWriter, land: Lander, places: TablePlaces, tmp_path: Path, spark: SparkSession
) -> None:
    """Its directory is deleted, and then it runs elsewhere."""
    log.append(30, topics=("plant/1/temp", "plant/x/temp", "plant/2/power"))
    tables = [declare(kind, places) for kind in FORMATS]
    land(*tables)
    shutil.rmtree(tmp_path / "jobs")
    log.append(30, topics=("plant/1/temp", "plant/x/temp", "plant/2/power"))
    land(*tables)
    log.append(3, topics=("plant/1/temp",))
    elsewhere = TablePlaces(
        places.dir, places.iceberg, places.object_store, str(tmp_path / "elsewhere")
    )
    land(*(declare(kind, elsewhere) for kind in FORMATS))
    for table in tables:
        assert offsets(table) == [n for n in range(60) if n % 3 != 1] + [60, 61, 62]
        assert offsets(table, DEAD_LETTERS) == [n for n in range(60) if n % 3 == 1]
    delta, iceberg, _ = tables
    for table in (delta, iceberg):
        found = read_back(table, spark).column("offset").to_pylist()
        assert sorted(found) == offsets(table)
    rows = read_table(spark, delta.location).orderBy("offset").collect()
    assert [row["value"] for row in rows] == offsets(delta)
    assert newest_rows(delta.location, 2).column("offset").to_pylist() == [62, 61]


def test_two_jobs_at_once_land_each_message_once(
    log: LogWriter, land: Lander, places: TablePlaces, tmp_path: Path
) -> None:
    """On two machines, of which neither sees the other's lock."""
    log.append(200, topics=("plant/1/temp",))
    both = [
        TablePlaces(places.dir, places.iceberg, places.object_store, str(tmp_path / name))
        for name in ("one", "other")
    ]
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(land, *(declare(kind, at, commit_offsets_max=20) for kind in FORMATS))
            for at in both
        ]
        for run in runs:
            run.result()
    for kind in FORMATS:
        assert offsets(declare(kind, places)) == list(range(200))


def test_repeats_are_found_among_rows_in_the_store(
    log: LogWriter, land: Lander, places: TablePlaces
) -> None:
    """Without a connector for Spark's Java: tasks of Python read the files."""
    log.append(4, topics=("plant/1/temp",))
    table = declare("delta", places, repeats={"column": "value"})
    land(table)
    log.append(2, topics=("plant/1/temp",), payload=lambda n: b"2" if n == 4 else b"77")
    land(table)
    assert offsets(table) == [0, 1, 2, 3, 5]
    assert offsets(table, DEAD_LETTERS) == [4]
