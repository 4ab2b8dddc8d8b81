"""Derived tables against their sources: columns, and one sentence for each mistake. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config.derived import DerivedDefinition
from penstock.config.table import TableDefinition
from penstock.errors import ConfigError
from penstock.spark.derived.derived_table import DerivedTable
from tests.support.places import places_in

COLUMNS = {
    "celsius": "float",
    "turns": "int32",
    "price": "decimal(10,2)",
    "measured_at": "timestamp",
    "note": "string",
}
TIMESTAMP = pa.timestamp("us", "UTC")


def derived(source: dict[str, Any] | None = None, **settings: Any) -> DerivedTable:
    given = {"name": "derived", "kind": "windowed", "source": "readings", **settings}
    if given["kind"] == "windowed":
        given.setdefault("window_s", 60)
    readings = {
        "name": "readings",
        "topics": "plant/{line}/{machine:int}/temp",
        "decoder": {"kind": "json", "columns": COLUMNS},
        **(source or {}),
    }
    definition = DerivedDefinition.model_validate(given)
    return DerivedTable(
        definition, TableDefinition.model_validate(readings), places_in(Path("tables"))
    )


def types(table: DerivedTable) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in table.schema}


def test_windows_have_their_keys_and_the_types_of_their_aggregates() -> None:
    aggregates = {
        "rows": "count",
        "mean": "mean(price)",
        "turns": "sum(turns)",
        "cost": "sum(price)",
        "heat": "sum(celsius)",
        "lowest": "min(turns)",
        "note": "last(note)",
    }
    table = derived(keys=["line", "client_id"], aggregates=aggregates, event_time="measured_at")
    assert types(table) == {
        "epoch": pa.string(),
        "offset": pa.int64(),
        "window_start": TIMESTAMP,
        "window_end": TIMESTAMP,
        "line": pa.string(),
        "client_id": pa.string(),
        "rows": pa.int64(),
        "mean": pa.float64(),
        "turns": pa.int64(),
        "cost": pa.decimal128(20, 2),
        "heat": pa.float64(),
        "lowest": pa.int32(),
        "note": pa.string(),
        "late": pa.int64(),
    }


def test_rows_without_an_own_time_are_never_late() -> None:
    assert "late" not in types(derived())


def test_sessions_and_silence_have_their_times() -> None:
    sessions = types(derived(kind="sessions", gap_s=60))
    assert [*sessions][2:] == ["session_start", "session_end", "topic", "count"]
    silence = types(derived(kind="silent", limit_s=60, keys=["machine"]))
    assert [*silence][2:] == ["at", "machine", "state", "last_seen", "silent_s"]


def test_the_last_known_row_is_a_row_of_the_source() -> None:
    table = derived(kind="last_known", keys=["client_id"])
    assert [*types(table)] == [
        "epoch", "offset", "received_at", "topic", "client_id", "line", "machine", *COLUMNS,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"keys": ["lane"]}, "needs the column lane, and its source readings has none"),
        ({"aggregates": {"x": "max(kelvin)"}}, "needs the column kelvin"),
        ({"aggregates": {"x": "mean(note)"}}, "the mean of note, which is string"),
        ({"event_time": "celsius"}, "the event_time celsius, which is double"),
        ({"keys": ["line"], "aggregates": {"line": "count"}}, "has two columns line"),
        ({"aggregates": {"Window_End": "count"}}, "has two columns window_end"),
        ({"starting_offsets": "yesterday"}, "startingOffsets"),
    ],
)
def test_a_mistake_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        derived(**settings)
    assert sentence in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_the_computation_is_a_part_of_what_a_table_holds() -> None:
    one = derived().selection("e").description
    assert one.endswith(", as windows of 60 s every 60 s of received_at by topic: count = count")
    assert derived(window_s=30).selection("e").description != one
    assert derived(watermark_s=30).selection("e").description == one
