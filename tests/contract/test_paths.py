"""Directories that may not be entered: one sentence with what to do, from every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from penstock.errors import HistoryMismatch, StoreError, StoreUnavailable
from penstock.store import opening
from penstock.store.backup import back_up_offline, restore
from penstock.store.compaction import compact
from penstock.store.examination import examine
from penstock.store.paths import path_exists
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from tests.contract.test_backup import filled
from tests.contract.test_store import rows

UNENTERABLE: Final = "x" * 300  # for root too: longer than a name may be
COMMANDS: Final[list[Callable[[Path], object]]] = [
    RocksStore,
    examine,
    repair,
    compact,
    lambda place: back_up_offline(place, place / "backup"),
    lambda place: restore(place / "backup", place),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_data_directory_that_may_not_be_entered(
    tmp_path: Path, command: Callable[[Path], object]
) -> None:
    with pytest.raises(StoreError) as raised:
        command(tmp_path / UNENTERABLE / "data")
    assert "File name too long" in str(raised.value)


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"cannot be looked into: .*; let the user of this process"
    ):
        path_exists(tmp_path / UNENTERABLE / "CURRENT")
    with pytest.raises(StoreError, match=r"there is no store in .*; name .* with --data-dir"):
        examine(tmp_path)


def test_below_a_file_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not path_exists(tmp_path / "file" / "data")


def test_a_backup_to_where_nobody_may_write(tmp_path: Path) -> None:
    store = filled(tmp_path / "data", 1)
    with pytest.raises(StoreError, match="File name too long"):
        store.backup(tmp_path / UNENTERABLE / "backup")
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreUnavailable, match=r"the backup in .* failed: .*: look at the disk and"
    ):
        store.backup(tmp_path / "file" / "backup")
    store.close()


def test_a_store_that_cannot_be_looked_into_for_a_while_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path / "data", 1)

    def refused(data_dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(data_dir))

    with monkeypatch.context() as patched:
        patched.setattr(opening, "refuse_losses", refused)
        with pytest.raises(
            StoreUnavailable, match="Permission denied: let the broker's user write"
        ) as e:
            store.reopen()
        assert not isinstance(e.value, HistoryMismatch)
    store.reopen()
    store.commit(rows(5, 5))
    assert store.recover().next_offset == 10
    store.close()
