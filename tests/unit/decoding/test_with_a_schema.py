"""`protobuf` and `avro`: columns from a descriptor or schema, chosen ones, and what is broken."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import fastavro.schema
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from penstock.errors import ConfigError
from tests.unit.decoding.decode import decode, decoder

FIELD = descriptor_pb2.FieldDescriptorProto
MOMENT = datetime(2026, 1, 20, 12, tzinfo=UTC)


def reading_descriptor() -> descriptor_pb2.FileDescriptorSet:
    """plant.Reading, and plant.Batch with a list of them, as protoc would describe them."""
    file = descriptor_pb2.FileDescriptorProto(name="plant.proto", package="plant", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="IDLE", number=0)
    state.value.add(name="RUNNING", number=1)
    place = file.message_type.add(name="Place")
    place.field.add(name="line", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    reading = file.message_type.add(name="Reading")
    fields: list[tuple[str, Any, str]] = [
        ("id", FIELD.TYPE_UINT32, ""),
        ("value", FIELD.TYPE_DOUBLE, ""),
        ("state", FIELD.TYPE_ENUM, ".plant.State"),
        ("place", FIELD.TYPE_MESSAGE, ".plant.Place"),
        ("at", FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        ("raw", FIELD.TYPE_BYTES, ""),
        ("total", FIELD.TYPE_UINT64, ""),
    ]
    for number, (name, kind, type_name) in enumerate(fields, 1):
        field = reading.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
        if type_name:
            field.type_name = type_name
    reading.field.add(name="tags", number=9, type=FIELD.TYPE_STRING, label=FIELD.LABEL_REPEATED)
    batch = file.message_type.add(name="Batch")
    batch.field.add(name="site", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    batch.field.add(
        name="readings",
        number=2,
        type=FIELD.TYPE_MESSAGE,
        type_name=".plant.Reading",
        label=FIELD.LABEL_REPEATED,
    )
    found = descriptor_pb2.FileDescriptorSet()
    timestamp: Any = timestamp_pb2.DESCRIPTOR
    timestamp.CopyToProto(found.file.add())
    found.file.append(file)
    return found


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("protobuf") / "plant.desc"
    file.write_bytes(reading_descriptor().SerializeToString())
    return str(file)


def message(name: str, **fields: Any) -> bytes:
    pool: Any = descriptor_pool.DescriptorPool()
    for file in reading_descriptor().file:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return bytes(made(**fields).SerializeToString())


READING: dict[str, Any] = {
    "id": 7,
    "value": 21.5,
    "state": 1,
    "place": {"line": "l1"},
    "raw": b"\xff",
    "total": 2**64 - 1,
    "tags": ["a", "b"],
}


def test_every_field_of_a_protobuf_message_is_a_column(descriptor: str) -> None:
    payload = message("plant.Reading", at=MOMENT, **READING)
    found = decode(payload, b"", kind="protobuf", descriptor=descriptor, message="plant.Reading")
    assert found.rows[0] == {
        "id": 7,
        "value": 21.5,
        "state": "RUNNING",
        "place": '{"line":"l1"}',
        "at": MOMENT,
        "raw": b"\xff",
        "total": Decimal(2**64 - 1),
        "tags": '["a","b"]',
    }
    assert found.rows[1] == {
        "id": 0,
        "value": 0.0,
        "state": "IDLE",
        "place": None,
        "at": None,
        "raw": b"",
        "total": Decimal(0),
        "tags": "[]",
    }


def test_columns_of_a_protobuf_message_may_be_chosen(descriptor: str) -> None:
    settings = {"kind": "protobuf", "descriptor": descriptor, "message": "plant.Reading"}
    columns = {"line": {"type": "string", "path": "place.line"}, "value": "float32"}
    found = decode(message("plant.Reading", **READING), b"", **settings, columns=columns)
    assert found.rows == [{"line": "l1", "value": 21.5}, {"line": None, "value": 0.0}]


def test_a_list_in_a_protobuf_message_is_many_rows(descriptor: str) -> None:
    payload = message("plant.Batch", site="s", readings=[{"id": 1}, {"id": 2}])
    settings = {"kind": "protobuf", "descriptor": descriptor, "message": "plant.Batch"}
    columns = {"site": {"type": "string", "path": "$.site"}, "id": "int32"}
    found = decode(payload, b"", **settings, columns=columns, rows_path="readings")
    assert found.rows == [{"site": "s", "id": 1}, {"site": "s", "id": 2}]
    assert found.sources == [0, 0]


def test_a_payload_that_is_no_protobuf_message_is_told(descriptor: str) -> None:
    settings = {"kind": "protobuf", "descriptor": descriptor, "message": "plant.Reading"}
    moment = message("plant.Reading", at={"seconds": 2**60})
    found = decode(b"\x0a", b'{"a":1}', moment, message("plant.Reading"), **settings)
    assert found.broken == {
        0: "The payload is not a Protobuf message plant.Reading.",
        1: "The payload is not a Protobuf message plant.Reading.",
        2: "Column at is '1152921504606846976 s', which is no timestamp.",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"message": "plant.Writing"}, "There is no message plant.Writing in"),
        ({"descriptor": "/nowhere"}, "The descriptor set /nowhere cannot be read"),
        ({"descriptor": __file__}, "is no descriptor set as protoc writes it"),
        ({"columns": {"x": "int"}}, "There is no field 'x' in plant.Reading"),
        ({"columns": {"x": {"type": "int", "path": "id.x"}}}, "There is no field 'x' in a value"),
        ({"columns": {"id": "int"}, "rows_path": "tags"}, "which is no list of messages"),
    ],
)
def test_a_descriptor_that_does_not_fit_is_refused(
    descriptor: str, change: dict[str, Any], said: str
) -> None:
    settings = {"kind": "protobuf", "descriptor": descriptor, "message": "plant.Reading"} | change
    with pytest.raises(ConfigError, match=said):
        decoder(**settings)


SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "value", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["IDLE", "RUN"]}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "line", "type": "string"}],
            },
        },
        {"name": "list", "type": {"type": "array", "items": "long"}},
        {"name": "either", "type": ["null", "long", "string"]},
        {"name": "before", "type": ["null", "State"]},
    ],
}
DATUM: dict[str, Any] = {
    "id": 7,
    "value": None,
    "at": MOMENT,
    "state": "RUN",
    "price": Decimal("1.50"),
    "place": {"line": "l1"},
    "list": [1, 2],
    "either": "x",
    "before": "IDLE",
}


def avro(datum: object, schema: Any = SCHEMA) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), datum)
    return stream.getvalue()


def written(tmp_path: Path, schema: Any) -> str:
    file = tmp_path / "schema.avsc"
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return str(file)


def test_every_field_of_an_avro_record_is_a_column(tmp_path: Path) -> None:
    made = decode(avro(DATUM), kind="avro", schema_file=written(tmp_path, SCHEMA))
    assert made.rows == [
        DATUM | {"place": '{"line":"l1"}', "list": "[1,2]", "either": '"x"'},
    ]
    schema = decoder(kind="avro", schema_file=written(tmp_path, SCHEMA)).schema
    assert [str(field.type) for field in schema] == [
        "int32",
        "double",
        "timestamp[us, tz=UTC]",
        "string",
        "decimal128(9, 2)",
        *["string"] * 4,
    ]


def test_columns_of_an_avro_record_may_be_chosen(tmp_path: Path) -> None:
    found = decode(
        avro(DATUM),
        kind="avro",
        schema_file=written(tmp_path, SCHEMA),
        columns={"line": {"type": "string", "path": "place.line"}},
    )
    assert found.rows == [{"line": "l1"}]
    found = decode(
        avro(DATUM),
        kind="avro",
        schema_file=written(tmp_path, SCHEMA),
        columns={"n": {"type": "int", "path": "$"}},
        rows_path="list",
    )
    assert found.rows == [{"n": 1}, {"n": 2}]


def test_an_avro_value_that_is_no_record_becomes_json(tmp_path: Path) -> None:
    schema = {"type": "map", "values": "long"}
    found = decode(avro({"a": 1}, schema), kind="avro", schema_file=written(tmp_path, schema))
    assert found.rows == [{"value": '{"a":1}'}]


def test_single_objects_of_avro_carry_their_schemas_fingerprint(tmp_path: Path) -> None:
    text = fastavro.schema.to_parsing_canonical_form(SCHEMA)
    fingerprint = bytes.fromhex(fastavro.schema.fingerprint(text, "CRC-64-AVRO"))
    found = decode(
        b"\xc3\x01" + fingerprint + avro(DATUM),
        avro(DATUM),
        b"\xc3\x01" + bytes(8) + avro(DATUM),
        b"",
        kind="avro",
        schema_file=written(tmp_path, SCHEMA),
        framing="single_object",
    )
    assert found.sources == [0]
    assert found.broken == {
        1: "The payload is no single object of Avro, which begins with C3 01.",
        2: "The payload has another schema's fingerprint, 0000000000000000.",
    }, "an empty payload is not broken"


@pytest.mark.parametrize(
    "payload",
    [avro(DATUM)[:-1], avro(DATUM) + b"\0", b"\xff" * 40, b"\x0e\x08"],
)
def test_a_payload_that_is_no_avro_of_the_schema_is_told(payload: bytes, tmp_path: Path) -> None:
    found = decode(payload, avro(DATUM), kind="avro", schema_file=written(tmp_path, SCHEMA))
    assert found.sources == [1]
    assert found.broken[0].startswith("The payload is not Avro of this schema: ")


LIST_OF_ITSELF = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "is no Avro schema"),
        ({"type": "recrd"}, "is no Avro schema"),
        (LIST_OF_ITSELF, "contains itself"),
        ({"type": "array", "items": "null"}, "which take no bytes"),
        ({"type": "map", "values": {"type": "array", "items": NOTHING}}, "which take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
    ],
)
def test_an_avro_schema_that_lets_bytes_become_much_is_refused(
    schema: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        decoder(kind="avro", schema_file=written(tmp_path, schema))
