"""Fault 10 of issue 24: numbers and text at the edges are right, or refused by their own name."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.unit.decoding.decode import decode

FIELD = descriptor_pb2.FieldDescriptorProto


def sign(number: float) -> float:
    return math.copysign(1, number)


@pytest.mark.parametrize("beside", [{}, {"d": "decimal(5,2)"}], ids=["floats", "and_decimals"])
@pytest.mark.parametrize("number", [b"-0.0", b'"-0.0"', b"-0e0"])
@pytest.mark.parametrize("column", ["float", {"type": "float", "scale": 0.1}, "float32"], ids=str)
@pytest.mark.parametrize("extra", ["", "rest"], ids=["quick", "whole"])
def test_zero_keeps_its_sign(beside: Any, number: bytes, column: Any, extra: str) -> None:
    columns = {"v": column, **beside}
    found = decode(b'{"v": ' + number + b"}", kind="json", columns=columns, extra=extra)
    assert found.rows[0]["v"] == 0
    assert sign(found.rows[0]["v"]) == -1


@pytest.mark.parametrize("kind", ["cbor", "msgpack"])
def test_zero_keeps_its_sign_in_binary(kind: str) -> None:
    writers: dict[str, Callable[[Any], bytes]]
    writers = {"cbor": cbor2.dumps, "msgpack": msgspec.msgpack.encode}
    write = writers[kind]
    found = decode(write({"v": -0.0}), kind=kind, columns={"v": "float", "s": "string"})
    assert sign(found.rows[0]["v"]) == -1
    assert decode(write({"v": -0.0}), kind=kind, columns={"v": "string"}).rows == [{"v": "-0.0"}]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"a":NaN}', "NaN is not JSON (byte 5)."),
        (b'{"a":[1,-Infinity]}', "-Infinity is not JSON (byte 8)."),
        (b'{"a":Infinity}', "Infinity is not JSON (byte 5)."),
        (b'{"a":nan}', "nan is not JSON (byte 5)."),
        (b'{"a": None}', "None is not JSON (byte 6)."),
        (b'{"a": True}', "True is not JSON (byte 6)."),
        (b"NaN", "NaN is not JSON (byte 0)."),
        (b'{"a":"NaN"x}', "expected ',' or '}' (byte 10)."),
        (b'\xef\xbb\xbf{"a":1}', "it begins with a byte order mark (lenient = true takes it)."),
        (b'{"a":"\\ud800"}', "it has half of a surrogate pair, which stands for no character."),
        (b'{"a":"\\udc00x"}', "it has half of a surrogate pair, which stands for no character."),
        (b'{"a":"\\ud83d\\ude00', "it ends too early."),
        (b'{"a":1,}', "trailing comma in object (byte 7)."),
    ],
)
@pytest.mark.parametrize("settings", [{"columns": {"a": "json"}}, {}], ids=["columns", "text"])
def test_each_fault_of_json_has_a_name(payload: bytes, said: str, settings: dict[str, Any]) -> None:
    assert decode(payload, kind="json", **settings).broken == {
        0: f"The payload is not JSON: {said}"
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-01-20T24:00:00Z", datetime(2026, 1, 21, tzinfo=UTC)),
        ("2026-01-31 24:00", datetime(2026, 2, 1, tzinfo=UTC)),
        ("20261231T240000.000Z", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-01-20T24:00:00+02:00", datetime(2026, 1, 20, 22, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2016-12-31T23:59:60.5z", datetime(2017, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)),
        ("2017-01-01T05:29:60+05:30", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2015-06-30T23:59:60", datetime(2015, 7, 1, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("beside", [[], ["2026-01-20T12:00:00Z"]], ids=["alone", "beside"])
def test_midnight_and_leap_seconds(text: str, wanted: datetime, beside: list[str]) -> None:
    payloads = [msgspec.json.encode({"t": one}) for one in (text, *beside)]
    found = decode(*payloads, kind="json", columns={"t": "timestamp"})
    assert found.broken == {}
    assert found.rows[0] == {"t": wanted}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-01-20T24:30:00Z", "no timestamp."),
        ("2026-01-20T24:00:01Z", "no timestamp."),
        ("2026-01-20T25:00:00Z", "no timestamp."),
        ("2016-12-31T12:59:60Z", "no timestamp: its second 60 is no leap second."),
        ("2016-12-15T23:59:60Z", "no timestamp: its second 60 is no leap second."),
        ("2016-12-31T23:59:61Z", "no timestamp."),
        ("9999-12-31T24:00:00Z", "no timestamp."),
    ],
)
def test_other_hours_and_seconds_are_none(text: str, said: str) -> None:
    found = decode(msgspec.json.encode({"t": text}), kind="json", columns={"t": "timestamp"})
    assert found.broken == {0: f"Column t is '{text}', which is {said}"}


def test_times_of_cbor_are_read_like_those_of_json() -> None:
    payloads = [
        b"\xa1\x61t\xc0" + cbor2.dumps(text)
        for text in ("2016-12-31T23:59:60Z", "2026-01-20T24:00:00Z", "2026-01-20T12:00:00Z")
    ]
    found = decode(*payloads, kind="cbor", columns={"t": "timestamp"})
    assert [row["t"].day for row in found.rows] == [1, 21, 20]


def test_decimal_fractions_of_any_length_keep_their_digits() -> None:
    """Their mantissa is a big number then, within the tag of the fraction."""
    values = [Decimal("18446744073709551.616"), Decimal("-1e-20"), Decimal(2**70)]
    payloads = [cbor2.dumps({"v": value}) for value in values]
    found = decode(*payloads, kind="cbor", columns={"v": "decimal(38,3)"})
    assert [row["v"] for row in found.rows] == [values[0], 0, values[2]]


def floats_descriptor() -> descriptor_pb2.FileDescriptorSet:
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="f.proto", package="f", syntax="proto3")
    message = file.message_type.add(name="F")
    message.field.add(name="many", number=1, type=FIELD.TYPE_FLOAT, label=FIELD.LABEL_REPEATED)
    message.field.add(name="one", number=2, type=FIELD.TYPE_DOUBLE, label=FIELD.LABEL_OPTIONAL)
    message.field.add(
        name="inner",
        number=3,
        type=FIELD.TYPE_MESSAGE,
        type_name=".f.F",
        label=FIELD.LABEL_OPTIONAL,
    )
    return found


def test_nan_in_a_repeated_float_of_protobuf(tmp_path: Path) -> None:
    described = floats_descriptor()
    file = tmp_path / "f.desc"
    file.write_bytes(described.SerializeToString())
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(described.file[0])
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("f.F"))
    numbers = [math.nan, -math.inf, -0.0]
    payload = made(many=numbers, one=math.nan, inner=made(many=numbers)).SerializeToString()
    settings = {"kind": "protobuf", "descriptor": str(file), "message": "f.F"}
    columns = {
        "text": {"type": "json", "path": "many"},
        "inside": {"type": "json", "path": "inner"},
        "many": "array<float>",
        "one": "float",
    }
    row = decode(payload, **settings, columns=columns).rows[0]
    assert row["text"] == '["NaN","-Infinity",-0.0]'
    assert row["inside"] == '{"many":["NaN","-Infinity",-0.0]}'
    assert math.isnan(row["many"][0])
    assert row["many"][1] == -math.inf
    assert sign(row["many"][2]) == -1
    assert math.isnan(row["one"])


def test_a_value_that_is_no_number_has_a_text() -> None:
    found = decode(
        *(cbor2.dumps({"v": number}) for number in (math.nan, math.inf, -math.inf)),
        kind="cbor",
        columns={"v": "string"},
    )
    assert [row["v"] for row in found.rows] == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("string", "1E+400"),
        ("json", "1E+400"),
        ("float", "Column v is 1E+400, which is out of range."),
        ("int", "Column v is 1E+400, which is out of range."),
    ],
)
def test_a_json_number_that_no_float_holds_is_judged_by_its_column(
    column: str, wanted: str, lenient: bool
) -> None:
    """Issue 37: it was not JSON, and with lenient an infinity."""
    columns = {"v": column, "w": "int"}
    found = decode(b'{"v": 1e400, "w": 1}', kind="json", columns=columns, lenient=lenient)
    if found.broken:
        assert found.broken == {0: wanted}
    else:
        assert found.rows == [{"v": wanted, "w": 1}]


def test_lenient_text_has_the_number_that_no_float_holds() -> None:
    found = decode(b"[1e400, NaN, -1e400]", kind="json", lenient=True)
    assert found.rows == [{"value": "[1E+400,null,-1E+400]"}]


EMPTY: list[dict[str, Any]] = [
    {"kind": "json"},
    {"kind": "json", "columns": {"v": {"type": "int", "required": True}}},
    {"kind": "json", "columns": {"v": "int"}, "many": True},
    {"kind": "json", "columns": {"v": "int"}, "extra": "rest", "lenient": True},
    {"kind": "cbor"},
    {"kind": "cbor", "columns": {"v": "int"}},
    {"kind": "msgpack"},
    {"kind": "msgpack", "columns": {"v": "int"}},
    {"kind": "avro", "framing": "container", "columns": {"v": "int"}},
]


@pytest.mark.parametrize("settings", EMPTY, ids=str)
def test_an_empty_payload_is_not_broken_and_has_no_row(settings: dict[str, Any]) -> None:
    """It removes a retained message [MQTT-3.3.1-6]."""
    found = decode(b"", b"\xc1", b"", **settings)
    assert found.rows == []
    assert list(found.broken) == [1]
