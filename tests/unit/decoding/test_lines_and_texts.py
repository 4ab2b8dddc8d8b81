"""`csv`, `text` and `raw`."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from tests.unit.decoding.decode import decode, decoder

AB = {"a": "int", "b": "string"}


@pytest.mark.parametrize(
    ("payload", "rows"),
    [
        (b"1,x", [(1, "x")]),
        (b"1,x\n", [(1, "x")]),
        (b"1,x\r\n\r\n2,y\r\n", [(1, "x"), (2, "y")]),
        (b'1,"x,\n""y"""\n2,', [(1, 'x,\n"y"'), (2, None)]),
        (b"1,\x0bx\xe2\x80\xa8", [(1, "\x0bx\u2028")]),
        (b"\xef\xbb\xbf1,x", [(1, "x")]),
        (b"", []),
        (b"\n\n", []),
    ],
)
def test_lines_are_rows(payload: bytes, rows: list[tuple[object, ...]]) -> None:
    found = decode(payload, kind="csv", columns=AB)
    assert [tuple(row.values()) for row in found.rows] == rows
    assert found.broken == {}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"1", "Line 1 is of 1 fields instead of 2."),
        (b"1,x\n1,x,y", "Line 2 is of 3 fields instead of 2."),
        (b'1,"x', "The payload is not csv after line 0: unexpected end of data."),
        (b"x,y", "Column a is 'x', which is no int64."),
        (b"\xff", "The payload is not UTF-8 at byte 0."),
        (b"1,x\n2,x\n3,x", "The payload has more rows than rows_max allows (2)."),
    ],
)
def test_a_payload_that_is_no_csv_is_told(payload: bytes, said: str) -> None:
    found = decode(b"7,z", payload, kind="csv", columns=AB, rows_max=2)
    assert found.rows == [{"a": 7, "b": "z"}]
    assert found.broken == {1: said}


@given(text=st.text(alphabet="ab,;\r\n\0\x0b ", max_size=12))
def test_lines_without_quotes_are_what_pythons_csv_makes_of_them(text: str) -> None:
    wanted = [fields for fields in csv.reader(io.StringIO(text, newline=""), strict=True) if fields]
    columns = {f"c{number}": "string" for number in range(3)}
    found = decode(text.encode(), kind="csv", columns=columns)
    if found.broken:
        assert any(len(fields) != 3 for fields in wanted)
    else:
        rows = [[value or "" for value in row.values()] for row in found.rows]
        assert rows == wanted


def test_columns_are_found_by_the_header() -> None:
    columns = {"a": "int", "other": {"type": "string", "path": "B b"}, "c": "int"}
    found = decode(
        b"x\tB b\ta\n9\tq\t1\n", kind="csv", delimiter="\t", header=True, columns=columns
    )
    assert found.rows == [{"a": 1, "other": "q", "c": None}]


def test_a_column_that_the_header_lacks_may_be_required() -> None:
    columns = {"a": {"type": "int", "required": True}}
    found = decode(b"b\n1\n", kind="csv", header=True, columns=columns)
    assert found.broken == {0: "Column a is missing."}


def test_a_csv_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="has a path; its columns are in the order"):
        decoder(kind="csv", columns={"a": {"type": "int", "path": "x"}})
    with pytest.raises(ConfigError, match="cannot be the delimiter"):
        decoder(kind="csv", columns=AB, delimiter='"')


def test_text_is_one_value() -> None:
    found = decode(b" 21.5\n", b"", b"warm", kind="text", columns={"t": "float"})
    assert found.rows == [{"t": 21.5}, {"t": None}]
    assert found.broken == {2: "Column t is 'warm', which is no float64."}


def test_text_that_stays_text_is_kept_as_it_is() -> None:
    assert decode(b" a\n", b"", kind="text").rows == [{"value": " a\n"}, {"value": ""}]


@pytest.mark.parametrize(
    ("encoding", "payload", "said"),
    [
        ("utf-8", b"a\xff", "The payload is not UTF-8 at byte 1."),
        ("utf-16", b"\xff\xfea", "The payload is not utf-16 at byte 2."),
        ("ascii", b"\xe4", "The payload is not ascii at byte 0."),
    ],
)
def test_text_in_another_encoding_is_told(encoding: str, payload: bytes, said: str) -> None:
    assert decode(payload, kind="text", encoding=encoding).broken == {0: said}


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "rot13", "hex", "\0"])
def test_a_name_that_is_no_encoding_of_text_is_refused(encoding: str) -> None:
    with pytest.raises(ConfigError, match="There is no encoding"):
        decoder(kind="text", encoding=encoding)


def test_raw_is_what_it_is() -> None:
    found = decode(b"\xff", b"", kind="raw", columns={"body": "binary"})
    assert found.rows == [{"body": b"\xff"}, {"body": b""}]
