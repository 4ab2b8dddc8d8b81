"""What only the file store promises: the directory, the lock, the format, the watermark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from penstock.engine.batch.commit import Commit
from penstock.engine.values.message import Message
from penstock.errors import StoreError, StoreFormatError, StoreLocked, StoreUnavailable
from penstock.store import identity
from penstock.store.backup import back_up_offline
from penstock.store.database import COLUMN_FAMILIES, FORMAT, STORE_DIRECTORY
from penstock.store.examination import examine
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from penstock.store.watermark import Watermark, read_watermark
from tests.contract.test_store import rows

HOLDER = """
import sys
from pathlib import Path
from penstock.store.rocks import RocksStore
store = RocksStore(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def watermark(data_dir: Path) -> Watermark:
    said = read_watermark(data_dir)
    assert said is not None
    return said


def test_two_stores_have_two_epochs(tmp_path: Path) -> None:
    epochs = set()
    for name in "ab":
        store = RocksStore(tmp_path / name)
        epochs.add(store.recover().epoch)
        store.close()
    assert len(epochs) == 2


def test_closing_lets_go_of_it_though_the_object_lives(tmp_path: Path) -> None:
    first = RocksStore(tmp_path)
    epoch = first.recover().epoch
    first.read([0])
    first.close()
    second = RocksStore(tmp_path)
    assert second.recover().epoch == epoch
    second.close()


def test_a_store_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked, match="in use by another process"):
            RocksStore(tmp_path)
        holder.kill()
        holder.wait()
        RocksStore(tmp_path).close()
    finally:
        holder.kill()
        holder.communicate()


def test_a_store_in_use_by_this_process_is_refused(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    with pytest.raises(StoreLocked):
        RocksStore(tmp_path)
    store.close()


def tampered(data_dir: Path, key: bytes, value: bytes | None) -> None:
    """Write into the meta column family, behind the store's back."""
    families = {name: Options(raw_mode=True) for name in COLUMN_FAMILIES}
    database = Rdict(
        str(data_dir / STORE_DIRECTORY), Options(raw_mode=True), column_families=families
    )
    meta = database.get_column_family("meta")
    if value is None:
        meta.delete(key)
    else:
        meta.put(key, value)
    meta.close()
    database.close()


OTHER_FORMAT = (
    "^the store has format 4, and this version of Penstock reads format 3: use the version that"
    " wrote it$"
)


@pytest.mark.parametrize(
    ("key", "value", "says"), [(b"format", b"4", OTHER_FORMAT), (b"epoch", None, "no epoch")]
)
def test_a_wrong_format_is_refused_and_left_alone(
    tmp_path: Path, key: bytes, value: bytes | None, says: str
) -> None:
    store = RocksStore(tmp_path)
    store.commit(rows(0, 3))
    store.close()
    tampered(tmp_path, key, value)
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=says):
            RocksStore(tmp_path)


def test_the_version_that_wrote_a_store_finds_it_as_it_was_when_another_one_has_refused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr(identity, "FORMAT", b"4")
        store = RocksStore(tmp_path)
        store.commit(rows(0, 3))
        store.close()
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=OTHER_FORMAT):
            RocksStore(tmp_path)
    monkeypatch.setattr(identity, "FORMAT", b"4")
    store = RocksStore(tmp_path)
    assert sorted(store.read([0, 1, 2])) == [0, 1, 2]
    store.close()


def test_commands_refuse_a_store_of_another_format_and_leave_it_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    store = RocksStore(data_dir)
    store.commit(rows(0, 3))
    store.close()
    tampered(data_dir, b"format", b"4")
    for command in (
        lambda: examine(data_dir),
        lambda: repair(data_dir),
        lambda: back_up_offline(data_dir, tmp_path / "backup"),
    ):
        with pytest.raises(StoreFormatError, match=OTHER_FORMAT):
            command()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    tampered(data_dir, b"format", FORMAT)
    assert examine(data_dir).problems == []


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        RocksStore(tmp_path / "file")


def test_the_watermark_is_what_was_committed(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    epoch = store.recover().epoch
    assert watermark(tmp_path) == Watermark(0, 0, 0, epoch)
    store.commit(rows(0, 3))
    assert watermark(tmp_path) == Watermark(3, 0, 1, epoch)
    store.commit(Commit(3))
    assert watermark(tmp_path) == Watermark(3, 0, 2, epoch)
    store.commit(rows(3, 1))
    store.trim_log(2**62, 0, 2**62)
    assert watermark(tmp_path) == Watermark(4, 3, 3, epoch)
    store.close()
    RocksStore(tmp_path).close()
    assert watermark(tmp_path) == Watermark(4, 3, 3, epoch), "and a restart changes none of it"


def test_many_small_commits_and_a_restart(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    for base in range(0, 600, 3):
        store.commit(rows(base, 3))
    store.close()
    store = RocksStore(tmp_path)
    assert sorted(store.read(range(0, 600, 7))) == list(range(0, 600, 7))
    assert store.recover().next_offset == 600
    store.close()


def test_a_commit_that_cannot_be_written_fails(tmp_path: Path) -> None:
    """A closed database stands for every error of the disk: none may pass as success."""
    store = RocksStore(tmp_path)
    store.commit(rows(0, 1))
    store._database.rocks.close()
    with pytest.raises(StoreUnavailable):
        store.commit(rows(1, 1))
    assert watermark(tmp_path).end == 1
    assert watermark(tmp_path).commits == 1


def test_a_log_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """What stops an iterator early is an error, not the end: nothing may be dropped for it."""
    store = RocksStore(tmp_path)
    for base in range(50):
        commit = Commit(base)
        message = Message("t", bytes([base]) * 4000, 1)
        message.offset = base
        commit.messages = [message]
        store.commit(commit)
    store._database.families["log"].flush()
    store.close()
    tables = sorted((tmp_path / STORE_DIRECTORY).glob("*.sst"))
    largest = max(tables, key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = b"\x00" * 64
    largest.write_bytes(data)
    with pytest.raises(StoreError):
        read_everything(tmp_path)


def read_everything(data_dir: Path) -> None:
    store = RocksStore(data_dir)
    try:
        for offset in range(50):
            assert offset in store.read([offset]), f"offset {offset} is silently missing"
    finally:
        store.close()
