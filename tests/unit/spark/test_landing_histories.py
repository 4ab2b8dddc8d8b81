"""Whatever becomes of jobs and of copies of their tables, each message lands once. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.budget import budget
from tests.support.derived_histories import DerivedHistory
from tests.support.landing_histories import History

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
