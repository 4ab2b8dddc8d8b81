"""A backfill that is cut off: no message may be in neither table. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.config.table import TableDefinition
from penstock.spark.parquet_files import NewFile, write_files
from penstock.spark.tables.columns import DEAD_LETTER_SCHEMA, with_missing_columns
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import (
    DEAD_LETTERS,
    ROWS,
    Outcome,
    PlannedBatch,
    Selection,
    Span,
    TableCommitFailed,
)
from penstock.spark.tables.landing_target import LandingTarget
from tests.support.places import places_in

EPOCH = "20261121T000000-00000001"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SELECTION = Selection(EPOCH, "messages", ("plant/+/temp",))


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LandingTarget:
    definition = TableDefinition.model_validate(
        {"name": "temps", "topics": "plant/+/temp", "format": request.param}
    )
    declared = DeclaredTable(definition, places_in(tmp_path))
    return LandingTarget(declared.open(), declared.split)


def files(place: LandingTarget, rows: list[int], dead: list[int]) -> list[NewFile]:
    """What a pass has written that made rows of some offsets, and dead letters of others."""
    layouts = {ROWS: place.rows.layout}
    parts = {ROWS: with_missing_columns(_of(rows), place.rows.layout.schema)}
    if place.dead_letters is not None:
        layouts[DEAD_LETTERS] = place.dead_letters.layout
        parts[DEAD_LETTERS] = with_missing_columns(_of(dead), DEAD_LETTER_SCHEMA)
    return list(write_files(layouts, "part", [parts]))


def _of(offsets: list[int]) -> pa.Table:
    count = len(offsets)
    return pa.table(
        {
            "epoch": pa.array([EPOCH] * count, pa.string()),
            "offset": pa.array(offsets, pa.int64()),
            "received_at": pa.array([NOON] * count, pa.timestamp("us", "UTC")),
            "date": pa.array([NOON.date()] * count, pa.date32()),
        }
    )


def landed(place: LandingTarget, rows: list[int], dead: list[int]) -> None:
    found = files(place, rows, dead)
    batch = PlannedBatch(SELECTION, 0, max(rows + dead) + 1)
    tables = {ROWS: place.rows, DEAD_LETTERS: place.dead_letters}
    for name, table in tables.items():
        assert table is not None
        of_it = [file for file in found if file.table == name]
        if of_it or name == ROWS:
            assert table.commit(batch, of_it) is Outcome.LANDED


def offsets(place: LandingTarget, name: str) -> list[int]:
    table = place.rows if name == ROWS else place.dead_letters
    assert table is not None
    paths = table.recent_files(timedelta.max)
    return sorted(
        offset
        for path in paths
        for offset in pq.ParquetFile(path).read(["offset"]).column(0).to_pylist()
    )


@pytest.mark.parametrize("dead_before", [[], [1, 2]])
def test_a_backfill_that_cannot_replace_rows_loses_no_message(
    place: LandingTarget, monkeypatch: pytest.MonkeyPatch, dead_before: list[int]
) -> None:
    """Offset 1 decodes now, 3 does so no longer; then another job is always faster."""
    landed(place, [n for n in range(5) if n not in dead_before], dead_before)
    span = Span(EPOCH, 0, 5)
    new = files(place, [0, 1, 4], [2, 3])

    def refuse(*_: object) -> None:
        raise TableCommitFailed("other jobs keep changing the table")

    with monkeypatch.context() as patched:
        patched.setattr(place.rows, "replace", refuse)
        with pytest.raises(TableCommitFailed):
            place.replace(span, SELECTION, new)
    assert {*offsets(place, ROWS), *offsets(place, DEAD_LETTERS)} == set(range(5))
    place.replace(span, SELECTION, files(place, [0, 1, 4], [2, 3]))
    assert offsets(place, ROWS) == [0, 1, 4]
    assert offsets(place, DEAD_LETTERS) == [2, 3]


def test_dead_letters_that_all_decode_now_are_gone(place: LandingTarget) -> None:
    landed(place, [0], [1, 2])
    place.replace(Span(EPOCH, 0, 3), SELECTION, files(place, [0, 1, 2], []))
    assert offsets(place, ROWS) == [0, 1, 2]
    assert offsets(place, DEAD_LETTERS) == []


def test_a_landing_that_makes_the_table_of_dead_letters_meanwhile(
    place: LandingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(place, list(range(8)), [])
    dead = place.dead_letters
    assert dead is not None
    new = files(place, [0, 1], [2])
    contents = dead.contents

    def none_yet() -> None:
        monkeypatch.setattr(dead, "contents", contents)
        its_own = [file for file in files(place, [], [9]) if file.table == DEAD_LETTERS]
        assert dead.commit(PlannedBatch(SELECTION, 0, 10), its_own) is Outcome.LANDED

    monkeypatch.setattr(dead, "contents", none_yet)
    place.replace(Span(EPOCH, 0, 3), SELECTION, new)
    assert offsets(place, DEAD_LETTERS) == [2, 9]
