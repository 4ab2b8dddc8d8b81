"""`sparkplug_b`: a row for each metric, whatever its type."""

from __future__ import annotations

import gzip
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.decoding.decode import decode
from tests.unit.decoding.sparkplug_payloads import PAYLOAD, birth, metric, payload

SENT = datetime(2026, 1, 20, 12, 5, 40, 123000, tzinfo=UTC)
MEASURED = datetime(2026, 1, 20, 12, 5, 40, tzinfo=UTC)


def rows_of(*payloads: bytes) -> list[dict[str, Any]]:
    found = decode(*payloads, kind="sparkplug_b")
    assert found.broken == {}
    return [{name: value for name, value in row.items() if value is not None} for row in found.rows]


def row(**differences: Any) -> dict[str, Any]:
    common = {
        "payload_timestamp": SENT,
        "seq": 3,
        "timestamp": MEASURED,
        "is_historical": False,
        "is_transient": False,
        "is_null": False,
    }
    return common | differences


VALUES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Int8", {"int_value": 2**32 - 1}, {"value_int": -1, "value_double": -1.0}),
    ("Int8", {"int_value": 0xFF}, {"value_int": -1, "value_double": -1.0}),
    ("Int32", {"int_value": 2**31}, {"value_int": -(2**31), "value_double": -(2.0**31)}),
    ("Int64", {"long_value": 2**64 - 5}, {"value_int": -5, "value_double": -5.0}),
    ("UInt32", {"long_value": 2**32 - 1}, {"value_int": 2**32 - 1, "value_double": 2.0**32 - 1}),
    (
        "UInt64",
        {"long_value": 2**64 - 1},
        {"value_string": str(2**64 - 1), "value_double": 2.0**64},
    ),
    ("Float", {"float_value": 0.5}, {"value_double": 0.5}),
    ("Double", {"double_value": -1e300}, {"value_double": -1e300}),
    ("Boolean", {"boolean_value": False}, {"value_bool": False}),
    ("String", {"string_value": ""}, {"value_string": ""}),
    ("UUID", {"string_value": "0-0"}, {"value_string": "0-0"}),
    ("DateTime", {"long_value": 1_768_910_740_000}, {"value_timestamp": MEASURED}),
    ("Bytes", {"bytes_value": b"\xff"}, {"value_binary": b"\xff"}),
    ("File", {"bytes_value": b""}, {"value_binary": b""}),
    ("Int8Array", {"bytes_value": b"\xef\x7b"}, {"value_json": "[-17,123]"}),
    ("UInt16Array", {"bytes_value": b"\x1e\x00\x6c\xfd"}, {"value_json": "[30,64876]"}),
    ("DoubleArray", {"bytes_value": bytes(6) + b"\xf0\x3f"}, {"value_json": "[1.0]"}),
    ("DateTimeArray", {"bytes_value": b"\x01" + bytes(7)}, {"value_json": "[1]"}),
    (
        "BooleanArray",  # the example of Sparkplug 3.0.0 §6.4.17
        {"bytes_value": b"\x0c\x00\x00\x00\x34\xd0"},
        {
            "value_json": "[false,false,true,true,false,true,false,false,true,true,false,true]",
        },
    ),
    ("StringArray", {"bytes_value": b"ABC\0hello\0"}, {"value_json": '["ABC","hello"]'}),
    (
        "DataSet",
        {
            "dataset_value": {
                "num_of_columns": 2,
                "columns": ["a", "b"],
                "types": [3, 12],
                "rows": [{"elements": [{"int_value": 2**32 - 1}, {"string_value": "x"}]}],
            }
        },
        {"value_json": '[{"a":-1,"b":"x"}]'},
    ),
    (
        "Template",
        {
            "template_value": {
                "template_ref": "Motor",
                "is_definition": False,
                "metrics": [{"name": "rpm", "datatype": 3, "int_value": 9}],
                "parameters": [{"name": "size", "type": 12, "string_value": "L"}],
            }
        },
        {
            "value_json": '{"template_ref":"Motor","version":null,"is_definition":false,'
            '"metrics":{"rpm":9},"parameters":{"size":"L"}}'
        },
    ),
]


@pytest.mark.parametrize(("datatype", "value", "columns"), VALUES, ids=str)
def test_each_type_has_its_column(
    datatype: str, value: dict[str, Any], columns: dict[str, Any]
) -> None:
    found = rows_of(payload(metric("m", datatype, **value)))
    assert found == [row(name="m", datatype=datatype, **columns)]


def test_a_birth_is_a_row_for_each_metric() -> None:
    found = decode(birth(), kind="sparkplug_b")
    assert [one["name"] for one in found.rows] == [
        "bdSeq",
        "Node Control/Rebirth",
        "Temperature",
        "Offset",
        "Serial",
        "Started",
        "Levels",
    ]
    assert found.rows[2]["alias"] == 5
    assert {one["seq"] for one in found.rows} == {0}


def test_data_by_alias_keep_the_alias() -> None:
    found = rows_of(payload({"alias": 5, "float_value": 22.0}))
    wanted = row(alias=5, value_double=22.0)
    del wanted["timestamp"]
    assert found == [wanted]


def test_null_and_history_are_told() -> None:
    first = metric("m", "Float", is_null=True, is_historical=True)
    second = metric("m", "Float", is_transient=True, float_value=1.0)
    found = rows_of(payload(first, second))
    assert found == [
        row(name="m", datatype="Float", is_null=True, is_historical=True),
        row(name="m", datatype="Float", is_transient=True, value_double=1.0),
    ]


def test_properties_and_metadata_are_json() -> None:
    properties = {
        "keys": ["unit", "gone"],
        "values": [{"type": 12, "string_value": "C"}, {"type": 3, "is_null": True}],
    }
    one = metric("m", "Float", properties=properties, metadata={"description": "d"})
    found = rows_of(payload(one))[0]
    assert found["properties"] == '{"unit":"C","gone":null}'
    assert found["metadata"] == '{"description":"d"}'


def test_a_payload_without_metrics_is_a_row() -> None:
    assert rows_of(payload()) == [{"payload_timestamp": SENT, "seq": 3}]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["GZIP", "DEFLATE"])
def test_compressed_payloads_are_expanded(compress: Any) -> None:
    inner = payload(metric("m", "Float", float_value=1.0))
    outer = PAYLOAD(uuid="SPBV1.0_COMPRESSED", body=compress(inner)).SerializeToString()
    assert rows_of(outer) == rows_of(inner)


def compressed(body: bytes) -> bytes:
    return bytes(PAYLOAD(uuid="SPBV1.0_COMPRESSED", body=body).SerializeToString())


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"online":true}', "The payload is not Sparkplug B."),
        (b"\x12\x05ab", "The payload is not Sparkplug B."),
        (compressed(b"plain"), "The compressed body is neither gzip nor zlib."),
        (compressed(gzip.compress(b"x" * 99, mtime=0)[:-1]), "The compressed body ends too early."),
        (
            compressed(gzip.compress(bytes(10**7), mtime=0)),
            "The compressed body is longer than 1000000 bytes.",
        ),
        (payload({"name": "m", "datatype": 23, "bytes_value": b"1"}), "A Int16Array is cut short"),
        (payload({"name": "m", "datatype": 32, "bytes_value": b"\xff" * 4}), "A BooleanArray is"),
        (payload({"name": "m", "datatype": 33, "bytes_value": b"a"}), "A StringArray is cut short"),
        (
            payload({"name": "m"}, timestamp=2**63),
            "Column payload_timestamp is 9223372036854775808",
        ),
        (payload({"alias": 2**63}), "Column alias is 9223372036854775808, which is out of range"),
        (payload({}, {}, {}, {}), "The payload has 4 metrics, more than rows_max."),
    ],
)
def test_a_broken_payload_is_told(payload: bytes, said: str) -> None:
    limits = {"rows_max": 3, "expanded_bytes_max": 1_000_000}
    found = decode(payload, kind="sparkplug_b", **limits)
    assert found.rows == []
    assert found.broken[0].startswith(said)


def test_a_data_set_does_not_repeat_long_names_to_gigabytes() -> None:
    def of(rows: int) -> bytes:
        data = {
            "columns": ["n" * 60_000],
            "types": [1],
            "rows": [{"elements": [{"int_value": 1}]}] * rows,
        }
        return payload({"name": "x", "datatype": 16, "dataset_value": data})

    found = decode(of(2), of(10_000), kind="sparkplug_b")
    assert found.sources == [0]
    assert found.broken == {
        1: "A DataSet has names of 60000 characters, and 10000 rows would repeat them."
    }


@pytest.mark.parametrize("is_compressed", [False, True])
def test_more_metrics_than_allowed_are_counted_before_they_are_read(is_compressed: bool) -> None:
    """Eight million empty metrics are 16 KB when compressed, and took a gigabyte when read."""
    made = b"\x12\0" * 2000
    if is_compressed:
        made = bytes(
            PAYLOAD(uuid="SPBV1.0_COMPRESSED", body=gzip.compress(made)).SerializeToString()
        )
    found = decode(made, kind="sparkplug_b", rows_max=1999)
    assert found.broken == {0: "The payload has 2000 metrics, more than rows_max."}
    assert len(decode(made, kind="sparkplug_b", rows_max=2000).rows) == 2000
