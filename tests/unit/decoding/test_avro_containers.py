"""`avro` with `framing = "container"`: files with their own schema, whatever it is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decoding.avro_schema import parse_avro_schema
from penstock.decoding.avro_values import count_avro_values
from penstock.errors import ConfigError
from tests.unit.decoding.decode import decode, decoder, outcome

SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "temp_c", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
RECORDS = [{"id": n, "temp_c": n / 2 if n % 3 else None, "at": 1_768_910_740_000} for n in range(9)]
COLUMNS = {"id": "int", "temp_c": "float"}


def container(
    schema: Any = SCHEMA, records: Any = RECORDS, codec: str = "null", **options: Any
) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(schema), records, codec=codec, **options)
    return stream.getvalue()


def one(payload: bytes, **settings: Any) -> Any:
    return decode(payload, **{"kind": "avro", "framing": "container", **settings})


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_each_record_is_a_row(codec: str) -> None:
    found = one(container(codec=codec, sync_interval=10), columns=COLUMNS)
    assert found.rows == [{"id": it["id"], "temp_c": it["temp_c"]} for it in RECORDS]
    assert set(found.sources) == {0}


def test_without_columns_a_record_is_json_text() -> None:
    found = one(container(records=RECORDS[:1]))
    assert json.loads(found.rows[0]["value"])["id"] == 0


def test_records_are_resolved_to_the_schema_that_is_given(tmp_path: Path) -> None:
    """Avro 1.12, Schema Resolution: a field that is new to the writer has its default."""
    wanted = {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "id", "type": "double"},
            {"name": "unit", "type": "string", "default": "degC"},
        ],
    }
    file = tmp_path / "wanted.avsc"
    file.write_text(json.dumps(wanted))
    found = one(container(records=RECORDS[:2]), schema_file=str(file))
    assert found.rows == [{"id": 0.0, "unit": "degC"}, {"id": 1.0, "unit": "degC"}]
    wanted["fields"] = [{"name": "other", "type": "long"}]
    file.write_text(json.dumps(wanted))
    assert "cannot be read" in one(container(), schema_file=str(file)).broken[0]


def test_a_small_file_does_not_become_many_values() -> None:
    """A byte is sixteen values by its schema, and a thousand bytes are one when compressed."""
    nothing = [{"name": f"n{n}", "type": "null"} for n in range(13)]
    item = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "boolean"}, *nothing]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": item}}],
    }
    one_item = {"b": False, **{field["name"]: None for field in nothing}}
    few, many = (
        container(schema, [{"a": [one_item] * count}], codec="deflate") for count in (100, 20_000)
    )
    assert len(many) < 1500
    found = decode(few, many, kind="avro", framing="container", values_max=100_000)
    assert found.sources == [0]
    assert found.broken == {1: "The payload has more values than values_max allows (100000)."}


@given(
    records=st.lists(
        st.fixed_dictionaries(
            {
                "u": st.none() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
                "m": st.dictionaries(st.text(max_size=3), st.booleans(), max_size=4),
                "l": st.lists(st.floats(), max_size=4),
                "b": st.binary(max_size=200),
            }
        ),
        max_size=5,
    )
)
def test_values_are_counted_as_they_are_read(records: list[dict[str, Any]]) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "u", "type": ["null", "long", "string"]},
            {"name": "m", "type": {"type": "map", "values": "boolean"}},
            {"name": "l", "type": {"type": "array", "items": "double"}},
            {"name": "b", "type": "bytes"},
        ],
    }
    stream = io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    known = parse_avro_schema(json.dumps(schema), "schema")
    wanted = sum(5 + 2 * len(record["m"]) + len(record["l"]) for record in records)
    assert count_avro_values(stream.getvalue(), known, len(records), 10**6) == wanted


def test_a_file_without_records_has_no_rows() -> None:
    found = one(container(records=[]), columns=COLUMNS)
    assert (found.rows, found.broken) == ([], {})


def with_schema(schema: Any, blocks: bytes = b"") -> bytes:
    """A container file with a header of a schema that no writer would take."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    stream = io.BytesIO(b"Obj\x01")
    stream.seek(4)
    header = {"avro.schema": text, "avro.codec": b"null"}
    fastavro.schemaless_writer(stream, {"type": "map", "values": "bytes"}, header)
    return stream.getvalue() + bytes(16) + blocks


def records_of_records(depth: int) -> Any:
    """A record of two of two of two … of nothing: 2 ** depth values without a byte."""
    schema: Any = {"type": "record", "name": "R0", "fields": []}
    for number in range(1, depth):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    return schema


WHOLE = container(codec="deflate")
LONG_NAME = {"type": "enum", "name": "E", "symbols": ["S" * 101]}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"Obj\x01", "ends too early"),
        (WHOLE[:-1], "ends too early"),
        (WHOLE[:-16] + bytes(16), "without its sync marker"),
        (WHOLE + b"\x02", "ends too early"),
        (WHOLE + b"\xff" * 20, "more than 64 bits"),
        (WHOLE + b"\x02\x01" + bytes(16), "negative length"),
        (container(records=[{"id": 1, "temp_c": 2, "at": 3}])[:-17] + b"\xff" * 17, "Avro"),
        (with_schema(b"{"), "is no Avro schema"),
        (with_schema(b"[" * 100_000), "nested too deeply"),
        (with_schema({"type": "array", "items": "null"}), "take no bytes"),
        (with_schema(records_of_records(40)), "records of nothing"),
        (with_schema(LONG_NAME), "a name of more than 100 characters"),
        (with_schema(b'"' + b"x" * 2**18 + b'"'), "longer than 262144 bytes"),
        (with_schema("null", b"\xfe\xff\xff\xff\x0f\x00" + bytes(16)), "rows_max"),
        (with_schema("long", b"\x02\x04\x02\x02" + bytes(16)), "bytes after its records"),
    ],
)
def test_a_payload_that_is_no_such_file_is_told(payload: bytes, said: str) -> None:
    found = outcome(decoder(kind="avro", framing="container", columns=COLUMNS), [payload, WHOLE])
    assert said in found.broken[0]
    assert len(found.rows) == len(RECORDS)


def test_a_codec_that_is_not_read_is_named() -> None:
    payload = container().replace(b"avro.codec\x08null", b"avro.codec\x08lz99")
    assert "is compressed with 'lz99'" in one(payload, columns=COLUMNS).broken[0]


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_a_payload_that_expands_to_too_much_is_broken(codec: str) -> None:
    schema = {"type": "record", "name": "Z", "fields": [{"name": "z", "type": "bytes"}]}
    payload = container(schema, [{"z": bytes(10**6)}], codec)
    assert len(payload) < 10_000
    found = one(payload, columns={"z": "binary"}, expanded_bytes_max=10**5)
    assert found.broken == {0: "The payload expands to more than expanded_bytes_max allows."}


@given(st.binary(max_size=60), st.integers(0, len(WHOLE)))
def test_a_file_with_other_bytes_in_it_is_rows_or_broken(other: bytes, place: int) -> None:
    payload = WHOLE[:place] + other + WHOLE[place + len(other) :]
    found = one(payload, columns=COLUMNS)
    assert bool(found.rows) != bool(found.broken) or payload == WHOLE or not found.sources


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"framing": "none"}, "the decoder avro needs schema_file"),
        ({"framing": "container", "rows_path": "a", "columns": COLUMNS}, "leave out rows_path"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decoder(kind="avro", **settings)


def test_a_schema_file_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.avsc"
    file.write_text("{")
    with pytest.raises(ConfigError, match="is no Avro schema"):
        decoder(kind="avro", framing="container", schema_file=str(file))
