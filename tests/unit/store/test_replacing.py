"""A store that is replaced by a copy: killed at each of its steps, one of both is there."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.errors import StoreError
from penstock.store.backup import back_up
from penstock.store.database import STORE_DIRECTORY, open_database, open_for_reading
from penstock.store.identity import begin_epoch, read_epoch
from penstock.store.replacing import (
    READY_COPY,
    REPLACED_STORE,
    UNFINISHED_COPY,
    finish_replacement,
    mark_copy_ready,
    new_unfinished_copy,
)
from penstock.store.watermark import read_watermark

CHANGES = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "open"})
STEPS_MAX = 200
KILLED = 77
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


class Case(NamedTuple):
    """A store, and a copy of another one that has arrived."""

    data_dir: Path
    own: str
    other: str

    def epoch(self) -> str:
        """The epoch of the store that a broker would open."""
        database = open_for_reading(self.data_dir)
        try:
            return read_epoch(database) or ""
        finally:
            database.close()


def make_store(data_dir: Path) -> str:
    """A new store; its epoch."""
    data_dir.mkdir(exist_ok=True)
    database = open_database(data_dir)
    try:
        return begin_epoch(database)
    finally:
        database.close()


def make_case(directory: Path) -> Case:
    data_dir, peer = directory / "data", directory / "peer"
    own, other = make_store(data_dir), make_store(peer)
    unfinished = new_unfinished_copy(data_dir)
    (unfinished / STORE_DIRECTORY).rmdir()
    unfinished.rmdir()
    database = open_database(peer)
    try:
        back_up(database, unfinished)
    finally:
        database.close()
    return Case(data_dir, own, other)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A case that tests copy: to make stores takes longer than to replace them."""
    return make_case(tmp_path_factory.mktemp("template"))


def copied(template: Case, directory: Path) -> Case:
    """A case of its own for one test, or one step."""
    shutil.copytree(template.data_dir, directory / "data")
    return template._replace(data_dir=directory / "data")


def replace(data_dir: Path, keep_old_store: bool) -> None:
    """Replace the store by the copy that has arrived."""
    mark_copy_ready(data_dir, keep_old_store)
    finish_replacement(data_dir)


def act_until(step: int, act: Callable[[], object]) -> None:
    """End this process before change number ``step`` of ``act``."""
    left = step

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if left < 0:
                os._exit(KILLED)

    sys.addaudithook(count)
    act()


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Whether ``act`` was killed before its change number ``step``; it runs in a child.

    A server with a single thread forks the child: a fork of the test's own process, which has
    threads, would wait for ever for a lock that one of those had taken.
    """
    child = FORKS.Process(target=act_until, args=(step, act))
    child.start()
    child.join()
    assert child.exitcode in (0, KILLED)
    return child.exitcode == KILLED


@pytest.mark.parametrize("keep_old_store", [False, True])
def test_a_kill_at_any_step_leaves_one_of_both_whole(
    template: Case, tmp_path: Path, keep_old_store: bool
) -> None:
    for step in range(STEPS_MAX):
        case = copied(template, tmp_path / str(step))
        killed = killed_at(step, partial(replace, case.data_dir, keep_old_store))
        is_ready = (case.data_dir / READY_COPY).exists()
        finish_replacement(case.data_dir)
        epoch = case.epoch()
        assert epoch in (case.own, case.other)
        assert epoch == case.other or not is_ready
        names = {path.name for path in case.data_dir.iterdir()}
        assert not names & {READY_COPY, REPLACED_STORE}
        if epoch == case.other:
            watermark = read_watermark(case.data_dir)
            assert watermark is not None
            assert watermark.epoch == case.other
            assert any(".kept-" in name for name in names) == keep_old_store
        if not killed:
            assert epoch == case.other
            assert step > 5
            return
    pytest.fail("it never ended")


def test_a_second_kill_while_it_goes_on_does_no_harm(template: Case, tmp_path: Path) -> None:
    for step in range(STEPS_MAX):
        case = copied(template, tmp_path / str(step))
        mark_copy_ready(case.data_dir, keep_old_store=False)
        if not killed_at(step, partial(finish_replacement, case.data_dir)):
            assert case.epoch() == case.other
            return
        for again in range(STEPS_MAX):
            if not killed_at(again, partial(finish_replacement, case.data_dir)):
                break
        assert case.epoch() == case.other
        assert not (case.data_dir / REPLACED_STORE).exists()
    pytest.fail("it never ended")


def test_a_store_stays_where_there_is_nothing_to_finish(tmp_path: Path) -> None:
    own = make_store(tmp_path / "data")
    assert finish_replacement(tmp_path / "data") is None
    assert Case(tmp_path / "data", own, "").epoch() == own


def test_a_copy_without_a_manifest_does_not_count(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    new_unfinished_copy(tmp_path / "data")
    with pytest.raises(StoreError, match="has no backup"):
        mark_copy_ready(tmp_path / "data", keep_old_store=False)


def test_an_attempt_removes_what_the_one_before_left(tmp_path: Path) -> None:
    (tmp_path / UNFINISHED_COPY).mkdir()
    (tmp_path / UNFINISHED_COPY / "half").touch()
    assert [path.name for path in new_unfinished_copy(tmp_path).iterdir()] == [STORE_DIRECTORY]


def test_an_open_store_is_not_replaced(template: Case, tmp_path: Path) -> None:
    case = copied(template, tmp_path)
    mark_copy_ready(case.data_dir, keep_old_store=False)
    database = open_database(case.data_dir)
    try:  # the lock is of a process
        assert subprocess.run(finishing(case), check=False).returncode == KILLED
    finally:
        database.close()
    assert finish_replacement(case.data_dir) is None
    assert case.epoch() == case.other


def finishing(case: Case) -> list[str]:
    """The command that finishes, and ends with ``KILLED`` if the store is locked."""
    program = (
        "import sys; from pathlib import Path;"
        "from penstock.errors import StoreLocked;"
        "from penstock.store.replacing import finish_replacement\n"
        f"try: finish_replacement(Path({str(case.data_dir)!r}))\n"
        f"except StoreLocked: sys.exit({KILLED})\n"
    )
    return [sys.executable, "-c", program]
