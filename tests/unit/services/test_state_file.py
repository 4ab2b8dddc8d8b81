"""The small file of records: whole or not there, and of this log or empty."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from penstock.errors import StoreCorrupt, StoreUnavailable
from penstock.services.state_file import FileStorage, StateFile
from penstock.store.memory import MemoryStore
from penstock.store.rocks import RocksStore
from tests.contract.test_store import rows


class Entry(msgspec.Struct):
    name: str
    offset: int = 0
    mark: str = ""


def kept(path: Path, epoch: str = "e1") -> StateFile[Entry]:
    storage = FileStorage(path / "entries.json")
    return StateFile(storage, Entry, MemoryStore(epoch), "nobody knows who entered")


def names(path: Path) -> list[str]:
    return [found.name for found in path.iterdir()]


async def test_a_written_record_is_read(tmp_path: Path) -> None:
    assert kept(tmp_path).read() == []
    file = kept(tmp_path)
    await asyncio.gather(*(file.write(lambda: [Entry("a"), Entry("b")]) for _ in range(5)))
    assert kept(tmp_path).read() == [Entry("a"), Entry("b")]
    assert not file.has_changed
    assert names(tmp_path) == ["entries.json"]


async def test_records_of_another_log_are_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await kept(tmp_path).write(lambda: [Entry("a")])
    assert kept(tmp_path, "e2").read() == []
    assert "1 of its entries are forgotten" in caplog.text


@pytest.mark.parametrize("damage", [b"", b"\0\0\0", b'{"epoch": "e1", "records": [{"na'])
async def test_a_damaged_file_refuses_a_start_each_time_and_says_what_to_do(
    tmp_path: Path, damage: bytes
) -> None:
    """Issue 24, fault 11: it was put aside, and a broker went on as if there were no records."""
    (tmp_path / "entries.json").write_bytes(damage)
    for _ in range(2):
        with pytest.raises(StoreCorrupt) as refused:
            kept(tmp_path).read()
        sentence = str(refused.value)
        assert sentence.startswith(f"{tmp_path}/entries.json is damaged (")
        assert sentence.endswith(
            "): nobody knows who entered; replace it by a copy, or remove it to start without"
        )
    assert names(tmp_path) == ["entries.json"]


async def test_a_file_that_cannot_be_written_is_behind(tmp_path: Path) -> None:
    file = kept(tmp_path / "missing")
    with pytest.raises(StoreUnavailable, match="cannot be written: No such file"):
        await file.write(lambda: [Entry("a")])
    assert file.has_changed


def of_copies(data_dir: Path, store: RocksStore) -> StateFile[Entry]:
    return StateFile(FileStorage(data_dir / "entries.json"), Entry, store, "nobody knows")


def grow(store: RocksStore, count: int) -> None:
    end = store.log_extent().end
    store.commit(rows(end, count))


async def test_a_file_of_an_older_copy_or_of_a_newer_one_names_positions_that_the_log_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Older, its readers are where they were: more is kept for them. Newer, they go back to where
    the log parts from what they read."""
    data_dir = tmp_path / "data"
    store = RocksStore(data_dir)
    store.recover()
    grow(store, 5)
    await of_copies(data_dir, store).write(lambda: [Entry("reader", 5)])
    store.close()
    shutil.copytree(data_dir, tmp_path / "copy")
    store = RocksStore(data_dir)
    grow(store, 5)
    file = of_copies(data_dir, store)
    (older,) = file.read()
    assert (older.offset, file.has_changed) == (5, False)
    await file.write(lambda: [Entry("reader", 9)])
    store.close()

    for name in ("store", "committed"):  # the store comes back alone: the file is newer
        put_back(tmp_path / "copy" / name, data_dir / name)
    store = RocksStore(data_dir)
    grow(store, 7)
    file = of_copies(data_dir, store)
    (newer,) = file.read()
    store.close()
    assert (newer.offset, newer.mark, file.has_changed) == (5, "", True)
    assert "they part at offset 5" in caplog.text
    assert "it goes back there" in caplog.text


def put_back(copied: Path, to: Path) -> None:
    if to.is_dir():
        shutil.rmtree(to)
        shutil.copytree(copied, to)
    else:
        shutil.copy2(copied, to)
