"""Whatever becomes of jobs and of copies of their tables, each message lands once. No Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS, PlannedBatch, TableError
from tests.support.budget import budget
from tests.support.derived_histories import DerivedHistory
from tests.support.landing_histories import FORMATS, History, open_tables

HISTORIES = 40


@pytest.mark.timeout(3600)
def test_each_message_lands_once_whatever_is_killed_put_back_or_run_twice(tmp_path: Path) -> None:
    for seed in range(budget(HISTORIES)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        history = History(seed, directory)
        try:
            history.play()
            history.verify()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}, after {history.told}") from error


@pytest.mark.parametrize("seed", range(6))
def test_an_epoch_that_the_log_has_left_more_than_once_is_marked_each_time(
    tmp_path: Path, seed: int
) -> None:
    """It is put back to one copy again and again; the epoch between is none of its own any more."""
    history = History(seed, tmp_path)
    twice = ("put_back_the_log", "publish_some", "finish") * 2
    history.play_these("start", "copy_the_log", "publish_some", "finish", *twice)
    history.verify()


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_that_another_job_lets_grow_is_not_taken_for_the_table_that_a_job_knows(
    tmp_path: Path, seed: int
) -> None:
    """Of a Delta table; it has as many versions as the job has seen, and other messages in them."""
    history = History(seed, tmp_path, "delta", "earliest")
    history.land_all(10)
    history.play_these("copy", *("publish_some", "finish") * 3)
    history.play_these(*("put_back_under_a_running_job",) * 3, "finish")
    history.verify()


@pytest.mark.parametrize("seed", range(6))
def test_a_table_of_an_older_version_goes_on_and_has_its_epochs_in_order_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """It has no list of them; at first it has no rows, either."""
    history = History(seed, tmp_path)
    first = history.log.epoch
    with monkeypatch.context() as older:
        older.setattr(PlannedBatch, "_listed", lambda *_: {})
        history.play_these("start", "finish", "copy_the_log", "publish_some", "finish")
    history.play_these("finish", "put_back_the_log", "publish_some", "finish")
    history.verify()
    received = open_tables(history.kind, history.directory)[ROWS].epochs()
    assert received == (first, history.log.epoch)


@pytest.mark.timeout(3600)
def test_a_window_is_there_once_and_whole_or_its_job_is_refused(tmp_path: Path) -> None:
    refusals = 0
    for seed in range(budget(HISTORIES)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        history = DerivedHistory(seed, directory)
        try:
            history.play()
            history.verify()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}, after {history.told}") from error
        refusals += history.refusals
    assert refusals or budget(HISTORIES) < HISTORIES, "states were put back that do not fit"


@pytest.mark.parametrize("copy", ["older", "empty"])
@pytest.mark.parametrize("lost", [(ROWS,), (DEAD_LETTERS,), (ROWS, DEAD_LETTERS)])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_comes_back_alone_gets_what_it_lacks_or_is_refused(
    tmp_path: Path, kind: str, lost: tuple[str, ...], copy: str
) -> None:
    """The rows without their dead letters, or the other way round; an Iceberg table without its
    catalog."""
    history = History(0, tmp_path, kind, "earliest")
    history.land_all(10)
    copied = tmp_path / "copy"
    shutil.copytree(history.directory, copied)
    history.land_all(20)
    for name in lost:
        shutil.rmtree(history.directory / name)
        if copy == "older":
            shutil.copytree(copied / name, history.directory / name)
    if kind == "iceberg":
        with pytest.raises(TableError, match="cannot be read"):
            history.land_all(5)
    elif lost == (DEAD_LETTERS,):
        with pytest.raises(TableError, match="are older than the rows in"):
            history.land_all(5)
    else:
        history.land_all(5)
        history.verify()
