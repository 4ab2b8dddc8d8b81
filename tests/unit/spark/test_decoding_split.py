"""Each message is a row or a dead letter: what the writing pass makes of a batch. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config.table import TableDefinition
from penstock.errors import ConfigError
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.decoding_split import MESSAGE_ID, SEEN_AT
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from penstock.stream.rows import STREAM_SCHEMA
from tests.support.places import places_in

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def declared(**settings: Any) -> DeclaredTable:
    definition = {"name": "temps", "topics": "plant/{line}/{machine:int}/temp", **settings}
    return DeclaredTable(TableDefinition.model_validate(definition), places_in(Path("tables")))


def messages(*found: tuple[str, bytes], columns: dict[str, list[Any]] | None = None) -> pa.Table:
    table = pa.Table.from_pylist(
        [
            {
                "epoch": "e",
                "offset": 10 + n,
                "received_at": NOON + timedelta(seconds=n),
                "topic": topic,
                "payload": payload,
                "qos": 1,
                "retain": False,
                "client_id": f"device-{n}",
                "properties": None,
            }
            for n, (topic, payload) in enumerate(found)
        ],
        STREAM_SCHEMA,
    )
    for name, values in (columns or {}).items():
        kind = pa.string() if name == MESSAGE_ID else pa.timestamp("us", tz="UTC")
        table = table.append_column(name, pa.array(values, kind))
    return table


def test_a_message_becomes_a_row_with_its_levels_or_a_dead_letter_with_the_reason() -> None:
    parts = declared().split(
        messages(("plant/a/1/temp", b"21.5"), ("plant/a/one/temp", b"x"), ("plant/b/2/temp", b""))
    )
    assert [(row["offset"], row["line"], row["machine"], row["value"]) for row in
            parts[ROWS].to_pylist()] == [(10, "a", 1, b"21.5"), (12, "b", 2, b"")]  # fmt: skip
    (dead,) = parts[DEAD_LETTERS].to_pylist()
    assert (dead["offset"], dead["kind"], dead["payload"]) == (11, "broken", b"x")
    assert "machine is 'one', which is no whole number" in dead["reason"].replace('"', "'")
    assert dead["topic"] == "plant/a/one/temp"
    assert dead["received_at"] == NOON + timedelta(seconds=1)


def test_a_message_has_several_rows_or_none() -> None:
    table = declared(decoder={"kind": "json", "many": True, "columns": {"v": "int"}})
    payloads = (b'[{"v": 1}, {"v": 2}]', b"[]", b"?", b'[{"v": 3}]')
    parts = table.split(messages(*(("plant/a/1/temp", payload) for payload in payloads)))
    assert [(row["offset"], row["v"]) for row in parts[ROWS].to_pylist()] == [
        (10, 1), (10, 2), (13, 3),
    ]  # fmt: skip
    assert [(row["offset"], row["kind"]) for row in parts[DEAD_LETTERS].to_pylist()] == [
        (11, "empty"), (12, "broken"),
    ]  # fmt: skip


def test_the_metadata_kept_of_a_message_is_declared() -> None:
    everything = ("received_at", "topic", "client_id", "qos", "retain")
    assert declared(metadata=everything).schema.names == [
        "epoch", "offset", *everything, "line", "machine", "value", "date",
    ]  # fmt: skip
    assert declared(metadata=(), partition_by=("line",)).schema.names == [
        "epoch", "offset", "line", "machine", "value",
    ]  # fmt: skip


def test_a_text_that_is_too_long_for_the_name_of_a_directory_is_no_partition() -> None:
    """One such message would otherwise end the job, and again after each restart."""
    decoder = {"kind": "json", "many": True, "columns": {"site": "string"}}
    table = declared(partition_by=["line", "site"], decoder=decoder)
    long, fits = "x" * 201, "ü" * 33
    found = [
        (f"plant/{long}/1/temp", b"[{}]"),
        ("plant/a/1/temp", b'[{"site": "s"}, {"site": "%s"}]' % ("ü" * 34).encode()),
        (f"plant/{'x' * 200}/1/temp", b'[{"site": "%s"}, {}]' % fits.encode()),
    ]
    parts = table.split(messages(*found))
    assert parts[ROWS].column("offset").to_pylist() == [12, 12]
    assert parts[DEAD_LETTERS].column("offset").to_pylist() == [10, 11]
    assert parts[DEAD_LETTERS].column("kind").to_pylist() == ["broken", "broken"]
    reason = parts[DEAD_LETTERS].column("reason")[1].as_py()
    assert reason == f"Column site is '{'ü' * 34}', which is too long for a partition."


def test_a_long_topic_is_not_repeated_to_gigabytes() -> None:
    decoder = {"kind": "json", "many": True, "columns": {"x": "int"}}
    table = declared(topics="plant/{line}/{rest:#}", decoder=decoder)
    long = "plant/a/" + "x" * 60_000
    found = messages((long, b"[{}, {}]"), (long, b"[%s]" % b",".join([b"{}"] * 20_000)))
    parts = table.split(found)
    assert parts[ROWS].column("offset").to_pylist() == [10, 10]
    (dead,) = parts[DEAD_LETTERS].to_pylist()
    assert (dead["offset"], dead["kind"]) == (11, "broken")
    assert dead["reason"] == "20000 rows would repeat the topic, 60008 bytes."
    parts = declared(
        topics="plant/{line}/{rest:#}", decoder=decoder, metadata=["received_at", "client_id"]
    ).split(found)
    (dead,) = parts[DEAD_LETTERS].to_pylist()
    assert dead["reason"] == "20000 rows would repeat the topic and the client_id, 60016 bytes."


def test_a_repeat_is_the_one_that_comes_within_the_time_after_one_that_landed() -> None:
    table = declared(repeats={"user_property": "id", "within_s": 2})
    topics = [("plant/a/1/temp", b"1")] * 6
    ids = ["x", "x", "y", None, "x", None]
    seen = [None, None, NOON, None, None, NOON]
    parts = table.split(messages(*topics, columns={MESSAGE_ID: ids, SEEN_AT: seen}))
    assert parts[ROWS].column("offset").to_pylist() == [10, 13, 14, 15]
    assert parts[ROWS].column(MESSAGE_ID).to_pylist() == ["x", None, "x", None]
    assert [(row["offset"], row["kind"], row["reason"]) for row in
            parts[DEAD_LETTERS].to_pylist()] == [
        (11, "repeated", "a message with the id x landed before"),
        (12, "repeated", "a message with the id y landed before"),
    ]  # fmt: skip


def test_a_broken_message_does_not_count_as_landed() -> None:
    table = declared(repeats={"user_property": "id"})
    found = messages(("plant/a/bad/temp", b"1"), ("plant/a/1/temp", b"1"),
                     columns={MESSAGE_ID: ["x", "x"], SEEN_AT: [None, None]})  # fmt: skip
    parts = table.split(found)
    assert parts[ROWS].column("offset").to_pylist() == [11]
    assert parts[DEAD_LETTERS].column("kind").to_pylist() == ["broken"]


@pytest.mark.parametrize(
    ("decoder", "payload"),
    [
        ({"kind": "json", "columns": {"id": "decimal(20,0)"}}, b'{"id": 7}'),
        (
            {"kind": "json", "rows_path": "r", "columns": {"id": {"type": "int", "path": "$.id"}}},
            b'{"id": 7, "r": [{}, {}]}',
        ),
        ({"kind": "csv", "rows_max": 1, "columns": {"id": "string"}}, b"7"),
    ],
)
def test_a_message_has_one_id(decoder: dict[str, Any], payload: bytes) -> None:
    table = declared(decoder=decoder, repeats={"column": "id"})
    found = messages(("plant/a/1/temp", payload))
    assert table.split.message_ids(found).to_pylist() == ["7"]


def test_the_id_of_a_message_is_in_its_first_row() -> None:
    decoder = {"kind": "json", "columns": {"id": "int"}}
    table = declared(decoder=decoder, repeats={"column": "id"})
    payloads = (b'{"id": 7}', b"?", b"{}")
    found = messages(*(("plant/a/1/temp", payload) for payload in payloads))
    assert table.split.message_ids(found).to_pylist() == ["7", None, None]


def test_the_id_of_a_message_is_in_a_user_property() -> None:
    pairs = [{"key": "other", "value": "1"}, {"key": "id", "value": "x-7"}]
    found = messages(("plant/a/1/temp", b"1"), ("plant/a/1/temp", b"1"))
    properties = pa.array(
        [{"user_properties": pairs}, None], STREAM_SCHEMA.field("properties").type
    )
    position = found.schema.get_field_index("properties")
    found = found.set_column(position, "properties", properties)
    table = declared(repeats={"user_property": "id"})
    assert table.split.message_ids(found).to_pylist() == ["x-7", None]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"topics": "plant/{value}"}, "temps has two columns value"),
        ({"topics": "plant/{Topic}"}, "temps has two columns Topic"),
        ({"partition_by": ["machine", "site"]}, "partitioned by site, but has no such column"),
        (
            {
                "partition_by": ["a/b"],
                "decoder": {"kind": "json", "columns": {"a/b": "string"}},
            },
            "partitioned by 'a/b', and directories cannot be named after that",
        ),
        ({"partition_by": ["value"]}, "partitioned by value, which is binary; only text"),
        ({"starting_offsets": "first"}, "option startingOffsets must be earliest, latest or a"),
        (
            {"repeats": {"column": "line"}},
            "by line, but its decoder has no such column; it has value",
        ),
        (
            {
                "repeats": {"column": "id"},
                "decoder": {"kind": "json", "columns": {"id": "float"}},
            },
            "finds repeats by id, which is double; only text and whole numbers are possible",
        ),
        (
            {
                "repeats": {"column": "id"},
                "decoder": {"kind": "json", "many": True, "columns": {"id": "string"}},
            },
            r'one in each row: take it from the payload \(path = "\$.id"\), from a user property',
        ),
        (
            {
                "repeats": {"column": "id"},
                "decoder": {"kind": "csv", "columns": {"id": "string"}},
            },
            "one in each row: .* or set rows_max = 1",
        ),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused_in_one_sentence(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        declared(**settings)


def test_the_split_looks_only_at_the_columns_that_rows_and_dead_letters_need() -> None:
    sorting = declared(metadata=["client_id"]).split
    assert sorting.columns == ["epoch", "offset", "received_at", "topic", "payload", "client_id"]
    found = messages(("plant/a/1/temp", b"21.5"), ("plant/a/one/temp", b"x"))
    parts = sorting(found.select(sorting.columns))
    assert [row["client_id"] for row in parts[ROWS].to_pylist()] == ["device-0"]
    assert parts[DEAD_LETTERS].num_rows == 1
