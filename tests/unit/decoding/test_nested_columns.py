"""Columns that are structs, lists and maps: what fits, what is null, and where what does not is."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import cbor2
import fastavro
import msgspec
import pyarrow as pa
import pytest
from pydantic import ValidationError

from penstock.config.decoder import Column
from tests.unit.decoding.decode import decode, decoder
from tests.unit.decoding.test_with_a_schema import READING, message, reading_descriptor

READINGS: dict[str, Any] = {
    "unit": "string",
    "values": "array<float>",
    "at": {"type": "timestamp", "unit_from": "ms"},
    "state": {"type": "string", "default": "ok"},
    "inner": {"type": "int", "path": "deep.list.1"},
}
COLUMNS: dict[str, Any] = {
    "reading": {"type": "struct", "fields": READINGS},
    "tags": "map<string, string>",
    "points": "array<struct<x: int not null, y: decimal(4,1)>>",
    "celsius": {"type": "array<array<float>>", "unit_from": "degF", "unit": "degC"},
    "any": "array<variant>",
}
VALUE: dict[str, Any] = {
    "reading": {
        "unit": "V",
        "values": [1, 2.5, None],
        "at": 1_768_910_740_000,
        "deep": {"list": [1, 2]},
        "unknown": {},
    },
    "tags": {"a": "b", "n": 1},
    "points": [{"x": 1, "y": 2.5}, {"x": "2"}, None],
    "celsius": [[32, 212], [], None],
    "any": [1, {"a": []}, "x"],
}
ROW: dict[str, Any] = {
    "reading": {
        "unit": "V",
        "values": [1.0, 2.5, None],
        "at": datetime(2026, 1, 20, 12, 5, 40, tzinfo=UTC),
        "state": "ok",
        "inner": 2,
    },
    "tags": [("a", "b"), ("n", "1")],
    "points": [{"x": 1, "y": Decimal("2.5")}, {"x": 2, "y": None}, None],
    "celsius": [[0.0, 100.0], [], None],
    "any": ["1", '{"a":[]}', '"x"'],
}
WRITE: dict[str, Callable[[Any], bytes]] = {
    "json": msgspec.json.encode,
    "cbor": cbor2.dumps,
    "msgpack": msgspec.msgpack.encode,
}


@pytest.mark.parametrize("kind", WRITE)
@pytest.mark.parametrize("settings", [{}, {"extra": "rest"}, {"many": True}], ids=str)
def test_nested_values_become_nested_columns(kind: str, settings: dict[str, Any]) -> None:
    found = decode(WRITE[kind](VALUE), kind=kind, columns=COLUMNS, **settings)
    assert found.broken == {}
    row = {name: value for name, value in found.rows[0].items() if name in COLUMNS}
    assert row == ROW


def test_the_types_are_those_of_arrow() -> None:
    schema = decoder(kind="json", columns=COLUMNS).schema
    assert str(schema.field("tags").type) == "map<string, string>"
    assert schema.field("points").type == pa.list_(
        pa.field("element", pa.struct([("x", pa.int64()), ("y", pa.decimal128(4, 1))]))
    )
    assert schema.field("reading").type.field("at").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("kind", WRITE)
def test_a_missing_column_is_null_as_a_whole(kind: str) -> None:
    found = decode(WRITE[kind]({}), WRITE[kind](dict.fromkeys(COLUMNS)), kind=kind, columns=COLUMNS)
    assert found.rows == [dict.fromkeys(COLUMNS)] * 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"reading": 5}, "Column reading is 5, which is no object."),
        ({"reading": {"values": 5}}, "Column reading.values is 5, which is no list."),
        (
            {"reading": {"values": [1, 2, 3, "x"]}},
            "Column reading.values[3] is 'x', which is no float64.",
        ),
        ({"tags": []}, "Column tags is a list of 0 items, which is no object."),
        (
            {"tags": {"a": "b", "k": {}}},
            "Column tags['k'] is an object of 0 keys, which is no string",
        ),
        ({"points": [{"x": 1}, {"y": 1}]}, "Column points[1].x is missing."),
        (
            {"points": [{"x": 1}, {"x": 1.5}]},
            "Column points[1].x is 1.5, which is no whole number.",
        ),
        ({"points": [3]}, "Column points[0] is 3, which is no object."),
        ({"celsius": [[1], [2, "x"]]}, "Column celsius[1][1] is 'x', which is no float64."),
    ],
)
@pytest.mark.parametrize("kind", WRITE)
def test_the_reason_says_where_the_value_is(value: object, said: str, kind: str) -> None:
    payloads = [WRITE[kind](one) for one in (VALUE, value, VALUE)]
    found = decode(*payloads, kind=kind, columns=COLUMNS)
    assert [*found.broken] == [1]
    assert found.broken[1].startswith(said)
    assert found.rows == [ROW, ROW]


def test_a_nested_column_may_be_required() -> None:
    columns = {"v": {"type": "array<int>", "required": True}}
    found = decode(b'{"v": []}', b"{}", b'{"v": null}', kind="json", columns=columns)
    assert found.rows == [{"v": []}]
    assert found.broken == {1: "Column v is missing.", 2: "Column v is missing."}


def test_texts_that_mean_nothing_do_so_inside_too() -> None:
    columns = {
        "v": "array<int>",
        "s": {"type": "struct", "fields": {"a": {"type": "int", "default": 1}}},
    }
    found = decode(
        b'{"v": [1, "n/a"], "s": {"a": "n/a"}}', kind="json", columns=columns, null_values=["n/a"]
    )
    assert found.rows == [{"v": [1, None], "s": {"a": 1}}]


def test_keys_that_become_one_text_are_one() -> None:
    payload = cbor2.dumps({"v": {1: "a", "1": "b", b"x": "c"}})
    found = decode(payload, kind="cbor", columns={"v": "map<string, string>"})
    assert found.rows == [{"v": [("1", "b"), ("x", "c")]}]
    found = decode(cbor2.dumps({"v": {b"\xff": 1}}), kind="cbor", columns={"v": "map<string, int>"})
    assert found.broken == {0: "Column v has a key that is no text."}


def test_a_nested_value_beside_the_rows_is_not_repeated_to_gigabytes() -> None:
    columns = {"g": {"type": "array<int>", "path": "$.g"}, "n": "int"}
    payloads = [
        json.dumps({"g": [1] * 10_000, "r": [{}] * count}).encode() for count in (2, 10_000)
    ]
    found = decode(*payloads, kind="json", rows_path="r", columns=columns)
    assert found.sources == [0, 0]
    assert found.broken[1].endswith("and 10000 rows would repeat them.")


def test_messages_of_protobuf(tmp_path: Path) -> None:
    file = tmp_path / "plant.desc"
    file.write_bytes(reading_descriptor().SerializeToString())
    settings = {"kind": "protobuf", "descriptor": str(file)}
    columns: dict[str, Any] = {"place": "struct<line: string>", "tags": "array<string>"}
    payloads = [message("plant.Reading", **READING), b""]
    found = decode(*payloads, **settings, message="plant.Reading", columns=columns)
    assert found.rows == [
        {"place": {"line": "l1"}, "tags": ["a", "b"]},
        {"place": None, "tags": []},
    ]
    columns = {
        "readings": "array<struct<id: int, state: string, at: timestamp, total: decimal(20,0)>>"
    }
    payload = message("plant.Batch", readings=[READING, {}])
    found = decode(payload, **settings, message="plant.Batch", columns=columns)
    assert found.rows[0]["readings"] == [
        {"id": 7, "state": "RUNNING", "at": None, "total": Decimal(2**64 - 1)},
        {"id": 0, "state": "IDLE", "at": None, "total": Decimal(0)},
    ]


def test_records_of_avro(tmp_path: Path) -> None:
    point = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "double"]}],
    }
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "points", "type": {"type": "array", "items": point}},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
        ],
    }
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(schema))
    value = {"points": [{"x": 1, "y": 2.5}, {"x": 2, "y": None}], "tags": {"a": "b", "c": "n/a"}}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    columns = {"points": "array<struct<x: int, y: float>>", "tags": "map<string, string>"}
    settings = {"kind": "avro", "schema_file": str(file), "null_values": ["n/a"]}
    found = decode(stream.getvalue(), **settings, columns=columns)
    assert found.rows == [
        {"points": [{"x": 1, "y": 2.5}, {"x": 2, "y": None}], "tags": [("a", "b"), ("c", None)]}
    ]


def test_types_are_written_in_one_way() -> None:
    made = Column.model_validate("array<struct<a:int NOT NULL,b : map<string,double>>>")
    assert made.type == "array<struct<a: int64 not null, b: map<string, float64>>>"
    assert made.depth == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("array<varchar>", "one of string, bool"),
        ("array<int", "ends too early"),
        ("array<int>>", "is followed by '>'"),
        ("array", "ends too early"),
        ("map<int, int>", "the keys of a map are text"),
        ("struct<a int>", "a type has 'int' where ':' is expected"),
        ("struct<>", "a field of a struct is written name: type, not '>'"),
        ("struct<a: int, A: int>", "two fields 'A'"),
        ("struct<a: int not>", "name: type not null"),
        ("struct", "a struct has fields"),
        ("array<" * 8 + "int" + ">" * 8, "nested 8 deep at most"),
        ("struct<" + "a: int, " * 10_000, "at most 20000 characters"),
        ({"type": "struct<a: int>", "fields": {"b": "int"}}, "not in both"),
        ({"type": "int", "fields": {"b": "int"}}, "has no fields, a struct has"),
        ({"type": "struct<a: int>", "scale": 2.0}, "a struct has no scale"),
        ({"type": "array<int>", "default": 1}, "has no default"),
        ({"type": "array<string>", "scale": 2.0}, "a column of type string has no scale"),
        (
            {"type": "struct", "fields": {"a": {"type": "int", "path": "$.a"}}},
            "begins at its struct",
        ),
        ({"type": "struct", "fields": {"a b": "int"}}, "a character no table takes"),
    ],
)
def test_a_declaration_that_is_no_type_is_refused(settings: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Column.model_validate(settings)


@pytest.mark.parametrize("kind", ["csv", "text"])
def test_single_values_have_nothing_nested(kind: str) -> None:
    with pytest.raises(ValidationError, match="each of its values is one text"):
        decoder(kind=kind, columns={"a": "array<int>"})
