"""A table whose query has state: what is refused before it runs. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import ConfigError
from penstock.spark.derived.appending import AppendTarget
from penstock.spark.parquet_files import write_files
from penstock.spark.tables.api import ROWS, Batch, Selection
from penstock.spark.tables.delta import DeltaMessageTable

SELECTION = Selection("20261121T000000-00000001", "messages", ("a/#",), ", as windows of 60 s")
ROW = {"epoch": SELECTION.epoch, "offset": 7, "window_end": datetime(2026, 11, 21, tzinfo=UTC)}


@pytest.fixture
def table(tmp_path: Path) -> DeltaMessageTable:
    rows = pa.Table.from_pylist([ROW])
    made = DeltaMessageTable(tmp_path / "means", rows.schema, ())
    files = list(write_files({ROWS: made.layout}, "part", [{ROWS: rows}]))
    made.commit(Batch("query", 0, SELECTION), files, 0, 8)
    return made


def test_a_table_whose_state_is_gone_is_not_continued(table: DeltaMessageTable) -> None:
    checkpoint = table.path / "_checkpoint"
    appended = AppendTarget(table, lambda messages: messages, checkpoint)
    with pytest.raises(ConfigError, match=r"whose state is lost: .* remove .*to compute"):
        appended.prepare(SELECTION)
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n-\n")
    with pytest.raises(ConfigError, match="whose state is lost"):
        appended.prepare(SELECTION)  # planned, but with no position
    position = '{"0": 8, "epoch": "20261121T000000-00000001"}'
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{position}\n")
    appended.prepare(SELECTION)
    assert appended.landed_end(SELECTION) == 8


def test_a_table_of_something_else_is_refused(table: DeltaMessageTable, tmp_path: Path) -> None:
    appended = AppendTarget(table, lambda messages: messages, tmp_path / "_checkpoint")
    other = Selection(SELECTION.epoch, "messages", ("a/#",), ", as windows of 30 s")
    with pytest.raises(ConfigError, match=r"topics a/#, as windows of 60 s; land .* of 30 s in"):
        appended.prepare(other)
