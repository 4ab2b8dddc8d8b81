"""What of a payload's values fits which type of column, and what is said where it does not."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cbor2
import pytest

from penstock.errors import ConfigError
from tests.unit.decoding.decode import decode, decoder

FITS: list[tuple[Any, bytes, Any]] = [
    ("string", b'"a"', "a"),
    ("string", b"1.5", "1.5"),
    ("string", b"true", "true"),
    ("bool", b"true", True),
    ("bool", b"0", False),
    ("bool", b'"OFF"', False),
    ("bool", b'"yes"', True),
    ("int8", b"-128", -128),
    ("int32", b"3.0", 3),
    ("int32", b'" 7 "', 7),
    ("int64", b"-9223372036854775808", -(2**63)),
    ("int64", b"true", 1),
    ("int", b'"1e3"', 1000),
    ("float", b"9007199254740993", 9007199254740992.0),
    ("float", b'"1.5e3"', 1500.0),
    ("float32", b"0.5", 0.5),
    ("decimal(5,2)", b"999.99", Decimal("999.99")),
    ("decimal(5,2)", b"0.125", Decimal("0.12")),
    (
        "decimal(38,0)",
        b"12345678901234567890123456789012345678",
        12345678901234567890123456789012345678,
    ),
    ("decimal(20,18)", b"1.123456789012345678", Decimal("1.123456789012345678")),
    ("timestamp", b'"2026-01-20T12:00:00Z"', datetime(2026, 1, 20, 12, tzinfo=UTC)),
    ("timestamp", b'"2026-01-20 12:00:00.5+01:00"', datetime(2026, 1, 20, 11, 0, 0, 500000, UTC)),
    ("timestamp", b'"2026-01-20"', datetime(2026, 1, 20, tzinfo=UTC)),
    (
        "timestamp",
        b'"2026-01-20T12:00:00.123456789z"',
        datetime(2026, 1, 20, 12, 0, 0, 123456, UTC),
    ),
    (
        {"type": "timestamp", "unit_from": "s"},
        b"-1.5",
        datetime(1969, 12, 31, 23, 59, 58, 500000, UTC),
    ),
    ({"type": "timestamp", "unit_from": "ns"}, b"1999", datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    ({"type": "timestamp", "unit_from": "us"}, b'"7"', datetime(1970, 1, 1, 0, 0, 0, 7, UTC)),
    (
        {"type": "timestamp", "time_zone": "Europe/Berlin"},
        b'"2026-07-20T12:00:00"',
        datetime(2026, 7, 20, 10, tzinfo=UTC),
    ),
    (  # the hour that is there twice: the first
        {"type": "timestamp", "time_zone": "Europe/Berlin"},
        b'"2026-10-25T02:30:00"',
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    ),
    (  # the hour that is not there: as if the clocks had not been changed
        {"type": "timestamp", "time_zone": "Europe/Berlin"},
        b'"2026-03-29T02:30:00"',
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    ),
    ("date", b'"2026-01-20"', date(2026, 1, 20)),
    ({"type": "date", "format": "%d.%m.%y"}, b'"20.01.26"', date(2026, 1, 20)),
    ("binary", b'"gkHe"', b"\x82\x41\xde"),
    ("binary", b'"AA"', b"\0"),
    ({"type": "binary", "binary": "base64url"}, b'"-_8="', b"\xfb\xff"),
    ({"type": "binary", "binary": "hex"}, b'"00fF"', b"\x00\xff"),
    ("json", b'{"a":[1,null]}', '{"a":[1,null]}'),
    ("json", b'"a"', '"a"'),
    ({"type": "int16", "scale": 0.1}, b"126", 13),
    ({"type": "float", "scale": 0.1, "offset": -40}, b"655", 25.5),
    ({"type": "decimal(6,2)", "scale": 0.01}, b"12345", Decimal("123.45")),
    ({"type": "float", "unit_from": "degF", "unit": "degC"}, b"212", 100.0),
    ({"type": "float", "unit_from": "%", "unit": "dimensionless"}, b"50", 0.5),
    ({"type": "float", "default": 20, "unit_from": "degF", "unit": "degC"}, b"null", 20.0),
    (
        {"type": "timestamp", "default": "2026-01-01T00:00:00Z"},
        b"null",
        datetime(2026, 1, 1, tzinfo=UTC),
    ),
]


@pytest.mark.parametrize(("column", "value", "wanted"), FITS, ids=str)
@pytest.mark.parametrize("beside", [b"", b'{"v":[]}'], ids=["alone", "beside_what_does_not_fit"])
def test_a_value_fits(column: Any, value: bytes, wanted: object, beside: bytes) -> None:
    """Alone a column is converted at once, beside a broken one each value by itself."""
    payload = b'{"v":' + value + b"}"
    found = decode(*[payload, beside] if beside else [payload], kind="json", columns={"v": column})
    assert found.rows[0] == {"v": wanted}
    assert type(found.rows[0]["v"]) is type(wanted) or isinstance(wanted, int)


UNFIT: list[tuple[Any, bytes, str]] = [
    ("string", b"{}", "Column v is an object of 0 keys, which is no string"),
    ("bool", b"2", "Column v is 2, which is no bool."),
    ("int8", b"128", "Column v is 128, which is out of range for int8."),
    ("int32", b"2147483648", "Column v is 2147483648, which is out of range for int32."),
    ("int64", b"9223372036854775808", "which is out of range for int64."),
    ("int64", b"3.5", "Column v is 3.5, which is no whole number."),
    ("int64", b'"abc"', "Column v is 'abc', which is no int64."),
    ("int64", b'"1_000"', "which is no number."),
    ("int64", b'"1e999999999"', "which is out of range."),
    ("int64", b"[1]", "Column v is a list of 1 items, which is no number."),
    ("float", b'"abc"', "Column v is 'abc', which is no float64."),
    ("float", b'"1e999"', "which is out of range."),
    ("float32", b"1e39", "Column v is 1e+39, which is out of range for float32."),
    ("decimal(3,2)", b"10", "Column v is 10, which is out of range for decimal(3,2)."),
    ("decimal(3,2)", b'"nan"', "which is out of range for decimal(3,2)."),
    ("decimal(3,2)", b"1e999999", "which is out of range for decimal(3,2)."),
    ("timestamp", b"1768910740", "which is a number, for which unit_from says what it counts."),
    ("timestamp", b'"yesterday"', "Column v is 'yesterday', which is no timestamp."),
    ({"type": "timestamp", "unit_from": "s"}, b"1e15", "out of range for a timestamp."),
    ({"type": "timestamp", "unit_from": "s"}, b"300000000000", "out of range for a timestamp."),
    ({"type": "timestamp", "unit_from": "s"}, b'"abc"', "which is no timestamp."),
    ("date", b'"2026-02-30"', "Column v is '2026-02-30', which is no date."),
    ("binary", b'"a"', "Column v is 'a', which is no base64."),
    ({"type": "binary", "binary": "hex"}, b'"0g"', "Column v is '0g', which is no hex."),
    ({"type": "int", "required": True}, b"null", "Column v is missing."),
]


@pytest.mark.parametrize(("column", "value", "said"), UNFIT, ids=str)
def test_a_value_that_does_not_fit_is_told(column: Any, value: bytes, said: str) -> None:
    found = decode(b'{"v":' + value + b"}", kind="json", columns={"v": column})
    assert found.rows == []
    assert said in found.broken[0]


def test_a_long_value_is_shortened() -> None:
    found = decode(b'{"v":"' + b"x" * 10**6 + b'"}', kind="json", columns={"v": "float"})
    assert found.broken[0] == f"Column v is '{'x' * 58}…, which is no number."


def test_floats_that_are_no_numbers_pass() -> None:
    found = decode(cbor2.dumps({"v": math.nan}), kind="cbor", columns={"v": "float"})
    assert math.isnan(found.rows[0]["v"])
    found = decode(b'{"v":"-inf"}', kind="json", columns={"v": "float32"})
    assert found.rows == [{"v": -math.inf}]


def test_the_unit_is_in_the_schema() -> None:
    made = decoder(kind="json", columns={"v": {"type": "float", "unit": "degC"}})
    assert made.schema.field("v").metadata == {b"unit": b"degC"}


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (
            {"type": "float", "unit_from": "bar", "unit": "degC"},
            "Column v: bar does not become degC: they",
        ),
        ({"type": "float", "unit_from": "dBm", "unit": "mW"}, "dBm does not become mW by a factor"),
        ({"type": "float", "unit_from": "quux", "unit": "m"}, "There is no unit quux"),
        ({"type": "float", "unit_from": "9**9**9**9", "unit": "m"}, "is not written as a unit"),
        ({"type": "timestamp", "time_zone": "Mars/Olympus"}, "There is no time zone"),
        ({"type": "int8", "default": 300}, "The default of the column v is 300, which is no int8"),
        ({"type": "int8", "path": "a..b"}, "has an empty key"),
    ],
)
def test_a_column_that_cannot_be_is_refused(column: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        decoder(kind="json", columns={"v": column})
