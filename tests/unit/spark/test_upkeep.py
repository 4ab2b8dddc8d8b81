"""Tables that look after themselves: few files, nothing lost, and the job never ends. No Spark."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pydantic import ValidationError

from penstock.config.derived import DerivedDefinition
from penstock.config.table import TableDefinition
from penstock.config.upkeep import UpkeepDefinition
from penstock.spark.storage.local import LocalLocation
from penstock.spark.tables import delta_log
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import Landed, LandedTable, Outcome, Span, TableError
from penstock.spark.tables.upkeep import SWEEP_S, Upkeep
from penstock.spark.tables.upkeep_record import read_upkeep_record
from tests.support.landed_tables import (
    EPOCH,
    SCHEMA,
    SELECTION,
    Open,
    iceberg_at,
    land,
    landed_end,
    offsets,
    opener,
)
from tests.support.places import path_of

FEW = UpkeepDefinition(merge_files=5, share=0.9)


class Clock:
    """Stands still unless told otherwise."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def landed(table: LandedTable, upkeep: Upkeep, count: int, first: int = 0) -> None:
    """So many commits of three rows each, looked after."""
    for n in range(first, first + count):
        assert land(table, 3 * n, 3 * n + 3) is Outcome.LANDED
        upkeep.after_commit()


@pytest.fixture
def open_table(kind: str, tmp_path: Path) -> Open:
    return opener(kind, tmp_path)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_stay_few_and_every_row_is_there_once(kind: str, open_table: Open) -> None:
    table = open_table(SCHEMA, ())
    landed(table, Upkeep([table], FEW, clock_s=Clock()), 60)
    assert offsets(kind, table) == list(range(180))
    files = table.live_files()
    assert files is not None
    assert len(files) <= 3 * 4, "three sizes of files, at most four of each"
    upkept = read_upkeep_record(table.location)
    assert upkept.failures == 0
    assert upkept.merged_files >= 5 * upkept.merged_into > 0
    again = open_table(SCHEMA, ())
    assert again.landed(SELECTION) == Landed(0, 180), "the guard against repetitions is there"


def test_a_directory_of_parquet_files_is_left_as_it_is(tmp_path: Path) -> None:
    table = opener("parquet", tmp_path)()
    landed(table, Upkeep([table], FEW), 10)
    assert offsets("parquet", table) == list(range(30))
    assert read_upkeep_record(table.location).merged_at_s == 0


@pytest.mark.torture("four hundred commits")
def test_fault_7_iceberg_metadata_does_not_grow_with_the_number_of_commits(tmp_path: Path) -> None:
    table = IcebergTable(tmp_path / "readings", SCHEMA, ("date",), tmp_path / "iceberg.db")
    definition = UpkeepDefinition(merge_files=5, share=0.9, versions_max=10)
    upkeep = Upkeep([table], definition, clock_s=Clock())
    sizes: list[int] = []
    for first, count in ((0, 100), (100, 40)):  # the names of the last hundred files are in it
        landed(table, upkeep, count, first)
        sizes.append(Path(iceberg_at(path_of(table)).metadata_location).stat().st_size)
        found = iceberg_at(path_of(table))
        assert len(found.snapshots()) <= 10 + 5
        current = found.current_snapshot()
        assert current is not None
        assert len(current.manifests(found.io)) <= 55
    assert sizes[1] < sizes[0] * 1.1
    assert offsets("iceberg", table) == list(range(420))


def test_fault_7_the_log_of_a_delta_table_is_cleaned(tmp_path: Path) -> None:
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ("date",))
    upkeep = Upkeep([table], FEW, clock_s=Clock())
    log = path_of(table) / "_delta_log"
    landed(table, upkeep, 150)
    hours_ago = time.time() - 5 * 3600
    for path in log.iterdir():  # as if it had taken that long
        os.utime(path, (hours_ago, hours_ago))
    landed(table, upkeep, 150, 150)
    assert len(list(log.iterdir())) < 250, "of more than 300 commits"
    assert offsets("delta", table) == list(range(900))
    assert landed_end(DeltaMessageTable(path_of(table), SCHEMA, ("date",))) == 900


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_reader_of_an_earlier_version_keeps_its_files(kind: str, open_table: Open) -> None:
    table = open_table(SCHEMA, ("date",))
    upkeep = Upkeep([table], UpkeepDefinition(merge_files=5, share=0.9, versions_max=2))
    landed(table, upkeep, 4)
    days_ago = time.time() - 72 * 3600
    for path in path_of(table).rglob("*.*"):
        if path.is_file():
            os.utime(path, (days_ago, days_ago))
    read = (
        DeltaTable(path_of(table)).to_pyarrow_dataset().to_table
        if kind == "delta"
        else iceberg_at(path_of(table)).scan().to_arrow
    )
    landed(table, upkeep, 20, 4)
    table.remove_orphans(24, remove=True)
    assert sorted(read().column("offset").to_pylist()) == list(range(12))
    assert offsets(kind, table) == list(range(72))
    if kind == "iceberg":  # and a day later they are gone
        for path in path_of(table).rglob("*.*"):
            if path.is_file():
                os.utime(path, (days_ago, days_ago))
        assert len(table.remove_orphans(24, remove=True)) > 10
        assert offsets(kind, table) == list(range(72))
        assert table.remove_orphans(24, remove=True) == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_writer_that_changes_the_files_meanwhile_comes_first(kind: str, open_table: Open) -> None:
    table, other = open_table(SCHEMA, ()), open_table(SCHEMA, ())
    landed(table, Upkeep([table], UpkeepDefinition(share=0)), 6)
    files = table.live_files()
    assert files is not None
    other.replace(Span(EPOCH, 0, 2), [])
    assert not table.compact([[file.path for file in files]], 10)
    assert offsets(kind, table) == list(range(2, 18))
    files = table.live_files()
    assert files is not None
    assert table.compact([[file.path for file in files]], 10)
    assert offsets(kind, table) == list(range(2, 18))
    assert len(table.recent_files(timedelta.max)) == 1


class Failing:
    """A table of which nobody gets anything."""

    def __init__(self, path: Path) -> None:
        self.location = LocalLocation(path)
        self.asked = 0
        self.error: Exception | None = TableError("the disk is gone")

    def live_files(self) -> Sequence[object]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return []

    def compact(self, *_: object) -> bool:
        return True

    def remove_orphans(self, *_: object, **__: object) -> list[str]:
        return []


def test_an_error_ends_nothing_is_told_and_is_tried_again_later(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing(tmp_path)
    upkeep = Upkeep([failing], FEW, clock, clock)  # type: ignore[list-item]
    with caplog.at_level(logging.WARNING):
        upkeep.after_commit()
    assert f"upkeep of {tmp_path} failed, and is tried again later: the disk is" in caplog.text
    (sentence,) = read_upkeep_record(LocalLocation(tmp_path)).sentences()
    assert sentence.endswith("failed 1 times in a row, and is tried again: the disk is gone")
    for _ in range(5):
        upkeep.after_commit()
    assert failing.asked == 1, "not with every commit"
    clock.now_s += 6
    for _ in range(5):
        upkeep.after_commit()
    clock.now_s += 6
    for _ in range(5):
        upkeep.after_commit()
    assert failing.asked == 2, "the second pause is longer"
    clock.now_s += 6
    failing.error = None
    for _ in range(5):
        upkeep.after_commit()
    assert failing.asked == 3
    assert read_upkeep_record(LocalLocation(tmp_path)).failures == 0


def data_files(table: LandedTable) -> list[Path]:
    return [path for path in path_of(table).rglob("*.parquet") if path.parent.name != "_delta_log"]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_fault_11_files_that_are_lost_end_no_job_and_are_told(
    kind: str, open_table: Open, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A DeltaError was swallowed for ever, and an OSError ended the job after its commit."""
    table = open_table()
    upkeep = Upkeep([table], FEW, clock, clock)
    landed(table, upkeep, 10)
    aside = {lost: lost.rename(lost.with_suffix(".aside")) for lost in data_files(table)}
    landed(table, upkeep, 1, first=10)
    assert len(caplog.messages) == 1
    assert f"upkeep of {path_of(table)} failed, and is tried again later: " in caplog.text
    for lost, kept in aside.items():
        kept.rename(lost)
    clock.now_s += 3600
    landed(table, upkeep, 5, first=11)
    assert len(caplog.messages) == 1
    assert read_upkeep_record(table.location).failures == 0
    assert read_upkeep_record(table.location).merged_files > 0
    assert offsets(kind, table) == list(range(48))


def test_no_more_of_the_job_s_time_than_its_share(tmp_path: Path, clock: Clock) -> None:
    slow = Failing(tmp_path)
    slow.error = None

    def compact(*_: object) -> bool:
        clock.now_s += 2
        return True

    slow.compact = compact  # type: ignore[method-assign]
    upkeep = Upkeep([slow], UpkeepDefinition(merge_files=2, share=0.2), clock, clock)  # type: ignore[list-item]
    for _ in range(1000):
        upkeep.after_commit()
        clock.now_s += 0.1
    assert slow.asked == pytest.approx((clock.now_s - 1000) * 0.2 / 2, abs=1)


def test_leftovers_are_looked_for_once_an_hour_also_by_jobs_that_are_short(
    tmp_path: Path, clock: Clock
) -> None:
    swept: list[float] = []

    class Table(Failing):
        def remove_orphans(self, *_: object, **__: object) -> list[str]:
            swept.append(clock.now_s)
            return ["one"]

    table = Table(tmp_path)
    table.error = None
    for _ in range(30):
        Upkeep([table], FEW, clock, clock).after_commit()  # type: ignore[list-item]
        clock.now_s += 600
    assert len(swept) == 30 * 600 / SWEEP_S


def test_settings_that_became_others_are_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"compact_commits is now upkeep\.merge_files"):
        TableDefinition.model_validate({"name": "t", "topics": "a/#", "compact_commits": 3})
    derived = {"name": "t", "kind": "last_known", "source": "s", "compact_bytes": 2**20}
    with pytest.raises(ValidationError, match=r"compact_bytes is now upkeep\.file_bytes"):
        DerivedDefinition.model_validate(derived)


def test_a_reader_that_was_away_while_the_log_was_cut_sees_the_table_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next commit is cleaned up: to look for that one only would be to see nothing new."""
    monkeypatch.setattr(delta_log, "COMMITS_MIN", 2)
    away, busy = (DeltaMessageTable(tmp_path / "readings", SCHEMA, ()) for _ in range(2))
    land(away, 0, 3)
    assert landed_end(away) == 3
    idle = Upkeep([busy], UpkeepDefinition(share=0))
    landed(busy, idle, 9, 1)
    DeltaTable(path_of(busy)).create_checkpoint()
    landed(busy, idle, 4, 10)
    assert busy.compact([], 2)
    commits = sorted(path.name for path in (path_of(busy) / "_delta_log").glob("*.json"))
    assert commits[0] == f"{9:020}.json"
    assert landed_end(away) == 42
    assert land(away, 42, 45) is Outcome.LANDED
    assert offsets("delta", busy) == list(range(45))
