"""`tables validate` runs what lands: every decoder, with one row, several and none, and whatever
is kept of a message. No Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.config.table import TableDefinition
from penstock.errors import ConfigError
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.dry_run import columns_read, land_messages, land_sample
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS, PlannedBatch
from penstock.stream.client import StreamClient
from penstock.stream.rows import STREAM_SCHEMA
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.budget import budget
from tests.support.landed_tables import written as files_of
from tests.support.places import path_of, places_in
from tests.support.schema_registry import schema_registry
from tests.unit.decoding.sparkplug_payloads import birth, payload
from tests.unit.decoding.test_with_a_schema import avro, message, reading_descriptor, written

BESIDE = ("received_at", "topic", "client_id", "qos", "retain")
METADATA = [*combinations(BESIDE, 0), *combinations(BESIDE, 1), *combinations(BESIDE, 4), BESIDE]
LIST = {
    "type": "record",
    "name": "Sent",
    "fields": [{"name": "rows", "type": {"type": "array", "items": "long"}}],
}
COLUMN = {"v": {"type": "int", "path": "$"}}

Documents = dict[str, tuple[dict[str, Any], list[bytes], list[int]]]
"""By name: a decoder, payloads, and how many rows each of them has; 0 is a dead letter."""


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    here = tmp_path
    (here / "plant.desc").write_bytes(reading_descriptor().SerializeToString())
    batch = [message("plant.Batch", readings=[{"id": n} for n in range(count)]) for count in (1, 3)]
    lists: list[Any] = [[{"v": 1}], [{"v": 1}, {"v": 2}, {"v": 3}], []]
    numbers = [1, 3, 0]
    rows = {"columns": {"v": "int"}, "many": True}
    return {
        "json": ({"kind": "json", **rows}, [msgspec.json.encode(one) for one in lists], numbers),
        "json below rows_path": (
            {"kind": "json", "columns": {"v": "int"}, "rows_path": "r"},
            [msgspec.json.encode({"r": one}) for one in lists],
            numbers,
        ),
        "one json document": ({"kind": "json", "columns": COLUMN}, [b"1", b"[]"], [1, 0]),
        "cbor": ({"kind": "cbor", **rows}, [cbor2.dumps(one) for one in lists], numbers),
        "msgpack": (
            {"kind": "msgpack", **rows},
            [msgspec.msgpack.encode(one) for one in lists],
            numbers,
        ),
        "csv": (
            {"kind": "csv", "columns": {"v": "int", "w": "string"}},
            [b"1,a", b"1,a\n2,b\r\n3,c\n", b""],
            numbers,
        ),
        "protobuf": (
            {
                "kind": "protobuf",
                "descriptor": str(here / "plant.desc"),
                "message": "plant.Batch",
                "rows_path": "readings",
                "columns": {"id": "int"},
            },
            [*batch, b""],
            numbers,
        ),
        "avro": (
            {
                "kind": "avro",
                "schema_file": written(here, LIST),
                "rows_path": "rows",
                "columns": COLUMN,
            },
            [avro({"rows": [*range(count)]}, LIST) for count in numbers],
            numbers,
        ),
        "sparkplug_b": ({"kind": "sparkplug_b"}, [birth(), payload(), b"\xff"], [7, 1, 0]),
        "text": ({"kind": "text", "columns": {"v": "int"}}, [b"1", b"one"], [1, 0]),
        "raw": ({"kind": "raw"}, [b"1", b""], [1, 1]),
    }


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "data") as writer:
        yield writer


@pytest.fixture
def client(log: LogWriter) -> Iterator[StreamClient]:
    service = ServiceProcess(log.data_dir)
    service.start()
    with StreamClient(service.address, connect_timeout_s=0) as connected:
        yield connected
    service.stop()


def declared(here: Path, **settings: Any) -> DeclaredTable:
    definition = {"name": "t", "topics": "spBv1.0/#", **settings}
    return DeclaredTable(TableDefinition.model_validate(definition), places_in(here / "tables"))


def _given(sent: bytes, _offset: int) -> bytes:
    return sent


def test_a_message_has_one_row_or_several_or_none_whatever_is_kept_of_it(
    documents: Documents, log: LogWriter, client: StreamClient, tmp_path: Path
) -> None:
    """A second row asked for the client, which is not read unless it is kept."""
    for group, (_, payloads, _) in enumerate(documents.values()):
        topic = f"spBv1.0/{group}/DBIRTH/node/device"
        for sent in payloads:
            log.append(1, topics=(topic,), payload=partial(_given, sent))
    begin = 0
    for group, (decoder, payloads, counts) in enumerate(documents.values()):
        expected = {begin + n: count for n, count in enumerate(counts)}
        begin += len(payloads)
        for metadata in METADATA:
            table = declared(
                tmp_path, decoder=decoder, metadata=metadata, topics=f"spBv1.0/{group}/#"
            )
            parts = land_sample(table, client, 100)
            found = Counter(parts[ROWS].column("offset").to_pylist())
            assert found == {offset: count for offset, count in expected.items() if count}
            assert parts[ROWS].column_names[2 : 2 + len(metadata)] == [*metadata]
            dead = parts[DEAD_LETTERS].column("offset").to_pylist()
            assert dead == [offset for offset, count in expected.items() if not count]


@pytest.mark.parametrize("form", ["delta", "iceberg", "parquet"])
def test_a_table_that_is_another_one_is_told_before_it_runs(
    form: str, log: LogWriter, client: StreamClient, tmp_path: Path
) -> None:
    log.append(2, topics=("spBv1.0/a",))
    here = {"format": form, "decoder": {"kind": "json", "columns": COLUMN}}
    table = declared(tmp_path, **here)
    rows = land_sample(table, client, 10)[ROWS]
    assert rows.num_rows == 2
    assert not path_of(table).exists()
    assert not (tmp_path / "tables").exists()
    path_of(table).mkdir(parents=True)
    present = table.open()[ROWS]
    selection = table.selection(client.offsets("messages").epoch)
    present.commit(PlannedBatch(selection, 0, 2), files_of(present, rows))
    assert land_sample(table, client, 10)[ROWS].num_rows == 2
    text = {"kind": "json", "columns": {"v": {"type": "string", "path": "$"}}}
    with pytest.raises(ConfigError, match="has the column v of type int64, and string is declared"):
        land_sample(declared(tmp_path, **{**here, "decoder": text}), client, 10)
    wider = {"kind": "json", "columns": {**COLUMN, "w": "int"}}
    before = present.contents()
    land_sample(declared(tmp_path, **{**here, "decoder": wider}), client, 10)
    assert present.contents() == before  # no column was added


@pytest.mark.parametrize("form", ["delta", "iceberg", "parquet"])
def test_a_table_that_follows_its_schema_keeps_its_types_here_too(
    form: str, log: LogWriter, client: StreamClient, tmp_path: Path
) -> None:
    """What `tables run` lands was refused here, for the newest schema has another type."""
    with schema_registry() as registry:
        place = {"url": registry.url, "cache_dir": str(tmp_path / "s"), "subject": "readings-value"}
        decoder = {"kind": "avro", "framing": "confluent", "registry": place}
        here = {"format": form, "decoder": decoder}
        number: dict[str, Any] = {**LIST, "fields": [{"name": "v", "type": "int"}]}
        known = registry.register("readings-value", json.dumps(number))
        framed = b"\0" + known.to_bytes(4, "big") + avro({"v": 5}, number)
        log.append(1, topics=("spBv1.0/a",), payload=partial(_given, framed))
        table = declared(tmp_path, **here, evolve="add")
        rows = land_sample(table, client, 10)[ROWS]
        path_of(table).mkdir(parents=True)
        selection = table.selection(client.offsets("messages").epoch)
        present = table.open()[ROWS]
        present.commit(PlannedBatch(selection, 0, 1), files_of(present, rows))
        number["fields"][0]["type"] = "long"
        known = registry.register("readings-value", json.dumps(number))
        framed = b"\0" + known.to_bytes(4, "big") + avro({"v": 7}, number)
        log.append(1, topics=("spBv1.0/a",), payload=partial(_given, framed))
        rows = land_sample(declared(tmp_path, **here, evolve="add"), client, 10)[ROWS]
        assert rows.column("v").to_pylist() == [5, 7]
        widens = form == "iceberg"
        assert rows.schema.field("v").type == (pa.int64() if widens else pa.int32())
        if widens:
            assert land_sample(declared(tmp_path, **here), client, 10)[ROWS].num_rows == 2
            return
        with pytest.raises(ConfigError, match="has the column v of type int32, and int64"):
            land_sample(declared(tmp_path, **here), client, 10)


def test_repeats_are_those_that_landing_finds(
    log: LogWriter, client: StreamClient, tmp_path: Path
) -> None:
    log.append(6, topics=("spBv1.0/a",), payload=lambda n: b'{"id": %d}' % (n % 2))
    decoder = {"kind": "json", "columns": {"id": "int"}}
    table = declared(tmp_path, decoder=decoder, repeats={"column": "id", "within_s": 3})
    parts = land_sample(table, client, 10)
    assert parts[ROWS].column("offset").to_pylist() == [0, 1, 4, 5]
    assert set(parts[DEAD_LETTERS].column("kind").to_pylist()) == {"repeated"}


TYPES = ("string", "bool", "int8", "int64", "float32", "decimal(9,2)", "timestamp", "date", "json")
COLUMNS = st.dictionaries(
    st.sampled_from(("v", "w", "t.u", "0")),
    st.fixed_dictionaries(
        {"type": st.sampled_from(TYPES), "path": st.sampled_from(("", "$", "v", "r.0.v", "$.v"))},
        optional={"required": st.just(True), "default": st.sampled_from((0, 1.5, "x", True))},
    ),
    max_size=3,
)
DECODERS = st.one_of(
    st.just({"kind": "raw"}),
    st.just({"kind": "sparkplug_b"}),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(("json", "cbor", "msgpack", "csv", "text"))},
        optional={
            "columns": COLUMNS,
            "many": st.just(True),
            "rows_path": st.sampled_from(("v", "r.0")),
            "rows_max": st.sampled_from((1, 2)),
            "extra": st.just("rest"),
            "null_values": st.just(["", "1"]),
            "header": st.just(True),
            "encoding": st.sampled_from(("utf-8", "utf-16", "latin-1")),
        },
    ),
)
DECLARATIONS = st.fixed_dictionaries(
    {
        "name": st.just("t"),
        "decoder": DECODERS,
        "topics": st.sampled_from(("#", "plant/{a}/#", "plant/{a:int}/{b:float}", "{v}/#")),
        "format": st.sampled_from(("delta", "delta", "parquet", "parquet", "iceberg")),
    },
    optional={
        "metadata": st.lists(st.sampled_from(BESIDE), unique=True),
        "partition_by": st.lists(st.sampled_from(("date", "v", "a", "topic")), unique=True),
        "repeats": st.sampled_from(({"column": "v"}, {"user_property": "k"})),
    },
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("v", "w", "r", "t", "u")), inner, max_size=3)
    ),
    max_leaves=6,
)
PAYLOADS = st.one_of(
    st.binary(max_size=20),
    VALUES.map(msgspec.json.encode),
    VALUES.map(lambda value: cbor2.dumps(value)),
    VALUES.filter(lambda value: "18446" not in str(value)).map(str).map(str.encode),
    st.just(birth()),
)


@settings(max_examples=budget(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    DECLARATIONS, st.lists(st.tuples(st.sampled_from(("plant/7/0.5", "plant/x", "a")), PAYLOADS))
)
def test_rows_and_dead_letters_are_all_messages_whatever_is_declared_and_sent(
    tmp_path_factory: pytest.TempPathFactory,
    settings: dict[str, Any],
    sent: list[tuple[str, bytes]],
) -> None:
    try:
        table = declared(tmp_path_factory.mktemp("any"), **settings)
    except (ValidationError, ConfigError):
        assume(False)
    schema = pa.schema([STREAM_SCHEMA.field(name) for name in columns_read(table)])
    rows = [
        {"epoch": "e", "offset": offset, "received_at": offset, "topic": topic, "payload": payload}
        | {"qos": 1, "retain": False, "client_id": None, "properties": None}
        for offset, (topic, payload) in enumerate(sent)
    ]
    messages = pa.Table.from_pylist(
        [{name: row[name] for name in schema.names} for row in rows], schema
    )
    parts = land_messages(table, "e", messages)
    found = [set(part.column("offset").to_pylist()) for part in parts.values()]
    assert sorted(offset for part in found for offset in part) == list(range(len(sent)))
