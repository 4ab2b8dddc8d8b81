"""Backups of a store in use, and what becomes of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.cluster.record import Position, encode_position
from penstock.cluster.view import read_position
from penstock.errors import StoreCorrupt, StoreError, StoreLocked
from penstock.store.backup import back_up_offline, restore
from penstock.store.compaction import compact
from penstock.store.database import CLUSTER_POSITION_KEY, STORE_DIRECTORY, open_database
from penstock.store.examination import examine
from penstock.store.manifest import MANIFEST_FILE
from penstock.store.rocks import RocksStore
from tests.contract.test_store import rows, session

ROWS = 5


def filled(data_dir: Path, commits: int = 10) -> RocksStore:
    store = RocksStore(data_dir)
    for number in range(commits):
        commit = rows(number * ROWS, ROWS)
        commit.sessions = [session(f"c{number}", number + 1)]
        store.commit(commit)
    return store


def test_a_backup_holds_what_was_committed_before_it(tmp_path: Path) -> None:
    store = filled(tmp_path / "data")
    manifest = store.backup(tmp_path / "backup")
    assert (manifest.begin, manifest.end, manifest.commits) == (0, 50, 10)
    store.commit(rows(50, ROWS))
    assert store.recover().next_offset == 55, "and the store goes on"
    store.close()
    assert not examine(tmp_path / "backup").problems

    _, epoch = restore(tmp_path / "backup", tmp_path / "other")
    restored = RocksStore(tmp_path / "other")
    recovered = restored.recover()
    assert recovered.next_offset == 50
    assert sorted(restored.read(range(99))) == list(range(50))
    assert len(recovered.sessions) == 10
    assert recovered.epoch == epoch != manifest.epoch
    restored.commit(rows(50, ROWS))
    restored.close()
    found = examine(tmp_path / "other")
    assert found.lineage == [(manifest.epoch, 50)]
    assert not found.problems


def test_backups_during_commits_are_each_a_whole_prefix(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "data")
    committed = 0
    stop = threading.Event()

    def commit_on_and_on() -> None:
        nonlocal committed
        while not stop.is_set():
            commit = rows(committed * ROWS, ROWS, size=2_000)
            commit.sessions = [session(f"c{committed}", committed + 1)]
            store.commit(commit)
            committed += 1

    writer = threading.Thread(target=commit_on_and_on)
    writer.start()
    try:
        for number in range(5):
            before = committed
            manifest = store.backup(tmp_path / f"backup-{number}")
            assert before <= manifest.commits <= committed + 1
            assert manifest.end == manifest.commits * ROWS
    finally:
        stop.set()
        writer.join()
        store.close()
    for number in range(5):
        found = examine(tmp_path / f"backup-{number}")
        assert found.problems == []
        assert found.sessions == found.commits == found.messages // ROWS


def test_no_broker_starts_from_a_backup(tmp_path: Path) -> None:
    """It would go on in the epoch of the store that the backup was taken of."""
    filled(tmp_path / "data").close()
    back_up_offline(tmp_path / "data", tmp_path / "backup")
    with pytest.raises(StoreError, match="is a backup; make a store of it with"):
        RocksStore(tmp_path / "backup")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    store = filled(tmp_path / "data")
    store.backup(tmp_path / "backup")
    with pytest.raises(StoreError, match="exists already"):
        store.backup(tmp_path / "backup")
    store.close()
    with pytest.raises(StoreError, match="there is a store in"):
        restore(tmp_path / "backup", tmp_path / "data")
    with pytest.raises(StoreError, match="is no backup"):
        restore(tmp_path / "data", tmp_path / "other")


def test_a_leftover_of_a_killed_attempt_is_no_hindrance(tmp_path: Path) -> None:
    store = filled(tmp_path / "data")
    (tmp_path / "backup.unfinished" / STORE_DIRECTORY).mkdir(parents=True)
    store.backup(tmp_path / "backup")
    store.close()
    (tmp_path / "other" / "restore.unfinished" / STORE_DIRECTORY).mkdir(parents=True)
    restore(tmp_path / "backup", tmp_path / "other")
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["committed", "store"]
    assert not (tmp_path / "backup.unfinished").exists()


@pytest.mark.parametrize("name", ["*.sst", "MANIFEST-*"])
def test_a_damaged_backup_is_not_restored(tmp_path: Path, name: str) -> None:
    store = filled(tmp_path / "data")
    store.backup(tmp_path / "backup")
    store.close()
    path = max((tmp_path / "backup" / STORE_DIRECTORY).glob(name), key=lambda p: p.stat().st_size)
    data = bytearray(path.read_bytes())
    path.unlink()  # a hard link of the store's own
    data[len(data) // 3] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(StoreError):
        restore(tmp_path / "backup", tmp_path / "other")
    assert not (tmp_path / "other" / STORE_DIRECTORY).exists()
    assert not examine(tmp_path / "data").problems


def test_a_backup_with_a_part_missing_is_not_restored(tmp_path: Path) -> None:
    store = filled(tmp_path / "data")
    store.backup(tmp_path / "backup")
    store.close()
    text = (tmp_path / "backup" / MANIFEST_FILE).read_text()
    (tmp_path / "backup" / MANIFEST_FILE).write_text(text.replace('"end": 50', '"end": 60'))
    with pytest.raises(StoreCorrupt, match="has lost 10 acknowledged messages"):
        restore(tmp_path / "backup", tmp_path / "other")


def test_a_store_in_use_is_neither_examined_nor_compacted(tmp_path: Path) -> None:
    store = filled(tmp_path)
    with pytest.raises(StoreLocked):
        compact(tmp_path)
    store.close()
    assert examine(tmp_path).messages == 50


def test_compaction_gives_space_back_and_keeps_the_rest(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    for number in range(200):
        store.commit(rows(number * ROWS, ROWS, size=5_000))
    store.close()
    store = RocksStore(tmp_path)
    starts_at = store.trim_log(2**62, 0, 900)
    store.close()
    before, after = compact(tmp_path)
    assert after < before / 2
    store = RocksStore(tmp_path)
    assert sorted(store.read(range(1000))) == list(range(starts_at, 1000))
    store.close()


def place_in_log(data_dir: Path, sequence: int = 0) -> Position:
    """The position of a store in a cluster's log; with a sequence, put it there before."""
    database = open_database(data_dir)
    try:
        if sequence:
            batch = database.new_batch()
            batch.put(
                CLUSTER_POSITION_KEY,
                encode_position(Position(sequence, 2, 3, 4)),
                database.handles["meta"],
            )
            database.write(batch)
        return read_position(database)
    finally:
        database.close()


def test_a_restored_backup_of_a_member_is_no_view_of_the_clusters_log(tmp_path: Path) -> None:
    """It would follow the log from the backup's place on, in an epoch of its own."""
    filled(tmp_path / "data").close()
    assert place_in_log(tmp_path / "data", 7).sequence == 7
    back_up_offline(tmp_path / "data", tmp_path / "backup")
    assert place_in_log(tmp_path / "data").sequence == 7
    restore(tmp_path / "backup", tmp_path / "other")
    assert place_in_log(tmp_path / "other") == Position()


def test_a_view_that_a_single_broker_has_used_is_none_any_more(tmp_path: Path) -> None:
    """Its offsets stand for other messages than those of the cluster from there on."""
    store = filled(tmp_path / "data")
    epoch = store.recover().epoch
    store.close()
    place_in_log(tmp_path / "data", 7)
    alone = RocksStore(tmp_path / "data")
    assert alone.recover().epoch != epoch
    alone.close()
    assert place_in_log(tmp_path / "data") == Position()
    RocksStore(tmp_path / "data").close()
    found = examine(tmp_path / "data")
    assert found.lineage == [(epoch, 50)]
