"""Payloads that name their schema by its id in a registry: a real one over HTTP, on loopback."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from penstock.config.table import TableDefinition
from penstock.decoding.decoder import DecodingPostponed
from penstock.errors import ConfigError
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from tests.support.places import places_in
from tests.support.schema_registry import SchemaRegistry, schema_registry
from tests.unit.decoding.decode import Outcome, decode, decoder, outcome
from tests.unit.decoding.inference.inferring import sample
from tests.unit.decoding.test_with_a_schema import MOMENT, READING, message, reading_descriptor

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "id", "type": "int"}, {"name": "temp_c", "type": "float"}],
}
SECOND: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "temp_c", "type": "double"},
        {"name": "unit", "type": "string", "default": "degC"},
    ],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as served:
        yield served


@pytest.fixture
def settings(registry: SchemaRegistry, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def of(kind: str, subject: str = "", **others: Any) -> dict[str, Any]:
        place = {"url": registry.url, "subject": subject, "cache_dir": str(tmp_path / "schemas")}
        return {"kind": kind, "framing": "confluent", "registry": place, **others}

    return of


Settings = Callable[..., dict[str, Any]]


def framed(number: int, datum: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + datum


def avro(number: int, schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return framed(number, stream.getvalue())


def descriptors() -> dict[str, str]:
    """The files of plant.Reading, as the registry has them."""
    return {
        file.name: base64.b64encode(file.SerializeToString()).decode()
        for file in reading_descriptor().file
    }


def test_each_payload_is_read_by_its_own_schema(
    registry: SchemaRegistry, settings: Settings
) -> None:
    old = registry.register("readings-value", json.dumps(FIRST))
    new = registry.register("readings-value", json.dumps(SECOND))
    payloads = [
        avro(old, FIRST, {"id": 1, "temp_c": 21.5}),
        avro(new, SECOND, {"id": 2**40, "temp_c": 22.5, "unit": "K"}),
    ]
    found = decode(*payloads, **settings("avro", "readings-value"))
    assert found.rows == [
        {"id": 1, "temp_c": 21.5, "unit": "degC"},
        {"id": 2**40, "temp_c": 22.5, "unit": "K"},
    ]
    chosen = decode(*payloads, **settings("avro", columns={"unit": "string", "id": "int"}))
    assert [row["unit"] for row in chosen.rows] == [None, "K"]
    text = decode(payloads[0], **settings("avro"))
    assert text.rows == [{"value": '{"id":1,"temp_c":21.5}'}]


def test_a_schema_may_refer_to_others(registry: SchemaRegistry, settings: Settings) -> None:
    place = {"type": "record", "name": "plant.Place", "fields": [{"name": "line", "type": "int"}]}
    registry.register("place", json.dumps(place))
    outer = {
        "type": "record",
        "name": "At",
        "fields": [{"name": "place", "type": "plant.Place"}],
    }
    number = registry.register("at", json.dumps(outer), "AVRO", ("plant.Place", "place", 1))
    payload = framed(number, b"\x0e")
    columns = {"line": {"type": "int", "path": "place.line"}}
    assert decode(payload, **settings("avro", columns=columns)).rows == [{"line": 7}]


def test_a_payload_without_a_known_id_is_broken_and_says_so(
    registry: SchemaRegistry, settings: Settings
) -> None:
    number = registry.register("readings-value", json.dumps(FIRST))
    other = registry.register("other", "{}", "JSON")
    good = avro(number, FIRST, {"id": 1, "temp_c": 1})
    payloads = [
        b"\0",
        b"\0\0",
        b"\1" + good[1:],
        framed(77, good[5:]),
        framed(other, good[5:]),
        good,
    ]
    found = decode(*payloads, **settings("avro", columns={"id": "int"}))
    assert found.rows == [{"id": 1}]
    no_frame = (
        "The payload does not begin with a zero byte and the four of a schema's id, as those of a"
        " schema registry do."
    )
    assert found.broken == {
        0: no_frame,
        1: no_frame,
        2: no_frame,
        3: f"The registry {registry.url} knows no schema with the id 77.",
        4: f"The schema with the id {other} is of the kind JSON, and not of AVRO.",
    }


def test_an_id_is_asked_for_once_and_an_unknown_one_not_again_at_once(
    registry: SchemaRegistry, settings: Settings
) -> None:
    number = registry.register("readings-value", json.dumps(FIRST))
    good = avro(number, FIRST, {"id": 1, "temp_c": 1})
    decode(*[good] * 10, *[framed(77, b"")] * 10, **settings("avro", columns={"id": "int"}))
    assert sorted(registry.asked) == [f"/schemas/ids/{number}", "/schemas/ids/77"]


def test_a_sender_that_makes_ids_up_has_no_request_for_each_of_them(
    registry: SchemaRegistry, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.decoding.registry.MISSES_MAX", 5)
    number = registry.register("readings-value", json.dumps(FIRST))
    good = avro(number, FIRST, {"id": 1, "temp_c": 1})
    made_up = [framed(one, b"") for one in range(100, 200)]
    known = decoder(**settings("avro", columns={"id": "int"}))
    found = outcome(known, [good, *made_up, good])
    assert found.sources == [0, 101]
    assert len(registry.asked) == 6
    assert "knows no schema with the id 100" in found.broken[1]
    assert found.broken[100].startswith(
        "The id 199 was not requested: in a minute, 5 ids were requested"
    )


def test_a_schema_asked_for_once_is_known_when_the_registry_is_away(
    settings: Settings, registry: SchemaRegistry
) -> None:
    number = registry.register("readings-value", json.dumps(FIRST))
    later = registry.register("readings-value", json.dumps(SECOND))
    good = avro(number, FIRST, {"id": 1, "temp_c": 1})
    with_subject = settings("avro", "readings-value")
    assert decode(good, **with_subject).rows == [{"id": 1, "temp_c": 1.0, "unit": "degC"}]
    registry.fails_with = 503
    known = decoder(**with_subject)
    assert outcome(known, [good]).rows == [{"id": 1, "temp_c": 1.0, "unit": "degC"}]
    unknown = avro(later, SECOND, {"id": 2, "temp_c": 2, "unit": "K"})
    with pytest.raises(
        DecodingPostponed,
        match=f"{registry.url} does not say what /schemas/ids/{later} is: it answers 503",
    ):
        outcome(known, [good, unknown])
    registry.fails_with = 0
    assert [row["id"] for row in outcome(known, [good, unknown]).rows] == [1, 2]


def test_a_registry_that_is_gone_postpones_the_batch(tmp_path: Path) -> None:
    with schema_registry() as registry:
        number = registry.register("readings-value", json.dumps(FIRST))
        place = {"url": registry.url, "cache_dir": str(tmp_path)}
    given: dict[str, Any] = {"framing": "confluent", "registry": place, "columns": {"id": "int"}}
    for kind in ("avro", "json"):
        with pytest.raises(DecodingPostponed, match=f"the schema registry {registry.url} does not"):
            decode(avro(number, FIRST, {"id": 1, "temp_c": 1}), kind=kind, **given)


def test_a_404_of_what_stands_before_the_registry_is_no_unknown_id(settings: Settings) -> None:
    given = settings("avro", columns={"id": "int"})
    given["registry"]["url"] += "/elsewhere"
    with pytest.raises(DecodingPostponed, match="it answers 404"):
        decode(framed(1, b""), **given)


def test_a_damaged_file_of_the_cache_is_asked_for_again(
    tmp_path: Path, registry: SchemaRegistry, settings: Settings
) -> None:
    number = registry.register("readings-value", json.dumps(FIRST))
    good = avro(number, FIRST, {"id": 1, "temp_c": 1})
    given = settings("avro", columns={"id": "int"})
    decode(good, **given)
    (kept,) = (tmp_path / "schemas").rglob("*.json")
    kept.write_bytes(kept.read_bytes()[:-3])
    assert decode(good, **given).rows == [{"id": 1}]
    assert len(registry.asked) == 2


def test_a_login_is_shown(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text("reader:s3cret\n")
    with schema_registry("reader:s3cret") as registry:
        number = registry.register("readings-value", json.dumps(FIRST))
        good = avro(number, FIRST, {"id": 1, "temp_c": 1})
        place = {"url": registry.url, "cache_dir": str(tmp_path / "schemas")}
        given: dict[str, Any] = {"kind": "avro", "framing": "confluent", "columns": {"id": "int"}}
        with pytest.raises(DecodingPostponed, match="it answers 401"):
            decode(good, registry=place, **given)
        found = decode(good, registry={**place, "login_file": str(login)}, **given)
        assert found.rows == [{"id": 1}]
    login.write_text("reader")
    with pytest.raises(ConfigError, match="has no line USER:PASSWORD"):
        decoder(registry={**place, "login_file": str(login)}, **given)


@pytest.fixture
def plant(registry: SchemaRegistry) -> int:
    """The id of the file with plant.Place, plant.Reading and plant.Batch."""
    return registry.register("plant", descriptors()["plant.proto"], "PROTOBUF")


def registered(number: int, indexes: bytes, name: str, **fields: Any) -> bytes:
    return framed(number, indexes + message(name, **fields))


def protobuf_rows(found: Outcome) -> list[Any]:
    return [(row["id"], row["state"], row["at"]) for row in found.rows]


def test_protobuf_is_told_apart_by_its_indexes(plant: int, settings: Settings) -> None:
    payloads = [
        registered(plant, b"\x02\x02", "plant.Reading", at=MOMENT, **READING),
        registered(plant, b"\x00", "plant.Place", line="l1"),
        registered(plant, b"\x02\x04", "plant.Batch", site="s"),
        registered(plant, b"\x02\x10", "plant.Batch", site="s"),
        framed(plant, b""),
        framed(plant, b"\xff" * 9),
        framed(77, b"\x00"),
    ]
    found = decode(*payloads, **settings("protobuf", "plant", message="plant.Reading"))
    assert protobuf_rows(found) == [(7, "RUNNING", MOMENT)]
    assert found.sources == [0]
    assert found.broken[1] == (
        "The payload is a Protobuf message plant.Place, and not plant.Reading."
    )
    assert "plant.Batch, and not plant.Reading" in found.broken[2]
    assert found.broken[3] == "The Protobuf file of the schema has no message [8]."
    assert found.broken[4] == "The payload ends before its Protobuf message begins."
    assert "more than 32 bits" in found.broken[5]
    assert "knows no schema with the id 77" in found.broken[6]
    first = decode(payloads[1], **settings("protobuf", "plant"))
    assert first.rows == [{"line": "l1"}]


def test_protobuf_may_be_read_by_a_descriptor_of_ones_own(
    plant: int, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "plant.desc"
    file.write_bytes(reading_descriptor().SerializeToString())
    given = settings("protobuf", descriptor=str(file), message="plant.Reading")
    payload = registered(plant, b"\x02\x02", "plant.Reading", at=MOMENT, **READING)
    assert protobuf_rows(decode(payload, **given)) == [(7, "RUNNING", MOMENT)]


def test_protobuf_imports_are_looked_for_in_the_registry(
    registry: SchemaRegistry, settings: Settings
) -> None:
    inner = descriptor_pb2.FileDescriptorProto(name="inner.proto", package="p", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto
    inner.message_type.add(name="In").field.add(
        name="v", number=1, type=kind.TYPE_INT32, label=kind.LABEL_OPTIONAL
    )
    outer = descriptor_pb2.FileDescriptorProto(name="", package="p", syntax="proto3")
    outer.dependency.append("inner.proto")
    outer.message_type.add(name="Out").field.add(
        name="inner", number=1, type=kind.TYPE_MESSAGE, type_name=".p.In", label=kind.LABEL_OPTIONAL
    )

    def encoded(file: descriptor_pb2.FileDescriptorProto) -> str:
        return base64.b64encode(file.SerializeToString()).decode()

    registry.register("inner", encoded(inner), "PROTOBUF")
    number = registry.register("outer", encoded(outer), "PROTOBUF", ("inner.proto", "inner", 1))
    columns = {"v": {"type": "int", "path": "inner.v"}}
    payload = framed(number, b"\x00\x0a\x02\x08\x07")
    assert decode(payload, **settings("protobuf", "outer", columns=columns)).rows == [{"v": 7}]
    outer.dependency[0] = "missing.proto"
    registry.register("lost", encoded(outer), "PROTOBUF")
    with pytest.raises(ConfigError, match=r"imports missing\.proto, which the registry does not"):
        decoder(**settings("protobuf", "lost"))


@pytest.mark.usefixtures("plant")
def test_a_registry_that_has_protobuf_as_source_only_is_told(
    registry: SchemaRegistry, settings: Settings
) -> None:
    registry.gives_source = True
    with pytest.raises(ConfigError, match="as source, and not as a descriptor"):
        decoder(**settings("protobuf", "plant"))


def test_columns_of_json_come_from_its_schema(registry: SchemaRegistry, settings: Settings) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "t": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "ok": {"type": "boolean"},
            "tags": {"type": "array"},
            "any": True,
        },
    }
    number = registry.register("readings-value", json.dumps(schema), "JSON")
    wrong = registry.register("avro", json.dumps(FIRST))
    document = {"id": 1, "at": "2026-01-20T12:00:00Z", "t": 1.5, "ok": True, "tags": [1], "any": 2}
    payloads = [
        framed(number, json.dumps(document).encode()),
        framed(number, b"{"),
        framed(wrong, b"{}"),
        b"{}",
    ]
    found = decode(*payloads, **settings("json", "readings-value"))
    assert found.rows == [{**document, "at": MOMENT, "tags": "[1]", "any": "2"}]
    assert sorted(found.broken) == [1, 2, 3]
    assert "it ends too early" in found.broken[1]
    assert "of the kind AVRO, and not of JSON" in found.broken[2]
    text = decode(*payloads[:1], **settings("json"))
    assert json.loads(text.rows[0]["value"]) == document


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "avro", "framing": "confluent"}, "registry belong together"),
        (
            {"kind": "avro", "schema_file": "s", "registry": {"url": "http://r"}},
            "registry belong together",
        ),
        ({"kind": "json", "framing": "container"}, "the decoder json has no framing container"),
        (
            {"kind": "csv", "columns": {"a": "int"}, "framing": "confluent"},
            "has no setting framing",
        ),
        (
            {"kind": "protobuf", "framing": "confluent", "registry": {"url": "http://r"}},
            "needs descriptor",
        ),
        (
            {"kind": "json", "framing": "confluent", "registry": {"url": "ftp://r"}},
            "must be http://HOST",
        ),
        (
            {"kind": "json", "framing": "confluent", "registry": {"url": "http://u:p@r"}},
            "use registry.login_file",
        ),
        (
            {
                "kind": "json",
                "framing": "confluent",
                "registry": {"url": "http://r", "login_file": "a", "token_file": "b"},
            },
            "exclude each other",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decoder(**given)


def test_a_table_stays_with_the_version_that_it_began_with(
    registry: SchemaRegistry, settings: Settings, tmp_path: Path
) -> None:
    """Executors make decoders when the first batch comes to them, and again when they are new."""
    old = registry.register("readings-value", json.dumps(FIRST))
    payload = avro(old, FIRST, {"id": 1, "temp_c": 21.5})
    definition = TableDefinition.model_validate(
        {"name": "t", "topics": "a/#", "decoder": settings("avro", "readings-value")}
    )
    table = DeclaredTable(definition, places_in(tmp_path))
    later = {**SECOND, "fields": SECOND["fields"][:1]}
    new = registry.register("readings-value", json.dumps(later))
    messages = [("a/b", payload), ("a/b", avro(new, later, {"id": 2**40}))]
    parts = table.split(sample(messages))
    assert [(row["id"], row["temp_c"]) for row in parts[ROWS].to_pylist()] == [(1, 21.5)]
    assert parts[DEAD_LETTERS].num_rows == 1  # it has no temp_c, and that no default
    assert DeclaredTable(definition, places_in(tmp_path)).schema.names[-2:] == ["id", "date"]


def test_a_version_may_be_chosen(registry: SchemaRegistry, settings: Settings) -> None:
    old = registry.register("readings-value", json.dumps(FIRST))
    registry.register("readings-value", json.dumps(SECOND))
    given = settings("avro", "readings-value")
    given["registry"]["version"] = 1
    found = decode(avro(old, FIRST, {"id": 1, "temp_c": 21.5}), **given)
    assert found.rows == [{"id": 1, "temp_c": 21.5}]
    given["registry"]["version"] = 3
    with pytest.raises(ConfigError, match="has no version 3 of the subject readings-value"):
        decoder(**given)


def test_a_subject_that_is_not_there_is_told(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="has no subject readings-value"):
        decoder(**settings("avro", "readings-value"))
