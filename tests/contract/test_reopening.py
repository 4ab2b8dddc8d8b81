"""The store opened anew in the process that goes on: what a failed write left, and who else wrote.

Written against RocksDB; that the memory store's ``reopen`` does nothing is its whole contract.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from penstock.errors import CommitUnknown, HistoryMismatch, StoreError, StoreUnavailable
from penstock.store.database import STORE_DIRECTORY
from penstock.store.faults import PROBE_FILE, ReadWriteLock, probe, with_remedy
from penstock.store.identity import begin_epoch
from penstock.store.rocks import RocksStore
from penstock.store.watermark import read_watermark
from tests.contract.test_store import rows


def payloads(store: RocksStore) -> list[bytes]:
    """All that is in the log, in order."""
    return [message.payload for _, message in sorted(store.read(range(100)).items())]


@pytest.mark.parametrize("left_behind", [False, True])
def test_the_same_commit_again_whether_it_was_left_behind_or_not(
    tmp_path: Path, left_behind: bool
) -> None:
    """The write that failed may be in the file: written once more it is there once."""
    store = RocksStore(tmp_path)
    store.commit(rows(0, 2))
    if left_behind:
        same = RocksStore.__new__(RocksStore)  # the state of memory before the write "failed"
        same.__dict__.update(store.__dict__)
        watermark, same._watermark = store._watermark, IdleWatermark()  # type: ignore[assignment]
        same.commit(rows(2, 3))
        assert store._watermark is watermark
    store.reopen()
    store.commit(rows(2, 3))
    assert len(payloads(store)) == 5
    extent = store.log_extent()
    store.close()
    again = RocksStore(tmp_path)
    assert again.log_extent() == extent
    assert again.recover().next_offset == 5
    found = read_watermark(tmp_path)
    assert found is not None
    assert (found.end, found.commits) == (5, 2)
    again.close()


class IdleWatermark:
    """Stays where it is."""

    def record_commit(self, end: int, commits: int) -> None:
        """Not moved: the write is not known to have succeeded."""


def test_a_failed_write_is_one_whose_fate_is_unknown(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store._database.rocks.close()
    with pytest.raises(CommitUnknown):
        store.commit(rows(0, 1))
    store.reopen()
    store.commit(rows(0, 1))
    assert len(payloads(store)) == 1
    store.close()


def test_a_store_that_cannot_be_opened_stays_readable_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksStore(tmp_path)
    store.commit(rows(0, 2))

    def refuse(_: Path) -> None:
        raise StoreError("IO error: No space left on device: While appending")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.store.opening.open_database", refuse)
        with pytest.raises(StoreUnavailable, match="free space on the file system of"):
            store.reopen()
    assert len(payloads(store)) == 2
    with pytest.raises(StoreUnavailable) as refused:
        store.commit(rows(2, 1))
    assert not isinstance(refused.value, CommitUnknown), "it surely is not there"
    assert store.trim_log(2**62, 0, 2**62) == 0
    store.reopen()
    store.commit(rows(2, 1))
    assert len(payloads(store)) == 3
    store.close()


@pytest.mark.parametrize("by", ["commits", "epoch"])
def test_a_write_of_another_process_meanwhile_is_not_taken_for_ours(
    tmp_path: Path, by: str
) -> None:
    store = RocksStore(tmp_path)
    store.commit(rows(0, 1))
    store._database.close()
    other = RocksStore(tmp_path)
    if by == "epoch":
        begin_epoch(other._database)
    else:
        other.commit(rows(1, 1))
        other.commit(rows(2, 1))
    other.close()
    with pytest.raises(HistoryMismatch, match="another process"):
        store.reopen()
    store.close()
    RocksStore(tmp_path).close()


def test_a_store_that_lost_what_was_acknowledged_is_refused(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.commit(rows(0, 1))
    store.close()
    shutil.copytree(tmp_path / STORE_DIRECTORY, tmp_path / "older")
    store = RocksStore(tmp_path)
    store.commit(rows(1, 1))
    store._database.close()
    shutil.rmtree(tmp_path / STORE_DIRECTORY)
    (tmp_path / "older").rename(tmp_path / STORE_DIRECTORY)
    with pytest.raises(HistoryMismatch, match="has lost the acknowledged message with offset 1"):
        store.reopen()
    store.close()


def test_a_probe_leaves_nothing_and_asks_for_room_for_the_write_ahead_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening turns it into tables; an attempt that fails would leave the store closed."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "000004.log").write_bytes(bytes(3_000_000))
    asked: list[int] = []

    def full(_descriptor: int, _start: int, length: int) -> None:
        asked.append(length)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    probe(tmp_path, tmp_path / "store")
    with monkeypatch.context() as patched:
        patched.setattr("os.posix_fallocate", full)
        with pytest.raises(StoreUnavailable, match="goes on by itself when it can write 4 MiB"):
            probe(tmp_path, tmp_path / "store")
    assert asked == [3_000_000 + 1_048_576]
    assert not (tmp_path / PROBE_FILE).exists()


def test_an_error_that_nobody_knows_is_told_as_it_is() -> None:
    assert with_remedy("moon phase", Path("/d")) == (
        "moon phase: look at the disk and the permissions of /d"
    )


def test_a_replacement_waits_for_users_and_keeps_others_waiting() -> None:
    usage = ReadWriteLock()
    order: list[str] = []
    waits = threading.Event()

    def replace() -> None:
        waits.set()
        with usage.exclusive():
            order.append("replaced")

    def use() -> None:
        with usage.shared():
            order.append("used")

    with usage.shared():
        replacing = threading.Thread(target=replace)
        replacing.start()
        assert waits.wait(5)
        while not usage._has_writer:
            pass
        using = threading.Thread(target=use)
        using.start()
        order.append("first")
    replacing.join(5)
    using.join(5)
    assert order == ["first", "replaced", "used"]
