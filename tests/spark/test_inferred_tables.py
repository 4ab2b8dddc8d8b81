"""From messages to a table without a word written by hand: inferred, read as TOML, run."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from vega_datasets import local_data

from penstock.config.table import Tables
from penstock.decoding.inference.toml import table_lines
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.inferred import tried_tables
from penstock.spark.tables.sample import newest
from penstock.stream.client import StreamClient
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess


def test_what_is_inferred_is_run_and_the_table_equals_the_data_set(
    log: LogWriter, service: ServiceProcess, spark: SparkSession, tmp_path: Path
) -> None:
    cars: list[dict[str, Any]] = json.loads(local_data.cars.raw(use_local=True))
    topics = tuple(f"cars/{car['Origin']}" for car in cars)
    log.append(len(cars), topics=topics, payload=lambda n: json.dumps(cars[n]).encode())
    log.append(20, topics=("weather/temp",), payload=lambda n: b"%d.5" % n)
    with StreamClient(service.address, connect_timeout_s=0) as client:
        tried = tried_tables(newest(client, "messages", "#", 10_000), "#", ())
    text = "\n".join(line for one in tried for line in table_lines(one.table, one.dead_letters))
    declared = Tables.model_validate(tomllib.loads(text)["tables"]).declared
    alone = [one.model_copy(update={"group": ""}) for one in declared]  # there is no broker
    tables = [DeclaredTable(one, tmp_path / "tables") for one in alone]
    settings = RunSettings(service.address, available_now=True)
    TablesRun(tables, settings, open_spark=lambda *_: contextlib.nullcontext(spark)).run()

    assert sorted(table.definition.topics for table in tables) == ["cars/{car}", "weather/temp"]
    (landed,) = (table for table in tables if table.definition.topics == "cars/{car}")
    rows = DeltaTable(landed.path).to_pyarrow_table().sort_by("offset").to_pylist()
    for car in cars:
        car["Year"] = f"{car['Year']}"
    assert [
        {**{name: row[name] for name in cars[0]}, "Year": f"{row['Year']}"} for row in rows
    ] == cars
    assert [row["car"] for row in rows] == [car["Origin"] for car in cars]
    assert not any(table.dead_letters_path.exists() for table in tables)
