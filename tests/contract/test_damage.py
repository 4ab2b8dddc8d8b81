"""A store that holds less than was acknowledged is refused, and goes on only in a new epoch.

RocksDB recovers its write-ahead log up to the first record it cannot read. Without the watermark a
byte that flips in the middle of it would take acknowledged messages away and give their offsets to
others, and nobody would notice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.engine.batch.commit import Commit
from penstock.errors import HistoryMismatch, StoreError
from penstock.store.database import STORE_DIRECTORY, open_for_reading
from penstock.store.identity import read_lineage
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from penstock.store.watermark import WATERMARK_FILE, Watermark, read_watermark
from tests.contract.test_store import progress, rows, session
from tests.support.crash_image import copy_running

COMMITS = 20
ROWS = 3
END = COMMITS * ROWS

Damage = Callable[[Path], None]


def filled(data_dir: Path) -> str:
    """What a process that dies leaves, its last commit without a message; the epoch."""
    store = RocksStore(data_dir / "running")
    for number in range(COMMITS):
        commit = rows(number * ROWS, ROWS, size=100)
        commit.sessions = [session(f"c{number}", number + 1)]
        store.commit(commit)
    store.commit(state_only())
    crash(store, data_dir / "running", data_dir)
    return read_epoch_of(data_dir)


def crash(store: RocksStore, running: Path, data_dir: Path) -> None:
    """Copy the files as they are, for closing a store tidies them up."""
    for name in (STORE_DIRECTORY, WATERMARK_FILE):
        copy = copy_running if (running / name).is_dir() else shutil.copy
        copy(running / name, data_dir / name)
    store.close()
    shutil.rmtree(running)


def read_epoch_of(data_dir: Path) -> str:
    said = read_watermark(data_dir)
    assert said is not None
    return said.epoch


def state_only() -> Commit:
    commit = Commit(END)
    commit.progress = [progress(1, head=2)]
    return commit


def wal(data_dir: Path) -> Path:
    """The write-ahead log in which the messages are."""
    logs = (data_dir / STORE_DIRECTORY).glob("*.log")
    return max(logs, key=lambda path: path.stat().st_size)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def flip_in_the_middle(data_dir: Path) -> None:
    path = wal(data_dir)
    flip(path, path.stat().st_size // 2)


def flip_in_the_first_record(data_dir: Path) -> None:
    flip(wal(data_dir), 20)


def lose_the_database(data_dir: Path) -> None:
    shutil.rmtree(data_dir / STORE_DIRECTORY)


def lose_the_log(data_dir: Path) -> None:
    wal(data_dir).unlink()


DAMAGES = [flip_in_the_middle, flip_in_the_first_record, lose_the_database, lose_the_log]


def contents(directory: Path) -> dict[str, bytes]:
    """The files of a database that hold what was written to it."""
    kept = (".log", ".sst", "CURRENT")
    return {
        path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith(kept)
    }


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_lost_messages_is_refused_each_time(tmp_path: Path, damage: Damage) -> None:
    filled(tmp_path)
    damage(tmp_path)
    said = set()
    for _ in range(3):
        with pytest.raises(HistoryMismatch, match=r"'penstock store repair --data-dir") as refusal:
            RocksStore(tmp_path)
        said.add(str(refusal.value))
    assert len(said) == 1, "the first refusal changes nothing"


def test_the_refusal_says_which_messages_are_missing(tmp_path: Path) -> None:
    filled(tmp_path)
    flip_in_the_middle(tmp_path)
    with pytest.raises(HistoryMismatch) as refusal:
        RocksStore(tmp_path)
    repaired = repair(tmp_path)
    assert 0 < repaired.end < END
    assert (
        f"has lost {END - repaired.end} acknowledged messages, those with the offsets "
        f"{repaired.end} to {END - 1}, " in str(refusal.value)
    )


def test_a_refusal_leaves_what_can_still_be_saved(tmp_path: Path) -> None:
    """Recovery would drop the write-ahead log, with the commits behind the damage."""
    filled(tmp_path)
    flip_in_the_middle(tmp_path)
    before = contents(tmp_path / STORE_DIRECTORY)
    with pytest.raises(HistoryMismatch):
        RocksStore(tmp_path)
    assert contents(tmp_path / STORE_DIRECTORY) == before


def test_a_lost_commit_without_messages_is_missed_too(tmp_path: Path) -> None:
    filled(tmp_path)
    path = wal(tmp_path)
    flip(path, path.stat().st_size - 5)
    with pytest.raises(HistoryMismatch, match="has lost the last acknowledged change of sessions"):
        RocksStore(tmp_path)
    assert repair(tmp_path).end == END


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_repaired_store_goes_on_in_a_new_epoch(tmp_path: Path, damage: Damage) -> None:
    epoch = filled(tmp_path)
    damage(tmp_path)
    repaired = repair(tmp_path)
    assert repaired.loss is not None
    store = RocksStore(tmp_path)
    recovered = store.recover()
    assert recovered.epoch == repaired.epoch != epoch
    assert recovered.next_offset == repaired.end
    assert sorted(store.read(range(END))) == list(range(repaired.end))
    assert len(recovered.sessions) == repaired.end // ROWS, "whole commits, in their order"
    store.commit(rows(repaired.end, ROWS))
    store.close()
    RocksStore(tmp_path).close()


def test_the_former_epochs_are_kept_with_their_ends(tmp_path: Path) -> None:
    first = filled(tmp_path)
    flip_in_the_middle(tmp_path)
    second = repair(tmp_path)
    database = open_for_reading(tmp_path)
    assert read_lineage(database) == [(first, second.end)]
    database.close()


def test_a_store_that_lost_nothing_is_not_repaired(tmp_path: Path) -> None:
    epoch = filled(tmp_path)
    repaired = repair(tmp_path)
    assert (repaired.epoch, repaired.end, repaired.loss) == (epoch, END, None)
    assert repair(tmp_path) == repaired


def test_a_repair_makes_no_store_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        repair(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


# -- no false alarm ------------------------------------------------------------------------


def test_a_torn_last_write_is_no_damage(tmp_path: Path) -> None:
    """What was never acknowledged may be half there after a power cut."""
    store = RocksStore(tmp_path / "running")
    store.commit(rows(0, END))
    said = read_watermark(tmp_path / "running")
    assert said is not None
    store.commit(rows(END, ROWS))
    crash(store, tmp_path / "running", tmp_path)
    (tmp_path / WATERMARK_FILE).write_bytes(said.encode())  # it moves after the sync
    path = wal(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    store = RocksStore(tmp_path)
    assert store.recover().next_offset == END
    store.close()
    assert read_watermark(tmp_path) == said


@pytest.mark.parametrize("length", [None, 0, 8, 16, 24])
def test_a_watermark_that_is_behind_or_cut_short_is_no_damage(
    tmp_path: Path, length: int | None
) -> None:
    """A power cut may leave an older file, or one whose content never reached the disk."""
    epoch = filled(tmp_path)
    path = tmp_path / WATERMARK_FILE
    if length is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:length])
    store = RocksStore(tmp_path)
    assert store.recover().epoch == epoch
    store.close()
    assert read_watermark(tmp_path) == Watermark(END, 0, COMMITS + 1, epoch)


def test_a_watermark_that_is_cut_short_knows_its_end_at_least(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / WATERMARK_FILE
    path.write_bytes(path.read_bytes()[:16])
    flip_in_the_middle(tmp_path)
    with pytest.raises(HistoryMismatch, match=f"to {END - 1},"):
        RocksStore(tmp_path)


def test_the_watermark_of_another_log_says_nothing(tmp_path: Path) -> None:
    """A crash between a repair's new epoch and its new watermark leaves the old one there."""
    filled(tmp_path)
    flip_in_the_middle(tmp_path)
    before = (tmp_path / WATERMARK_FILE).read_bytes()
    repaired = repair(tmp_path)
    (tmp_path / WATERMARK_FILE).write_bytes(before)
    store = RocksStore(tmp_path)
    assert store.recover().epoch == repaired.epoch
    store.close()


def test_a_watermark_that_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / WATERMARK_FILE).mkdir()
    with pytest.raises(StoreError, match=f"{WATERMARK_FILE} cannot be used: Is a directory"):
        RocksStore(tmp_path)
    assert not (tmp_path / STORE_DIRECTORY).exists()
