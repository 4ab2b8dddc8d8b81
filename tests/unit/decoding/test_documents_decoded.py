"""Documents: where the rows of a payload are, which keys count, and what is broken."""

from __future__ import annotations

from typing import Any

import cbor2
import msgspec
import pytest

from tests.unit.decoding.decode import decode

A = {"a": "int"}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"a":', "The payload is not JSON: it ends too early."),
        (b'{"a":1}x', "The payload is not JSON: trailing characters"),
        (b"{'a':1}", "The payload is not JSON: "),
        (b"\xef\xbb\xbf{}", "The payload is not JSON: it begins with a byte order mark"),
        (b'{"a":1,"b":"\xff"}', "The payload is not UTF-8 at byte 12."),
        (b'{"a":1,"b":NaN}', "The payload is not JSON: NaN is not JSON (byte 11)."),
        (b"[1]", "The payload is a list of 1 items, and not an object (many = true"),
        (b"1", "The payload is 1, and not an object."),
        (b"null", "The payload is null, and not an object."),
    ],
)
def test_a_payload_that_is_no_json_object_is_told(payload: bytes, said: str) -> None:
    found = decode(b'{"a":1}', payload, kind="json", columns=A)
    assert found.rows == [{"a": 1}]
    assert list(found.broken) == [1]
    assert found.broken[1].startswith(said)


def test_unknown_keys_are_ignored() -> None:
    assert decode(b'{"a":1,"z":[{}]}', kind="json", columns=A).rows == [{"a": 1}]


def test_unknown_keys_are_gathered_where_a_column_is_for_them() -> None:
    found = decode(b'{"a":1,"z":[{}]}', b'{"a":2}', b"{}", kind="json", columns=A, extra="rest")
    assert found.rows == [
        {"a": 1, "rest": '{"z":[{}]}'},
        {"a": 2, "rest": None},
        {"a": None, "rest": None},
    ]


@pytest.mark.parametrize("inner", [b"5", b"null", b"[1]", b'"x"', b"{}"])
def test_a_path_through_something_else_leads_to_nothing(inner: bytes) -> None:
    columns = {"v": {"type": "int", "path": "t.u.v"}, "a": "int"}
    found = decode(b'{"a":1,"t":' + inner + b"}", kind="json", columns=columns)
    assert found.rows == [{"v": None, "a": 1}]


def test_two_columns_may_look_into_one_value() -> None:
    columns = {
        "whole": {"type": "json", "path": "t"},
        "v": {"type": "int", "path": "t.v"},
        "first": {"type": "int", "path": "t.list.0"},
        "tenth": {"type": "int", "path": "t.list.9"},
    }
    found = decode(b'{"t":{"v":1,"list":[2,3]}}', kind="json", columns=columns)
    assert found.rows == [{"whole": '{"v":1,"list":[2,3]}', "v": 1, "first": 2, "tenth": None}]


def test_a_payload_that_is_one_value() -> None:
    found = decode(b"21.5", b'"x"', kind="json", columns={"v": {"type": "float", "path": "$"}})
    assert found.rows == [{"v": 21.5}]
    assert found.broken == {1: "Column v is 'x', which is no float64."}


def test_a_payload_that_is_a_list_of_values() -> None:
    columns = {"t": {"type": "float", "path": "0"}, "h": {"type": "int", "path": "1"}}
    found = decode(b"[21.5,48]", b"[1]", b"7", kind="json", columns=columns)
    assert found.rows == [{"t": 21.5, "h": 48}, {"t": 1.0, "h": None}]
    assert found.broken == {2: "The payload is 7, and not a list or object."}


def test_keys_with_dots_and_slashes_are_written_as_pointer() -> None:
    columns = {
        "dot": {"type": "int", "path": "/a.b/c"},
        "slash": {"type": "int", "path": "/d~1e/~0f"},
        "empty": {"type": "int", "path": "/g//h"},
    }
    payload = b'{"a.b":{"c":1},"d/e":{"~f":2},"g":{"":{"h":3}}}'
    assert decode(payload, kind="json", columns=columns).rows == [
        {"dot": 1, "slash": 2, "empty": 3}
    ]


@pytest.mark.parametrize("extra", ["", "rest"], ids=["quick", "whole"])
def test_a_list_is_many_rows_and_all_or_none_of_them(extra: str) -> None:
    payloads = b'[{"a":1},{"a":2}]', b'{"a":3}', b"[]", b'[{"a":4},{"a":"x"}]', b'[{"a":5},6]'
    found = decode(*payloads, kind="json", columns=A, many=True, extra=extra)
    assert [row["a"] for row in found.rows] == [1, 2, 3]
    assert found.sources == [0, 0, 1]
    assert found.broken == {
        3: "Column a is 'x', which is no int64.",
        4: "A row is 6, and not an object.",
    }


def test_rows_below_a_path() -> None:
    columns: dict[str, Any] = {"a": "int", "site": {"type": "string", "path": "$.site"}}
    found = decode(
        b'{"site":"x","r":{"list":[{"a":1},{"a":2}]}}',
        b'{"site":"y","r":{"list":{"a":3}}}',
        b'{"site":"z"}',
        kind="json",
        columns=columns,
        rows_path="r.list",
    )
    assert [tuple(row.values()) for row in found.rows] == [(1, "x"), (2, "x"), (3, "y")]
    assert found.broken == {2: "There is null at r.list instead of a list of rows."}


def test_more_rows_than_allowed_are_broken() -> None:
    found = decode(b'[{"a":1},{"a":2},{"a":3}]', kind="json", columns=A, many=True, rows_max=2)
    assert found.broken == {0: "The payload has 3 rows, more than rows_max allows."}


def test_the_last_of_two_equal_keys_counts_however_it_is_read() -> None:
    payload = b'{"a":1,"a":2}'
    assert decode(payload, kind="json", columns=A).rows == [{"a": 2}]
    assert decode(payload, kind="json", columns=A, extra="x").rows[0]["a"] == 2


def test_any_json_is_kept_as_it_was_written() -> None:
    found = decode(b'{"a": 1.10}', b"null", b"nul", b"\xff", b'"\\ud800"', kind="json")
    assert [row["value"] for row in found.rows] == ['{"a": 1.10}', "null"]
    assert sorted(found.broken) == [2, 3, 4]


def test_any_cbor_and_messagepack_become_json() -> None:
    value = {"a": [1, None, 2.5, b"\xff"], "b": {"c": True}}
    wanted = [{"value": '{"a":[1,null,2.5,"/w=="],"b":{"c":true}}'}]
    assert decode(cbor2.dumps(value), kind="cbor").rows == wanted
    assert decode(msgspec.msgpack.encode(value), kind="msgpack").rows == wanted
    extension = decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"\1")), kind="msgpack")
    assert extension.rows == [{"value": '{"ext":5,"data":"AQ=="}'}]


def test_maps_whose_keys_are_bytes_or_numbers() -> None:
    columns = {"t": "int", "n": {"type": "int", "path": "5"}}
    payload = msgspec.msgpack.encode({b"t": 1, 5: 2})
    assert decode(payload, kind="msgpack", columns=columns).rows == [{"t": 1, "n": 2}]


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("cbor", b"\x00\x00", "The payload is not CBOR: 1 bytes follow its value."),
        ("cbor", b"\xff", "The payload is not CBOR: "),
        ("cbor", b"\xd8\x1c\x80", "The payload has shared CBOR values"),
        ("cbor", b"\xd9\x01\x00\x80", "The payload has shared CBOR values"),
        ("cbor", cbor2.dumps(2**1100), "The payload has a CBOR number of more than 128 bytes."),
        ("msgpack", b"\xc0\xc0", "The payload is not MessagePack: trailing characters (byte 1)."),
        ("msgpack", b"\xc1", "The payload is not MessagePack: "),
        ("msgpack", b"\xa1\xff", "The payload has text that is not UTF-8."),
    ],
)
def test_a_payload_that_is_no_cbor_or_messagepack_is_told(
    kind: str, payload: bytes, said: str
) -> None:
    assert decode(payload, kind=kind).broken[0].startswith(said)


def test_bytes_follow_cbor_are_counted() -> None:
    found = decode(cbor2.dumps({"a": 1}) + b"\x00\x01", kind="cbor", columns=A)
    assert found.broken == {0: "The payload is not CBOR: 2 bytes follow its value."}


@pytest.mark.parametrize("skipped", [b"1e999", b"9" * 5000, b"-1e99999999999999999999"])
@pytest.mark.parametrize("neighbour", [b"{}", b'{"x": "\xff"}', b"no json", b"[]"])
@pytest.mark.parametrize("settings", [{}, {"many": True}])
def test_the_fate_of_a_message_is_the_same_beside_any_other(
    skipped: bytes, neighbour: bytes, settings: dict[str, Any]
) -> None:
    """A number that no column wants is skipped, or too large: the one or the other, always."""
    payload = b'{"a": 1, "x": %s}' % skipped
    alone = decode(payload, kind="json", columns={"a": "int"}, **settings)
    beside = decode(payload, neighbour, kind="json", columns={"a": "int"}, **settings)
    assert (beside.sources[:1] == [0], beside.broken.get(0)) == (
        alone.sources == [0],
        alone.broken.get(0),
    )


@pytest.mark.parametrize(
    ("value", "kind"), [('"%s"' % ("x" * 60_000), "string"), (str([1] * 20_000), "json")]
)
def test_a_value_beside_the_rows_is_not_repeated_to_gigabytes(value: str, kind: str) -> None:
    settings: dict[str, Any] = {
        "kind": "json",
        "rows_path": "r",
        "columns": {"g": {"type": kind, "path": "$.g"}, "n": "int"},
    }
    few, many = (
        f'{{"g": {value}, "r": [{",".join(["{}"] * count)}]}}'.encode() for count in (3, 20_000)
    )
    found = decode(few, b'{"g": "y", "r": [{"n": 1}, {"n": 2}]}', many, **settings)
    assert found.sources == [0, 0, 0, 1, 1]
    assert [row["n"] for row in found.rows] == [None, None, None, 1, 2]
    assert found.rows[4]["g"] == ("y" if kind == "string" else '"y"')
    assert found.broken == {2: "Column g has %s bytes, and 20000 rows would repeat them." % (
        60_000 if kind == "string" else 40_001
    )}  # fmt: skip


def test_a_value_beside_the_rows_breaks_its_message_only() -> None:
    columns = {"g": {"type": "int", "path": "$.g", "required": True}, "n": "int"}
    payloads = [b'{"g": "x", "r": [{}, {}]}', b'{"r": []}', b'{"r": [{}]}', b'{"g": 3, "r": [{}]}']
    found = decode(*payloads, kind="json", rows_path="r", columns=columns)
    assert found.broken == {
        0: "Column g is 'x', which is no int64.",
        2: "Column g is missing.",
    }
    assert (found.sources, found.rows) == ([3], [{"g": 3, "n": None}])
