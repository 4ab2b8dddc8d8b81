"""A plain directory of Parquet files: each message is there once, whatever becomes of writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from penstock.spark.storage.local import LocalLocation
from penstock.spark.tables.directory import ParquetDirectory
from penstock.spark.tables.landed_table import (
    Outcome,
    PlannedBatch,
    Span,
    TableCommitUnknown,
)
from tests.support.landed_tables import (
    EPOCH,
    SCHEMA,
    SELECTION,
    land,
    landed_end,
    rows,
    written,
)
from tests.support.places import local_path, path_of


@pytest.fixture
def directory(tmp_path: Path) -> ParquetDirectory:
    return ParquetDirectory(tmp_path / "readings", SCHEMA, ("date",))


def seen(directory: ParquetDirectory) -> list[int]:
    """What a reader of the whole directory finds."""
    if not list(path_of(directory).glob("**/*.parquet")):
        return []
    found = duckdb.execute(f"select \"offset\" from '{path_of(directory)}/**/*.parquet' order by 1")
    return [offset for (offset,) in found.fetchall()]


def test_files_of_a_lost_attempt_are_not_seen(directory: ParquetDirectory) -> None:
    written(directory, rows(0, 5))
    assert seen(directory) == []
    land(directory, 0, 5)
    assert seen(directory) == list(range(5))


def test_a_commit_that_was_cut_off_is_carried_out_by_the_next_writer(
    directory: ParquetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(directory, 0, 5)
    with monkeypatch.context() as killed:
        killed.setattr(ParquetDirectory, "_apply", lambda *_: None)
        land(directory, 5, 10)
    assert seen(directory) == list(range(5))
    again = ParquetDirectory(path_of(directory), SCHEMA, ("date",))
    again.prepare(SELECTION)
    assert landed_end(again) == 10
    assert seen(directory) == list(range(10))


def everything(directory: ParquetDirectory) -> list[tuple[Path, int]]:
    """All files and directories, with the times of their last change."""
    found = path_of(directory).rglob("*")
    return sorted((path, path.stat().st_mtime_ns) for path in found)


@pytest.mark.parametrize("work", ["land", "replace"])
def test_a_reader_goes_by_a_commit_that_was_cut_off_and_writes_nothing(
    directory: ParquetDirectory, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """It renamed and removed the files of the last commit, whatever it was to tell."""
    land(directory, 0, 5)
    with monkeypatch.context() as killed:
        killed.setattr(ParquetDirectory, "_apply", lambda *_: None)
        if work == "land":
            land(directory, 5, 10)
        else:
            directory.replace(Span(EPOCH, 0, 3), written(directory, rows(0, 1)))
    before = everything(directory)
    reader = ParquetDirectory(path_of(directory), SCHEMA, ("date",))
    contents = reader.contents()
    assert contents is not None
    assert contents.rows == (10 if work == "land" else 3)
    assert reader.epochs() == (EPOCH,)
    assert landed_end(reader) == (10 if work == "land" else 5)
    found = [pq.read_table(local_path(file)).column("offset") for file, _ in reader.files()]
    offsets_of_files = sorted(offset for column in found for offset in column.to_pylist())
    assert offsets_of_files == (list(range(10)) if work == "land" else [0, 3, 4])
    assert reader.live_files() == []
    assert reader.remove_orphans(0, remove=False) == []
    reader.prepare(SELECTION, add=False)
    assert everything(directory) == before


def test_only_the_latest_commits_are_kept(
    directory: ParquetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.tables.directory.COMMITS_KEPT", 3)
    for n in range(6):
        land(directory, n, n + 1)
    assert commit_numbers(directory) == [3, 4, 5]
    assert seen(directory) == list(range(6))


def test_commits_that_a_killed_writer_left_are_removed_first(
    directory: ParquetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer tells by the one before its own that none after it has been removed."""
    monkeypatch.setattr("penstock.spark.tables.directory.COMMITS_KEPT", 3)
    with monkeypatch.context() as killed:
        killed.setattr(ParquetDirectory, "_remove_commits", lambda *_: None)
        for n in range(6):
            land(directory, n, n + 1)
    assert commit_numbers(directory) == [0, 1, 2, 3, 4, 5]
    removed: list[str] = []
    monkeypatch.setattr(LocalLocation, "remove", lambda self: removed.append(self.name))
    land(directory, 6, 7)
    assert removed == [f"{number:020}.json" for number in range(4)]


def commit_numbers(directory: ParquetDirectory) -> list[int]:
    return sorted(int(path.stem) for path in (path_of(directory) / "_penstock").iterdir())


@pytest.mark.parametrize("looked", ["at a table", "at nothing"])
@pytest.mark.parametrize("others", [9, 10, 11, 23])
def test_a_writer_that_was_paused_while_others_made_many_commits_adds_nothing(
    directory: ParquetDirectory, monkeypatch: pytest.MonkeyPatch, others: int, looked: str
) -> None:
    """It made a commit of a number that was free again, and its files appeared beside those of the
    others: each message twice."""
    monkeypatch.setattr("penstock.spark.tables.directory.COMMITS_KEPT", 10)
    other = ParquetDirectory(path_of(directory), SCHEMA, ("date",))
    first = 0
    if looked == "at a table":
        land(directory, 0, 2)
        first = 2
    files = written(directory, rows(first, first + 2))
    append = ParquetDirectory._append

    def paused(self: ParquetDirectory, *arguments: Any) -> bool:
        if self is directory:
            monkeypatch.setattr(ParquetDirectory, "_append", append)
            for n in range(first, first + others):
                assert land(other, n, n + 1) is Outcome.LANDED
        return append(self, *arguments)

    monkeypatch.setattr(ParquetDirectory, "_append", paused)
    outcome = directory.commit(PlannedBatch(SELECTION, first, first + 2), files)
    assert outcome in (Outcome.OVERTAKEN, Outcome.LANDED), "the others landed these messages"
    assert seen(directory) == list(range(first + others))
    end = first + others
    assert landed_end(directory) == end
    assert land(directory, end, end + 1) is Outcome.LANDED
    assert seen(other) == list(range(end + 1))


def test_a_replacement_whose_writer_was_paused_too_long_tells_that_it_is_not_known(
    directory: ParquetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its own commit is one of those that are removed cannot be told: the table is left as
    it is."""
    monkeypatch.setattr("penstock.spark.tables.directory.COMMITS_KEPT", 3)
    land(directory, 0, 5)
    other = ParquetDirectory(path_of(directory), SCHEMA, ("date",))
    create = LocalLocation.create

    def paused(self: LocalLocation, content: bytes) -> bool:
        made = create(self, content)
        if self.name == f"{1:020}.json":
            for n in range(5, 12):
                assert land(other, n, n + 1) is Outcome.LANDED
        return made

    monkeypatch.setattr(LocalLocation, "create", paused)
    with pytest.raises(TableCommitUnknown, match="so many others meanwhile"):
        directory.replace(Span(EPOCH, 0, 3), written(directory, rows(0, 1)))
    assert seen(directory) == [0, *range(3, 12)], "another writer carried it out"
    directory.replace(Span(EPOCH, 0, 3), written(directory, rows(0, 1)))
    assert seen(directory) == [0, *range(3, 12)]
