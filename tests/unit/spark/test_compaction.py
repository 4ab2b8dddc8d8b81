"""Compaction after commits: what goes wrong there is told, tried again later, and ends nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.spark.delta_commit import MessageTable
from penstock.spark.jobs.compaction import PAUSE_S_MAX, PAUSE_S_MIN, Compaction
from penstock.spark.tables.api import TableError
from tests.unit.spark.test_delta_commit import BATCH_0, commit, landed, table_at, written


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def land(table: MessageTable, batch_id: int) -> None:
    batch = replace(BATCH_0, batch_id=batch_id)
    commit(table, batch, written(table, 10 * batch_id, 10 * batch_id + 10))


def operations(table: MessageTable) -> list[str]:
    return [commit["operation"] for commit in DeltaTable(table.path).history()]


@pytest.fixture
def table(tmp_path: Path) -> MessageTable:
    made = table_at(tmp_path / "readings")
    for batch_id in range(4):
        land(made, batch_id)
    return made


def test_a_compaction_that_fails_is_told_and_ends_nothing_and_is_tried_again_later(
    table: MessageTable, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 24, fault 11: a DeltaError was swallowed for ever, an OSError ended the job."""
    clock = Clock()
    compaction = Compaction(table, 2, 2**20, clock)
    lost = table.path / table.present_files()[0]
    aside = lost.rename(lost.with_suffix(".aside"))
    with pytest.raises(TableError, match=r"small files of the table in .* were not put together"):
        table.compact(2, 2**20)

    compaction()
    (line,) = caplog.messages
    assert f"the small files of the table in {table.path} were not put together: " in line
    assert "messages land as before, and it is tried again in " in line
    land(table, 4)
    compaction()
    assert len(caplog.messages) == 1, "not before a pause"

    clock.now_s += 1.25 * PAUSE_S_MIN
    compaction()
    assert len(caplog.messages) == 2, "and told again"
    aside.rename(lost)
    clock.now_s += 1.25 * PAUSE_S_MAX
    compaction()
    assert len(caplog.messages) == 2
    assert operations(table)[0] == "OPTIMIZE"
    assert landed(table) == list(range(50))


def test_a_table_that_cannot_be_read_ends_no_job_after_its_commit(
    table: MessageTable, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the disk, where the table is looked at before it is compacted."""
    (table.path / "_delta_log").rename(table.path / "aside")
    Compaction(table, 2, 2**20)()
    assert len(caplog.messages) == 1
