"""Formats in which a payload is rows: ndjson, line protocol, SenML, pairs, NMEA; decimal commas."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import cbor2
import pytest

from tests.unit.decoding.decode import decode
from tests.unit.decoding.inference.inferring import of_payloads

AT = 1_700_000_000
TIME = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_ndjson_is_a_row_for_each_line() -> None:
    found = decode(
        b'{"v": 1}\n\n{"v": 2}\r\n', b'{"v": 1}\n{"v"', kind="ndjson", columns={"v": "int"}
    )
    assert found.rows == [{"v": 1}, {"v": 2}]
    assert found.broken[1].startswith("Line 2: ")
    landed = of_payloads(b'{"v": 1}\n{"v": 2}\n', b'{"v": 3}\n')
    assert landed.kind == "ndjson"
    assert [row["v"] for row in landed.rows] == [1, 2, 3]


LINES = rb"""
# comment
air\ in,place=room\,1,a\=b=c celsius=21.5,n=3i,big=18446744073709551615u,on=t,s="a \"b\", c=d" @
air,place=x celsius=-1e3
""".replace(b"@", b"1700000000000001999")


def test_line_protocol_is_a_row_for_each_point_with_its_escapes_and_nanoseconds() -> None:
    columns = {
        "measurement": "string",
        "place": {"type": "string", "path": "tags.place"},
        "fields": "json",
        "time": {"type": "timestamp", "unit_from": "ns"},
        "nanoseconds": {"type": "int", "path": "time"},
    }
    first, second = decode(LINES, kind="line_protocol", columns=columns).rows
    assert first == {
        "measurement": "air in",
        "place": "room,1",
        "fields": '{"celsius":21.5,"n":3,"big":18446744073709551615,"on":true,'
        '"s":"a \\"b\\", c=d"}',
        "time": TIME.replace(microsecond=1),
        "nanoseconds": AT * 10**9 + 1999,
    }
    assert second["fields"] == '{"celsius":-1000.0}'
    assert second["time"] is None


@pytest.mark.parametrize(
    "line",
    [b"air", b"air celsius=", b"air celsius=x", b"air celsius=1 noon", b'air s="x', b"air a=1,"],
)
def test_a_line_that_is_no_line_protocol_is_broken(line: bytes) -> None:
    assert decode(line, kind="line_protocol", columns={"time": "int"}).broken


def test_line_protocol_is_proposed() -> None:
    landed = of_payloads(*(b"air,place=k celsius=%d.5 %d" % (n, AT * 10**9 + n) for n in range(5)))
    assert landed.kind == "line_protocol"
    assert landed.columns["time"]["type"] == "timestamp"
    assert (
        landed.rows[3]["fields_celsius" if "fields_celsius" in landed.rows[3] else "celsius"] == 3.5
    )
    assert landed.rows[3]["time"] == TIME


PACK: list[dict[str, Any]] = [
    {"bn": "urn:dev:1:", "bt": AT, "bu": "Cel", "bver": 5, "n": "t", "v": 20.5},
    {"n": "h", "u": "%RH", "v": 40, "t": 60},
    {"n": "name", "vs": "x"},
    {"n": "on", "vb": True},
    {"n": "raw", "vd": base64.urlsafe_b64encode(b"\xfb\xff").decode().rstrip("=")},
    {"n": "energy", "s": 12},
]
LABELS = {"bver": -1, "bn": -2, "bt": -3, "bu": -4, "n": 0, "u": 1, "v": 2, "vs": 3, "vb": 4}
LABELS |= {"s": 5, "t": 6, "vd": 8}


def as_cbor(pack: list[dict[str, Any]]) -> bytes:
    return cbor2.dumps([{LABELS[key]: value for key, value in record.items()} for record in pack])


def test_decimal_fractions_of_cbor_are_numbers_of_senml() -> None:
    """RFC 8428 §6 allows them (tag 4)."""
    payload = as_cbor([{"bn": "d", "bt": 1700000000, "bu": "Cel", "v": Decimal("20.5")}])
    (row,) = decode(payload, kind="senml").rows
    assert (row["name"], row["unit"], row["value"]) == ("d", "Cel", 20.5)


@pytest.mark.parametrize("notation", ["json", "cbor"])
def test_senml_is_resolved_and_proposed(notation: str) -> None:
    payload = json.dumps(PACK).encode() if notation == "json" else as_cbor(PACK)
    landed = of_payloads(payload, payload)
    assert landed.tried.table.decoder.settings == {"kind": "senml"}
    rows = landed.rows[:6]
    assert [row["name"] for row in rows] == [
        f"urn:dev:1:{name}" for name in ("t", "h", "name", "on", "raw", "energy")
    ]
    assert [row["unit"] for row in rows[:2]] == ["Cel", "%RH"]
    assert [row["value"] for row in rows[:2]] == [20.5, 40.0]
    assert [rows[2]["string_value"], rows[3]["bool_value"], rows[5]["sum"]] == ["x", True, 12.0]
    if notation == "json":
        assert rows[4]["data_value"] == b"\xfb\xff"
    assert rows[0]["time"] == TIME
    assert rows[1]["time"] == TIME.replace(minute=14)


@pytest.mark.parametrize(
    "pack",
    [
        b'{"n": "t", "v": 1}',
        b'[{"v": 1}]',
        b'[{"n": "t", "v": "x"}]',
        b'[{"n": "t", "v": 1, "vs": "x"}]',
        b'[{"n": "t", "v": 1, "must_": 1}]',
        b'[{"bver": 11, "n": "t", "v": 1}]',
        b'[{"n": "a b", "v": 1}]',
    ],
)
def test_a_pack_that_is_no_senml_is_broken(pack: bytes) -> None:
    assert decode(pack, kind="senml").broken


def test_a_long_base_name_is_not_repeated_to_gigabytes() -> None:
    pack = b'[{"bn":"' + b"a" * 500_000 + b'"}' + b',{"v":1}' * 50_000 + b"]"
    assert decode(pack, kind="senml").broken == {
        0: "The SenML pack repeats its base name too often."
    }


def test_a_time_of_senml_that_counts_from_now_is_an_offset() -> None:
    (row,) = decode(b'[{"n": "t", "v": 1, "t": -5}]', kind="senml").rows
    assert (row["time"], row["time_offset"]) == (None, -5.0)


@pytest.mark.parametrize(
    ("payload", "settings"),
    [
        (b"t=21.5 h=40 name=x\n", {}),
        (b"t=21.5,h=40,name=x", {}),
        (b"t=21.5&h=40&name=x", {}),
        (b't=21.5\nh=40\nname="x"\n', {}),
        (b"t=21.5;h=40;name=x", {"delimiter": ";"}),
    ],
)
def test_pairs_are_columns_and_proposed(payload: bytes, settings: dict[str, str]) -> None:
    landed = of_payloads(payload, payload)
    assert landed.tried.table.decoder.settings == {"kind": "key_value", **settings}
    assert [landed.rows[0][name] for name in ("t", "h", "name")] == [21.5, 40, "x"]


def test_parts_without_a_name_are_broken() -> None:
    found = decode(b"t=1 x", b"t=1 t=2", kind="key_value", columns={"t": "int"})
    assert sorted(found.broken) == [0, 1]


GGA = b"$GPGGA,123519,4807.038,N,01131.000,W,1,08,0.9,545.4,M,46.9,M,,*"


def sentence(content: bytes) -> bytes:
    checksum = 0
    for byte in content[1:-1]:
        checksum ^= byte
    return content + b"%02X\r\n" % checksum


def test_nmea_sentences_are_rows_with_named_fields_and_places_in_degrees() -> None:
    landed = of_payloads(sentence(GGA), sentence(GGA))
    assert landed.kind == "nmea"
    row = landed.rows[0]
    assert (row["talker"], row["sentence"], row["time"]) == ("GP", "GGA", 123519)
    assert row["latitude"] == pytest.approx(48.1173)
    assert row["longitude"] == pytest.approx(-(11 + 31 / 60))
    assert row["altitude"] == 545.4
    wrong = decode(GGA + b"00", kind="nmea", columns={"sentence": "string"})
    assert wrong.broken == {0: "Line 1 has a wrong NMEA checksum."}


def test_a_decimal_comma_is_read_and_proposed() -> None:
    columns = {
        "a": {"type": "float", "decimal": ","},
        "b": {"type": "decimal(10,2)", "decimal": ","},
        "c": {"type": "int", "decimal": ","},
    }
    settings = {"kind": "csv", "delimiter": ";", "columns": columns}
    found = decode(b"21,5;1.234,50;1.000", b"1.5;1;1", **settings)
    assert found.rows == [{"a": 21.5, "b": Decimal("1234.50"), "c": 1000}]
    assert found.broken == {1: "Column a is '1.5 with a point', which is no float64."}
    landed = of_payloads(b"K\xc3\xbcche;21,5", b"K\xc3\xbcche;-2,25")
    assert {"type": "float", "decimal": ","} in landed.columns.values()
    pairs = of_payloads(b"t=21,5 h=40,2", b"t=2,5 h=41,3")
    assert [pairs.rows[0][name] for name in ("t", "h")] == [21.5, 40.2]
