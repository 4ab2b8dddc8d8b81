"""The columns that are inferred from payloads: types, units, names, and what stands beside them."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cbor2
import fastavro
import msgspec
import pytest

from penstock.decoding.inference.unit_names import _UNAMBIGUOUS, _UNITS_AFTER_WORDS, unit_of
from penstock.decoding.units import _registry
from tests.unit.decoding.inference.inferring import inferred, of_payloads
from tests.unit.decoding.test_avro_containers import RECORDS, container


def json_column(*values: Any, name: str = "v") -> tuple[Any, str]:
    """The settings and the evidence of the column of a key."""
    landed = of_payloads(*(json.dumps({name: value}).encode() for value in values))
    (column,) = landed.tried.table.decoder.columns
    return column.settings, column.evidence


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ((True, False), {"type": "bool"}),
        ((True, 0), {"type": "bool"}),
        ((1, 2), {"type": "int"}),
        ((1, 2.5), {"type": "float"}),
        ((1, 2**63), {"type": "decimal(20,0)"}),
        ((1, 10**30), {"type": "decimal(38,0)"}),
        ((1, 10**50), {"type": "string"}),
        ((1, 10**400), {"type": "string"}),
        ((0.5, 10**400), {"type": "string"}),
        ((2.5, 2**53 + 1), {"type": "string"}),
        (("a", "b"), {"type": "string"}),
        (("0123", "456"), {"type": "string"}),
        (("123", "456"), {"type": "string"}),
        (("1.5", "2"), {"type": "float"}),
        (("1.10", "1.1"), {"type": "string"}),
        (("1.10", "2.05"), {"type": "decimal(38,2)"}),
        (("12E05", "3"), {"type": "string"}),
        (("2", "2.0"), {"type": "string"}),
        (("+1.5", "2.5"), {"type": "string"}),
        (("0.12345678901234567890", "1.5"), {"type": "string"}),
        ((1, "1.50"), {"type": "string"}),
        ((1.5, "2E3"), {"type": "string"}),
        ((["1.10"], ["1.1"]), {"type": "array<string>"}),
        ((1, "1.5"), {"type": "float"}),
        ((1, "warm"), {"type": "string"}),
        ((1, "NA"), {"type": "int", "null_values": ["NA"]}),
        ((1, [2]), {"type": "json"}),
        (([1], [2, 3]), {"type": "array<int>"}),
        (([1.5], [], [2]), {"type": "array<float>"}),
        ((["a", "b"], ["1"]), {"type": "array<string>"}),
        (([1, "a"],), {"type": "json"}),
        (([[1]],), {"type": "json"}),
        (([], []), {"type": "json"}),
        ((None, None), {"type": "json"}),
        (("2026-01-20T12:00:00Z", "2026-01-20T12:00:00.5+01:00"), {"type": "timestamp"}),
        (("2026-01-20 12:00:00", "2026-01-20 13:00:00"), {"type": "timestamp"}),
        (("2026-01-20", "2026-01-21"), {"type": "date"}),
        (("20.01.2026 12:00",), {"type": "timestamp", "format": "%d.%m.%Y %H:%M"}),
        (("13/01/2026",), {"type": "date", "format": "%d/%m/%Y"}),
        (("1/2/2026", "3/4/2026"), {"type": "string"}),  # a day or a month?
        (("2026-01-20T12:00:00Z", "yesterday"), {"type": "string"}),
    ],
)
def test_the_narrowest_type_is_taken_that_all_values_have(
    values: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    assert json_column(*values)[0] == settings


@pytest.mark.parametrize(
    ("name", "value", "unit"),
    [
        ("ts", 1_700_000_000, "s"),
        ("ts", 1_700_000_000.25, "s"),
        ("createdAt", 1_700_000_000_000, "ms"),
        ("event_time", 1_700_000_000_000_000, "us"),
        ("time_ns", 1_700_000_000_000_000_000, "ns"),
        ("x", 1_700_000_000_000, "ms"),
    ],
)
def test_numbers_of_a_plausible_range_are_times(name: str, value: float, unit: str) -> None:
    assert json_column(value, name=name)[0] == {"type": "timestamp", "unit_from": unit}


@pytest.mark.parametrize(
    ("name", "values", "unit"),
    [
        ("timestamp", [2_463_457_000 + 30_000_000 * n for n in range(5)], ""),
        ("ts", [1_400_000_000], ""),
        ("ts", [1_699_000_000, 1_400_000_000, 1_699_900_000], "s"),
        ("ts", [1_699_000_000, 1_400_000_000, 1_400_000_000], ""),
        ("ts", [1_700_000_000 + 3600 * 14], "s"),
        ("serial", [1_500_000_000_000], ""),
    ],
)
def test_a_number_is_a_time_if_it_lies_near_its_receipt_in_most_messages(
    name: str, values: list[int], unit: str
) -> None:
    """Issue 37: the ticks of a gateway, in microseconds since it started, were the year 2048."""
    settings, evidence = json_column(*values, name=name)
    assert settings == ({"type": "timestamp", "unit_from": unit} if unit else {"type": "int"})
    assert unit or name == "serial" or "far from the time of receipt as s since 1970" in evidence


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ([Decimal("1.10"), Decimal("2.005")], {"type": "decimal(38,3)"}),
        ([Decimal("1.10"), 7, 2.5], {"type": "decimal(38,2)"}),
        ([Decimal("0.12345678901234567890")], {"type": "decimal(38,20)"}),
        ([Decimal(10) ** 40 + Decimal("0.5")], {"type": "string"}),
        ([[Decimal("1.10")], [Decimal("2.5")]], {"type": "array<decimal(38,2)>"}),
    ],
)
def test_decimals_of_cbor_stay_decimals(values: list[Any], settings: dict[str, Any]) -> None:
    landed = of_payloads(*(cbor2.dumps({"v": value}) for value in values))
    assert landed.columns == {"v": settings}
    if settings["type"].startswith("decimal"):
        assert [row["v"] for row in landed.rows] == [Decimal(str(value)) for value in values]


def test_decimals_of_avro_stay_decimals() -> None:
    field = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "price", "type": field}]}
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"price": Decimal("1.10")}])
    landed = of_payloads(file.getvalue())
    assert landed.columns == {"price": {"type": "decimal(38,2)"}}
    assert str(landed.rows[0]["price"]) == "1.10"


def test_a_number_that_no_float_holds_is_no_infinity() -> None:
    landed = of_payloads(b'{"v": 1e400, "w": 1}', b'{"v": 1.5, "w": 2}')
    assert landed.kind == "json"
    assert landed.columns == {"v": {"type": "string"}, "w": {"type": "int"}}
    assert [row["v"] for row in landed.rows] == ["1E+400", "1.5"]


def test_an_empty_payload_is_no_dead_letter_of_a_sample() -> None:
    messages = [("a/b", b'{"v": %d}' % n) for n in range(3)]
    (landed,) = inferred([*messages, ("a/b", b"")])
    assert landed.columns == {"v": {"type": "int"}}
    assert not landed.dead
    assert "# 1 of them are empty, as messages that remove a retained one: no row." in landed.text


@pytest.mark.parametrize(("name", "value"), [("x", 1_700_000_000), ("ts", 42), ("uptime", 10**6)])
def test_other_numbers_are_none(name: str, value: int) -> None:
    assert json_column(value, name=name)[0]["type"] == "int"


def test_a_number_that_may_be_seconds_is_said_to_be() -> None:
    assert json_column(1_700_000_000, name="x")[1] == "all 1, 1700000000, perhaps s since 1970"


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("temp_c", "degC"),
        ("tempC", "degC"),
        ("pressure_bar", "bar"),
        ("pressure_hPa", "hPa"),
        ("wind_speed_m_s", "m/s"),
        ("speedKmh", "km/h"),
        ("supply_voltage_v", "V"),
        ("humidity_pct", "percent"),
        ("uptime_s", "s"),
        ("class_c", ""),
        ("height_m", "m"),
        ("zone_m", ""),
        ("temp_min", ""),
        ("bar", ""),
        ("c", ""),
        ("", ""),
    ],
)
def test_units_are_read_from_names_where_they_are_certain(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_every_unit_is_one_that_pint_knows() -> None:
    """So that `unit_from` can stand beside it."""
    for unit in {*_UNAMBIGUOUS.values(), *(unit for unit, _ in _UNITS_AFTER_WORDS.values())}:
        assert _registry().Unit(unit)


def test_evidence_says_how_many_rows_have_a_field_and_which_values() -> None:
    many = [{"id": n, "mode": "auto" if n % 2 else "off"} for n in range(100)]
    many[7]["fault"] = "E1"
    landed = of_payloads(*(json.dumps(one).encode() for one in many))
    found = {one.name: one.evidence for one in landed.tried.table.decoder.columns}
    assert found == {
        "id": "all 100, 0 to 99",
        "mode": "all 100, auto | off",
        "fault": "1 of 100, rare, E1",
    }


def test_mixed_types_say_what_they_mix() -> None:
    assert json_column(1, 2, "warm")[1].endswith("mixed: 2 whole numbers, 1 text")
    assert json_column(1, 2, 2.5)[1].endswith("2 of them whole numbers")


def test_a_word_for_null_is_none_among_numbers_only() -> None:
    landed = of_payloads(b'{"v": "NA", "country": "NA"}', b'{"v": 1, "country": "FR"}')
    assert landed.columns == {
        "v": {"type": "int", "null_values": ["NA"]},
        "country": {"type": "string"},
    }
    assert [(row["v"], row["country"]) for row in landed.rows] == [(None, "NA"), (1, "FR")]


def test_json_that_is_read_leniently_says_so() -> None:
    landed = of_payloads(b'{"v": NaN, "n": 1}', b'\xef\xbb\xbf{"v": 1.5, "n": NaN}', b'{"v": 2}')
    assert landed.tried.table.decoder.settings == {"kind": "json", "lenient": True}
    assert landed.columns == {"v": {"type": "float"}, "n": {"type": "float"}}
    assert len(landed.rows) == 3


def test_nested_objects_become_columns_and_objects_with_data_for_keys_do_not() -> None:
    landed = of_payloads(
        *(
            json.dumps({"pos": {"lat": 1.5, "a.b": n}, "by_id": {f"{n}-{m}": m for m in range(3)}})
            .encode()
            for n in range(20)
        )
    )  # fmt: skip
    assert landed.columns == {
        "pos_lat": {"type": "float", "path": "pos.lat"},
        "pos_a_b": {"type": "int", "path": "/pos/a.b"},
        "by_id": {"type": "map<string, int>"},
    }
    assert [row["pos_a_b"] for row in landed.rows] == list(range(20))


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("country,1960,1961,1962", ("country", "1960", "1961", "1962")),
        ("country,1960,1990,1962", ()),  # no steps: they are values
        ("1960,1961,1962,1963", ()),
        ("pump,1.5,2.5,3.5", ()),
        ("pump,on,0,100", ()),  # two numbers are no series
    ],
)
def test_numbers_in_equal_steps_may_be_names_in_a_header(
    first: str, names: tuple[str, ...]
) -> None:
    landed = of_payloads(*(f"{first}\nFR,{n},2.5,{n}.5\n".encode() for n in range(9)))
    assert [str(one.get("path", name)) for name, one in landed.columns.items()] == [
        *(names or ("field_1", "field_2", "field_3", "field_4"))
    ]


def test_a_number_of_thousands_of_digits_is_no_name() -> None:
    landed = of_payloads(*(f"pump,{'1' * 5000}\nFR,{n}.5\n".encode() for n in range(9)))
    assert {one["type"] for one in landed.columns.values()} == {"string"}


def test_a_key_that_is_too_long_for_a_name_is_no_column_and_does_not_vanish() -> None:
    """Issue 37: it vanished without a word."""
    named, hostile = "n" * 256, "k" * 257
    payloads = (json.dumps({named: 1, hostile: 2}).encode(), json.dumps({named: 3}).encode())
    for landed in (
        of_payloads(*payloads),
        of_payloads(cbor2.dumps({named: 1, hostile.encode(): 2})),
    ):
        assert landed.columns == {"n" * 100: {"type": "int", "path": named}}
        assert list(json.loads(landed.rows[0]["others"]).values()) == [2]
        assert "# 1 keys of more than 256 characters, or of no text, are in others." in landed.text
    nested = of_payloads(json.dumps({"a": {"b": 1, hostile: 2}}).encode())
    assert json.loads(nested.rows[0]["a"]) == {"b": 1, hostile: 2}
    assert nested.text.endswith("with keys too long for names")


def test_keys_that_no_table_takes_get_other_names_and_keep_their_paths() -> None:
    keys = ["topic", "a b", "a.b", "A_B", "", "$", "$.x", "/y", "Offset", "ä"]
    landed = of_payloads(json.dumps({key: n for n, key in enumerate(keys)}).encode())
    (row,) = landed.rows
    values = [value for name, value in row.items() if name in landed.columns]
    assert values == list(range(len(keys)))
    assert landed.columns["payload_topic"] == {"type": "int", "path": "topic"}


def test_hundreds_of_fields_go_into_one_column_as_json() -> None:
    objects = [{f"k{n}": n for n in range(400)}]
    objects.append({f"k{n}": n for n in range(300)})
    landed = of_payloads(*(json.dumps(one).encode() for one in objects))
    assert len(landed.columns) == 300
    assert json.loads(landed.rows[0]["others"]) == {f"k{n}": n for n in range(300, 400)}


def test_a_list_of_objects_is_many_rows() -> None:
    landed = of_payloads(b'[{"v": 1}, {"v": 2}]', b'{"v": 3}')
    assert landed.tried.table.decoder.settings == {"kind": "json", "many": True}
    assert [row["v"] for row in landed.rows] == [1, 2, 3]


def test_documents_that_are_not_all_objects_stay_json_text() -> None:
    landed = of_payloads(b'{"v": 1}', b"[1, 2]", b"7", b"null")
    assert [row["value"] for row in landed.rows] == ['{"v": 1}', "[1, 2]", "7", "null"]
    assert "2 values, 1 objects, 1 lists" in landed.text


def test_json_strings_are_values() -> None:
    landed = of_payloads(b'"2026-01-20T12:00:00Z"', b"null", topic="plant/seen")
    assert [row["seen"] for row in landed.rows] == [datetime(2026, 1, 20, 12, tzinfo=UTC), None]


@pytest.mark.parametrize(
    ("payloads", "kind", "values"),
    [
        ((b"21.5", b" 22\n"), "float", [21.5, 22.0]),
        ((b"7", b"unavailable"), "int", [7, None]),
        ((b"1.10", b"1.1"), "string", ["1.10", "1.1"]),
        ((b"12E05", b"1.5"), "string", ["12E05", "1.5"]),
        ((b"21.50", b"22.00"), "decimal(38,2)", [Decimal("21.50"), Decimal("22.00")]),
        ((b"12345678901234567890", b"0.5"), "string", ["12345678901234567890", "0.5"]),
        ((b"12345678901234567890", b"5"), "decimal(20,0)", [12345678901234567890, 5]),
        ((b"-0", b"5"), "string", ["-0", "5"]),
        ((b"+5", b"5"), "string", ["+5", "5"]),
        ((b"1e400", b"2.5"), "string", ["1e400", "2.5"]),
        ((b"nan", b"2.5e-07"), "float", [math.nan, 2.5e-07]),
        ((b"true", b"false"), "bool", [True, False]),
        ((b"ON", b"OFF"), "string", ["ON", "OFF"]),
        ((b"2026-01-20", b"2026-01-21"), "date", [date(2026, 1, 20), date(2026, 1, 21)]),
        ((b"007", b"8"), "string", ["007", "8"]),
    ],
)
def test_one_value_in_text(payloads: tuple[bytes, ...], kind: str, values: list[Any]) -> None:
    landed = of_payloads(*payloads, topic="plant/level")
    assert (landed.kind, landed.columns["level"]["type"]) == ("text", kind)
    assert list(map(str, (row["level"] for row in landed.rows))) == list(map(str, values))


@pytest.mark.parametrize("dumps", [cbor2.dumps, msgspec.msgpack.encode])
def test_cbor_and_message_pack_are_told_apart(dumps: Any) -> None:
    landed = of_payloads(*(dumps({"v": n, "b": b"\x00"}) for n in range(3)))
    assert landed.kind == ("cbor" if dumps is cbor2.dumps else "msgpack")
    assert landed.columns == {"v": {"type": "int"}, "b": {"type": "binary"}}


def test_whole_numbers_as_keys_of_cbor_are_paths() -> None:
    landed = of_payloads(cbor2.dumps([{-20: "urn:dev:1", 20: 21.5}]))
    assert [row["20"] for row in landed.rows] == [21.5]


def test_csv_with_a_header_and_without() -> None:
    with_header = of_payloads(b"at;temp c\n2026-01-20T12:00:00Z;1.5\n", b"at;temp c\n;2\n;\n")
    assert with_header.tried.table.decoder.settings == {
        "kind": "csv",
        "delimiter": ";",
        "header": True,
    }
    assert [row["temp_c"] for row in with_header.rows] == [1.5, 2.0, None]
    without = of_payloads(b"a,1\nb,2", b"c,NA")
    assert [(row["field_1"], row["field_2"]) for row in without.rows] == [
        ("a", 1),
        ("b", 2),
        ("c", None),
    ]


def test_prose_with_commas_is_no_csv() -> None:
    assert of_payloads(b"Hello, world", b"Well, yes").kind == "text"


def test_few_payloads_of_another_kind_are_dead_letters_and_are_said() -> None:
    messages = [("a/b", b'{"v": %d}' % n) for n in range(99)]
    (landed,) = inferred([*messages, ("a/b", b"warm")])
    assert list(landed.dead) == [99]
    assert "# 1 of them would be dead letters:" in landed.text
    assert "broken: The payload is not JSON" in landed.text


def test_many_payloads_of_another_kind_make_it_text_or_bytes() -> None:
    text = of_payloads(b'{"v": 1}', b"warm")
    assert (text.kind, [row["data"] for row in text.rows]) == ("text", ['{"v": 1}', "warm"])
    assert of_payloads(b'{"v": 1}', b"\xff\xfe").kind == "raw"
    assert of_payloads(b"\x00\x01", b"\xff\xfe").kind == "raw"


def test_bytes_say_what_they_may_be() -> None:
    assert "Avro as single objects" in of_payloads(b"\xc3\x01" + bytes(9)).text
    assert "schema registry" in of_payloads(b"\x00\x00\x00\x00\x07\xff").text


def test_a_table_is_inferred_from_container_files() -> None:
    landed = of_payloads(container(), container(codec="deflate"))
    assert landed.tried.table.decoder.settings == {"kind": "avro", "framing": "container"}
    assert landed.columns == {
        "id": {"type": "int"},
        "temp_c": {"type": "float", "unit": "degC"},
        "at": {"type": "timestamp"},
    }
    assert len(landed.rows) == 2 * len(RECORDS)
