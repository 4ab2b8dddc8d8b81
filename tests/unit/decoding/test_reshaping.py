"""Rows in objects: lists beside each other, keys that are names, and JSON inside of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
import msgspec
import pytest
from pydantic import ValidationError

from penstock.config.decoder import DecoderDefinition
from tests.unit.decoding.decode import decode
from tests.unit.decoding.inference.inferring import of_payloads

LISTS = {"device": "d1", "hourly": {"time": [1, 2, 3], "t": [20.5, None, 22.5], "x": [1]}}
KEYS = {"at": 7, "sensors": {"s1": {"t": 1.5}, "s2": {"t": 2.5, "h": 40}}}
TEXTS = {"id": "a", "data": '{"t": 21.5, "pos": {"x": 1}}'}
WRITERS: dict[str, Callable[[Any], bytes]] = {
    "json": msgspec.json.encode,
    "cbor": cbor2.dumps,
    "msgpack": msgspec.msgpack.encode,
}
EACH_KIND = pytest.mark.parametrize("kind", WRITERS)


def decoded(kind: str, document: Any, **settings: Any) -> Any:
    return decode(WRITERS[kind](document), kind=kind, **settings)


@EACH_KIND
def test_lists_beside_each_other_are_rows(kind: str) -> None:
    columns = {"device": {"type": "string", "path": "$.device"}, "time": "int", "t": "float"}
    found = decoded(kind, LISTS, rows_of="lists", rows_path="hourly", columns=columns)
    assert found.rows == [
        {"device": "d1", "time": 1, "t": 20.5},
        {"device": "d1", "time": 2, "t": None},
        {"device": "d1", "time": 3, "t": 22.5},
    ]


@EACH_KIND
def test_keys_of_an_object_are_rows(kind: str) -> None:
    columns = {
        "at": {"type": "int", "path": "$.at"},
        "key": "string",
        "t": {"type": "float", "path": "value.t"},
    }
    found = decoded(kind, KEYS, rows_of="keys", rows_path="sensors", columns=columns)
    assert found.rows == [{"at": 7, "key": "s1", "t": 1.5}, {"at": 7, "key": "s2", "t": 2.5}]
    values = {"key": "string", "value": "float"}
    plain = decoded(kind, {"a": 1.5, "b": None}, rows_of="keys", columns=values)
    assert plain.rows == [{"key": "a", "value": 1.5}, {"key": "b", "value": None}]


@EACH_KIND
def test_json_inside_a_text_is_read_as_if_it_stood_there(kind: str) -> None:
    columns = {
        "id": "string",
        "t": {"type": "float", "path": "data.t"},
        "data": {"type": "struct", "fields": {"t": "float", "pos": "struct<x: int>"}},
    }
    found = decoded(kind, TEXTS, json_texts=["data"], columns=columns)
    data = {"t": 21.5, "pos": {"x": 1}}
    assert found.rows == [{"id": "a", "t": 21.5, "data": data}]
    rows = decoded(kind, [TEXTS, {"id": "b"}], json_texts=["data"], many=True, columns=columns)
    assert rows.rows == [*found.rows, {"id": "b", "t": None, "data": None}]
    whole = decoded(
        kind, msgspec.json.encode(data).decode(), json_texts=["$"], columns={"t": "float"}
    )
    assert whole.rows == [{"t": 21.5}]
    same = decoded(
        kind, {"x": "1", "data": "1"}, json_texts=["data"], columns={"x": "json", "data": "json"}
    )
    assert same.rows == [{"x": '"1"', "data": "1"}]
    inside = {"log": '{"rows": [{"t": 1}, {"t": 2}]}'}
    settings: dict[str, Any] = {"json_texts": ["$.log"], "rows_path": "log.rows"}
    assert decoded(kind, inside, columns={"t": "int"}, **settings).rows == [{"t": 1}, {"t": 2}]


@pytest.mark.parametrize(
    ("settings", "document", "reason"),
    [
        ({"rows_of": "lists"}, {"t": [1, 2], "h": [3]}, "The lists h and t have 1 and 2 items."),
        ({"rows_of": "lists"}, {"t": 5, "h": [3]}, "t is 5, which is no list."),
        ({"rows_of": "lists"}, {"x": [3]}, "The payload has none of the lists that are columns."),
        ({"rows_of": "lists"}, [1], "There is a list of 1 items instead of an object with lists."),
        ({"rows_of": "keys"}, [1], "There is a list of 1 items instead of an object."),
        (
            {"rows_of": "lists", "rows_max": 1},
            {"t": [1, 2]},
            "The payload has 2 rows, more than rows_max allows.",
        ),
        (
            {"json_texts": ["t"]},
            {"t": "{"},
            "In the text at t: The payload is not JSON: it ends too early.",
        ),
        (
            {"json_texts": ["t"], "values_max": 1000},
            {"t": str([0] * 2000)},
            "it becomes more values than values_max allows (1000).",
        ),
    ],
)
def test_a_document_that_does_not_fit_is_broken_and_says_why(
    settings: dict[str, Any], document: Any, reason: str
) -> None:
    found = decoded("json", document, columns={"t": "int", "h": "int"}, **settings)
    assert found.rows == []
    assert reason in found.broken[0]


@pytest.mark.parametrize(
    "settings",
    [{"rows_of": "keys", "many": True}, {"rows_of": "lists", "extra": "others"},
     {"rows_of": "keys", "json_texts": ["value"]}],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_a_mistake(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match='for rows_of = "items"'):
        DecoderDefinition.model_validate({"kind": "json", "columns": {"t": "int"}, **settings})


def payloads(documents: list[Any]) -> list[bytes]:
    return [msgspec.json.encode(one) for one in documents]


def test_infer_proposes_lists_beside_each_other() -> None:
    """They were two columns of lists."""
    documents = [
        {"device": "d1", "time": [1_700_000_000 + n, 1_700_000_060 + n], "t": [20.5, 21.25]}
        for n in range(5)
    ]
    landed = of_payloads(*payloads(documents))
    assert landed.tried.table.decoder.settings == {"kind": "json", "rows_of": "lists"}
    assert [(row["device"], row["t"]) for row in landed.rows] == [("d1", 20.5), ("d1", 21.25)] * 5
    assert landed.columns["time"]["type"] == "timestamp"
    axes = [{"accel": [0.1, 0.5, 0.2], "gyro": [3.5, n + 0.5, 2.5]} for n in range(5)]
    assert "rows_of" not in of_payloads(*payloads(axes)).tried.table.decoder.settings


def test_infer_proposes_keys_that_are_names() -> None:
    """They were columns of each name."""
    documents = [
        {"gateway": "g", "sensors": {f"s{n}": {"t": n + 0.5, "h": 40}, "s9": {"t": 1.5, "h": 41}}}
        for n in range(5)
    ]
    landed = of_payloads(*payloads(documents))
    settings = {"kind": "json", "rows_of": "keys", "rows_path": "sensors"}
    assert landed.tried.table.decoder.settings == settings
    first = {name: landed.rows[0][name] for name in ("gateway", "key", "t", "h")}
    assert first == {"gateway": "g", "key": "s0", "t": 0.5, "h": 40}
    of_one_device = [
        {"temp": {"value": n, "unit": "C"}, "hum": {"value": 1, "unit": "%"}} for n in range(5)
    ]
    assert "rows_of" not in of_payloads(*payloads(of_one_device)).tried.table.decoder.settings


def test_infer_proposes_json_inside_of_texts() -> None:
    """It was a column of text."""
    documents = [{"id": "a", "data": f'{{"t": {n}.5, "pos": {{"x": 1}}}}'} for n in range(5)]
    landed = of_payloads(*payloads(documents))
    settings = {"kind": "json", "json_texts": ["data"]}
    assert landed.tried.table.decoder.settings == settings
    assert [row["data_t"] for row in landed.rows] == [n + 0.5 for n in range(5)]
    mixed = [*documents, {"id": "a", "data": "{not json"}]
    assert "json_texts" not in of_payloads(*payloads(mixed)).tried.table.decoder.settings
