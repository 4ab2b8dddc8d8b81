"""The numbers that a Delta table stores, read once from its log, are those that deltalake finds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.spark.storage.local import LocalLocation
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.delta_transactions import KnownVersion
from tests.support.landed_tables import SCHEMA, SELECTION, land
from tests.support.places import path_of

KEYS = (SELECTION.transaction_id, SELECTION.key("start"), "penstock-epochs", "nobody's")


@pytest.fixture
def table(tmp_path: Path) -> DeltaMessageTable:
    return DeltaMessageTable(tmp_path / "readings", SCHEMA, ("date",))


def log_of(table: DeltaMessageTable) -> KnownVersion:
    return KnownVersion(LocalLocation(path_of(table) / "_delta_log"))


def verify(table: DeltaMessageTable, known: KnownVersion) -> None:
    delta = DeltaTable(path_of(table))
    known.follow(delta.version())
    found = known.numbers
    assert found is not None
    assert {key: found.get(key) for key in KEYS} == {
        key: delta.transaction_version(key) for key in KEYS
    }
    assert found[SELECTION.transaction_id] > 0


def test_the_numbers_follow_each_commit_and_begin_at_a_checkpoint(table: DeltaMessageTable) -> None:
    following = log_of(table)
    for n in range(6):
        land(table, n, n + 1)
        if n == 3:
            DeltaTable(path_of(table)).create_checkpoint()
        verify(table, following)
        verify(table, log_of(table))
    for commit in range(3):
        (path_of(table) / f"_delta_log/{commit:020}.json").unlink()
    verify(table, following)
    verify(table, log_of(table))


def test_a_version_is_known_by_its_commit(table: DeltaMessageTable, tmp_path: Path) -> None:
    land(table, 0, 1)
    shutil.copytree(path_of(table), tmp_path / "older")
    land(table, 1, 2)
    known = log_of(table)
    assert not known.is_there(1), "nothing has been read"
    verify(table, known)
    assert known.is_there(1)
    assert not known.is_there(0)
    shutil.rmtree(path_of(table))
    shutil.copytree(tmp_path / "older", path_of(table))
    assert not known.is_there(1)
    land(table, 1, 3)
    assert DeltaTable(path_of(table)).version() == 1
    assert not known.is_there(1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: (log / "_last_checkpoint").write_text('{"version": 2, "size": 9, "parts": 2}'),
        lambda log: (log / "_last_checkpoint").write_text('{"version": 9, "size": 9}'),
        lambda log: (log / f"{1:020}.json").unlink(),
    ],
    ids=["parts of another writer", "behind the version", "expired without a checkpoint"],
)
def test_a_log_that_cannot_be_read_here_is_left_to_deltalake(
    table: DeltaMessageTable, damage: object
) -> None:
    for n in range(3):
        land(table, n, n + 1)
    assert callable(damage)
    damage(path_of(table) / "_delta_log")
    known = log_of(table)
    known.follow(2)
    assert known.numbers is None
    assert known.is_there(2), "the commit itself can be read"
