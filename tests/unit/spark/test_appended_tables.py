"""A table whose query has state: what is refused before it runs. No Spark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from penstock.errors import ConfigError
from penstock.spark.checkpoints import note_batch
from penstock.spark.derived.appending import AppendTarget
from penstock.spark.parquet_files import write_files
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landed_table import ROWS, Landed, PlannedBatch, QueryBatch, Selection
from tests.support.places import path_of

SELECTION = Selection("20261121T000000-00000001", "messages", ("a/#",), ", as windows of 60 s")
ROW = {"epoch": SELECTION.epoch, "offset": 7, "window_end": datetime(2026, 11, 21, tzinfo=UTC)}


QUERY: Final = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def table(tmp_path: Path) -> DeltaMessageTable:
    """Batch 3 of a query has added a row, and ended at offset 8."""
    rows = pa.Table.from_pylist([ROW])
    made = DeltaMessageTable(tmp_path / "means", rows.schema, ())
    files = list(write_files({ROWS: made.layout}, "part", [{ROWS: rows}]))
    made.commit(PlannedBatch(SELECTION, 0, 8, query=QueryBatch(QUERY, 3)), files)
    return made


@pytest.fixture
def state(table: DeltaMessageTable) -> Path:
    return path_of(table) / "_checkpoint"


def appended(table: DeltaMessageTable) -> AppendTarget:
    return AppendTarget(table, lambda messages: messages, path_of(table) / "_checkpoint")


def planned(checkpoint: Path, ends: dict[int, int | None], query: str = QUERY) -> None:
    """As Spark leaves a checkpoint: the end of each batch that was planned."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    for batch, end in ends.items():
        position = "-" if end is None else json.dumps({"0": end, "epoch": SELECTION.epoch})
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{position}\n")


def test_a_table_goes_on_with_the_state_that_it_was_computed_with(
    table: DeltaMessageTable, state: Path
) -> None:
    planned(state, {2: 6, 3: 8})
    appended(table).check_state(SELECTION)
    planned(state, {4: 11, 5: 12})  # of batches without rows
    note_batch(state, 3)
    appended(table).check_state(SELECTION)
    assert appended(table).landed(SELECTION) == Landed(7, 8)


def test_a_table_whose_state_is_gone_is_not_continued(
    table: DeltaMessageTable, state: Path
) -> None:
    lost = pytest.raises(ConfigError, match=r"the state of its query is lost: .* or remove .*anew")
    with lost:
        appended(table).check_state(SELECTION)
    planned(state, {0: None})  # but with no position
    with lost:
        appended(table).check_state(SELECTION)


@pytest.mark.parametrize(
    ("ends", "query", "sentence"),
    [
        ({1: 4, 2: 6}, QUERY, "is older than it: the table has rows of batch 3, and the state is"),
        ({2: 6, 3: 7, 4: 9}, QUERY, "batch 3 ends at offset 7 there, and at 8 in the table"),
        ({9: 8}, "another", "is that of another query"),
    ],
    ids=["older", "went on from an older one", "another's"],
)
def test_a_table_is_not_continued_with_another_state(
    table: DeltaMessageTable, state: Path, ends: dict[int, int | None], query: str, sentence: str
) -> None:
    planned(state, ends, query)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        appended(table).check_state(SELECTION)


def test_a_table_that_is_older_than_its_state_is_not_continued(
    table: DeltaMessageTable, state: Path
) -> None:
    planned(state, {3: 8, 4: 11})
    note_batch(state, 4)
    with pytest.raises(ConfigError, match="lacks rows that the query added up to batch 4"):
        appended(table).check_state(SELECTION)


def test_a_table_without_rows_is_computed_again_from_where_it_began(tmp_path: Path) -> None:
    """Nothing depends on the state yet."""
    empty = DeltaMessageTable(tmp_path / "empty", pa.Table.from_pylist([ROW]).schema, ())
    empty.commit(PlannedBatch(SELECTION, 0, 5, 5), [])
    appended(empty).check_state(SELECTION)
    assert appended(empty).landed(SELECTION) == Landed(5, 5)


def test_a_table_of_something_else_is_refused(table: DeltaMessageTable) -> None:
    other = Selection(SELECTION.epoch, "messages", ("a/#",), ", as windows of 30 s")
    with pytest.raises(ConfigError, match=r"topics a/#, as windows of 60 s; land .* of 30 s in"):
        appended(table).prepare(other)
