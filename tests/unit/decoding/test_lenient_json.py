"""`lenient`: what other programs write for JSON, although it is none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.unit.decoding.decode import decode

BOM = b"\xef\xbb\xbf"


def test_a_value_that_is_no_number_is_null_or_nan_as_declared() -> None:
    columns = {"f": "float32", "i": "int", "s": "string", "d": "decimal(5,2)", "j": "json"}
    payload = b'{"f": NaN, "i": NaN, "s": Infinity, "d": -Infinity, "j": NaN}'
    found = decode(payload, kind="json", lenient=True, columns=columns)
    row = found.rows[0]
    assert math.isnan(row.pop("f"))
    assert row == {"i": None, "s": None, "d": None, "j": None}
    found = decode(b'{"f": -Infinity}', kind="json", lenient=True, columns=columns)
    assert found.rows[0]["f"] == -math.inf


def test_defaults_stand_for_it_and_required_columns_miss_it() -> None:
    columns: dict[str, Any] = {"i": {"type": "int", "default": 7}}
    assert decode(b'{"i": NaN}', kind="json", lenient=True, columns=columns).rows == [{"i": 7}]
    columns = {"i": {"type": "int", "required": True}}
    found = decode(b'{"i": NaN}', kind="json", lenient=True, columns=columns)
    assert found.broken == {0: "Column i is missing."}


def test_inside_of_lists_and_objects_too() -> None:
    columns = {"v": "array<float>", "w": "struct<i: int, f: float>", "j": "json"}
    payload = b'{"v": [1, NaN], "w": {"i": NaN, "f": NaN}, "j": {"a": [NaN, 1]}}'
    row = decode(payload, kind="json", lenient=True, columns=columns).rows[0]
    assert row["v"][0] == 1
    assert math.isnan(row["v"][1])
    assert row["w"]["i"] is None
    assert math.isnan(row["w"]["f"])
    assert row["j"] == '{"a":[null,1]}'


def test_a_byte_order_mark() -> None:
    found = decode(BOM + b'{"a": 1}', kind="json", lenient=True, columns={"a": "int"})
    assert found.rows == [{"a": 1}]
    assert decode(BOM + b"[1]", kind="json", lenient=True).rows == [{"value": "[1]"}]


def test_text_of_json_is_json() -> None:
    found = decode(b'{"a": NaN, "b": 1.50}', b'{"b": 1.50}', kind="json", lenient=True)
    assert [row["value"] for row in found.rows] == ['{"a":null,"b":1.5}', '{"b": 1.50}']


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"a": 1,}', "The payload is not JSON: "),
        (b"[1,]", "The payload is not JSON: "),
        (b"{'a': 1}", "The payload is not JSON: "),
        (b'{"a": "\\ud800", "b": NaN}', "The payload is not JSON: it has half of a surrogate pair"),
        (b'{"a": ' + b"[" * 100_000, "The payload is nested too deeply."),
    ],
)
@pytest.mark.parametrize("settings", [{"columns": {"a": "json"}}, {}], ids=["columns", "text"])
def test_a_payload_beyond_leniency_stays_broken(
    payload: bytes, said: str, settings: dict[str, Any]
) -> None:
    assert decode(payload, kind="json", lenient=True, **settings).broken[0].startswith(said)


def test_numbers_keep_their_digits_all_the_same() -> None:
    columns = {"d": "decimal(20,18)", "x": "float"}
    payload = b'{"d": 1.123456789012345678, "x": NaN}'
    row = decode(payload, kind="json", lenient=True, columns=columns).rows[0]
    assert str(row["d"]) == "1.123456789012345678"
