"""Nested columns in tables of every format, as readers that are not ours find them. No Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from penstock.config.table import TableDefinition
from penstock.spark.parquet_files import write_files
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import ROWS, LandedTable, PlannedBatch, Selection
from penstock.stream.rows import STREAM_SCHEMA
from tests.support.places import path_of, places_in

EPOCH = "20261121T000000-00000001"
COLUMNS: dict[str, Any] = {
    "place": "struct<line: string, level: int8, at: timestamp>",
    "values": "array<float>",
    "tags": "map<string, int>",
    "points": "array<struct<x: int, tags: map<string, array<decimal(6,2)>>>>",
    "raw": "array<variant>",
}
AT = datetime(2026, 1, 20, 12, tzinfo=UTC)
DOCUMENTS: list[dict[str, Any]] = [
    {
        "place": {"line": "a", "level": 3, "at": AT.isoformat()},
        "values": [1.5, None, -0.0],
        "tags": {"n": 1, "ü": None},
        "points": [{"x": 1, "tags": {"k": [1.25, 2]}}, None, {"x": None, "tags": {}}],
        "raw": [{"a": [1]}, "x", 3],
    },
    {"place": None, "values": [], "tags": {}, "points": [], "raw": []},
    {},
    {"place": {}, "values": [2], "tags": {"n": 2}, "points": [{}], "raw": [None]},
]


def messages(start: int) -> pa.Table:
    """One message for each document, from an offset on."""
    rows = [
        {
            "epoch": EPOCH,
            "offset": start + number,
            "received_at": datetime(2026, 11, 21, 12, tzinfo=UTC),
            "topic": "plant/1",
            "payload": json.dumps(document).encode(),
        }
        for number, document in enumerate(DOCUMENTS)
    ]
    return pa.Table.from_pylist(rows, schema=STREAM_SCHEMA)


def declared(kind: str, directory: Path, columns: dict[str, Any] = COLUMNS) -> DeclaredTable:
    definition = {
        "name": "nested",
        "topics": "plant/+",
        "format": kind,
        "decoder": {"kind": "json", "columns": columns},
    }
    return DeclaredTable(TableDefinition.model_validate(definition), places_in(directory))


def land(table: DeclaredTable, batch_id: int) -> None:
    """Land the documents once more, as another run of the job would."""
    opened: LandedTable = table.open()[ROWS]
    selection = Selection(EPOCH, "messages", (table.topic_filter,))
    opened.prepare(selection)
    start = batch_id * len(DOCUMENTS)
    rows = table.split(messages(start))[ROWS]
    files = list(write_files({ROWS: opened.layout}, f"part-{batch_id}", [{ROWS: rows}]))
    opened.commit(PlannedBatch(selection, start, start + len(DOCUMENTS)), files)


def readings(table: DeclaredTable, kind: str) -> dict[str, pa.Table]:
    """The rows, by who read them."""
    files = f"{path_of(table)}/**/*.parquet"
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.sql(f"from read_parquet('{files}', hive_partitioning = true)")
        read = {"DuckDB": found.to_arrow_table()}
    read["Polars, by files"] = polars.read_parquet(files, hive_partitioning=True).to_arrow()
    if kind == "delta":
        read["delta-rs"] = DeltaTable(path_of(table)).to_pyarrow_table()
        read["Polars"] = polars.read_delta(str(path_of(table))).to_arrow()
    if kind == "iceberg":
        catalog = SqlCatalog(
            "penstock", uri=f"sqlite:///{Path(table.location.uri).parent / 'iceberg.db'}"
        )
        opened = catalog.load_table(("penstock", path_of(table).name))
        read["Polars"] = polars.scan_iceberg(opened.metadata_location).collect().to_arrow()
        read["pyiceberg"] = opened.scan().to_arrow()
    return read


def plain(value: Any) -> Any:
    """A value without what readers differ in that mean the same: a map is a list of pairs for one,
    and of objects for another."""
    if isinstance(value, dict):
        if set(value) == {"key", "value"}:
            return plain(value["key"]), plain(value["value"])
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_every_reader_finds_the_same_nested_values(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # without a warning
    table = declared(kind, tmp_path)
    land(table, 0)
    land(declared(kind, tmp_path), 1)
    wanted = [
        {name: plain(row[name]) for name in ("offset", *COLUMNS)}
        for start in (0, len(DOCUMENTS))
        for row in table.split(messages(start))[ROWS].to_pylist()
    ]
    assert wanted[0]["place"] == {"line": "a", "level": 3, "at": AT}
    assert wanted[3]["place"] == {"line": None, "level": None, "at": None}
    for reader, found in readings(table, kind).items():
        rows = sorted(found.to_pylist(), key=lambda row: row["offset"])
        read = [{name: plain(row[name]) for name in ("offset", *COLUMNS)} for row in rows]
        if reader == "pyiceberg":  # which reads null as an empty list, apache/iceberg-python#3833
            read = [{**row, "points": row["points"] or None} for row in read]
            wanted = [{**row, "points": row["points"] or None} for row in wanted]
        assert read == wanted, reader
        assert {row["date"] for row in rows} == {date(2026, 11, 21)}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_nested_column_is_added_to_a_table_that_is_there(kind: str, tmp_path: Path) -> None:
    few = {name: column for name, column in COLUMNS.items() if name in ("place", "values")}
    land(declared(kind, tmp_path, few), 0)
    table = declared(kind, tmp_path)
    land(table, 1)
    if kind == "delta":
        found = DeltaTable(path_of(table)).to_pyarrow_table()
    else:
        catalog = SqlCatalog("penstock", uri=f"sqlite:///{tmp_path / 'iceberg.db'}")
        found = catalog.load_table(("penstock", path_of(table).name)).scan().to_arrow()
    rows = sorted(found.to_pylist(), key=lambda row: row["offset"])
    assert rows[0]["tags"] is None
    assert rows[len(DOCUMENTS)]["tags"] == [("n", 1), ("ü", None)]
