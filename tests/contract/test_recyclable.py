"""Garbage that RocksDB takes for a record of a log used again, and would read for ever.

Wherever such a record stands a start comes back, has all that was acknowledged, and goes on. Stores
are opened in another process, which can be ended.
"""

from __future__ import annotations

import logging
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.engine.batch.commit import Commit
from penstock.errors import StoreLocked
from penstock.store.backup import restore
from penstock.store.database import STORE_DIRECTORY, open_database, open_for_reading
from penstock.store.examination import examine
from penstock.store.recyclable import find_recyclable_records
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from penstock.store.secondary import LogFollower, StoreNotReady
from penstock.store.watermark import Watermark, write_watermark
from tests.contract.test_damage import contents, crash, read_epoch_of, wal
from tests.contract.test_store import rows
from tests.support.environment import environment
from tests.support.opened_stores import Opened, open_each

ROWS = 3
SIZES = (100, 100, 25_000, 100, 3_000, 100)  # of messages, by commit; the log has three blocks
END = ROWS * len(SIZES)
TWINS = {5: 1, 6: 2, 7: 3, 8: 4, 11: 10}
TYPE_AT = 6
BLOCK = 32_768
SEEDS = 24


def commits() -> Iterator[Commit]:
    """What is written to a store, and cannot be compressed."""
    draw = random.Random(3)
    for number, size in enumerate(SIZES):
        commit = rows(number * ROWS, ROWS)
        for message in commit.messages:
            message.payload = draw.randbytes(size)
        yield commit


@dataclass
class Sample:
    """What a process that died has left.

    Attributes:
        epoch: of its log.
        ends: how long the write-ahead log was after each commit.
        records: where its records begin.
    """

    directory: Path
    epoch: str
    ends: list[int]
    records: list[int]

    def copy(self, to: Path) -> Path:
        shutil.copytree(self.directory, to)
        return to

    def cut(self, to: Path, at: int, tail: bytes) -> tuple[Path, Opened]:
        """The power fails while the log is written from ``at`` on; and what was acknowledged."""
        copy = self.copy(to)
        path = wal(copy)
        path.write_bytes(path.read_bytes()[:at] + tail)
        commits = sum(end <= at for end in self.ends)
        write_watermark(copy, Watermark(commits * ROWS, 0, commits, self.epoch if commits else ""))
        return copy, Opened(commits * ROWS, commits * ROWS)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    directory = tmp_path_factory.mktemp("sample")
    running = directory / "running"
    store = RocksStore(running)
    ends = []
    for commit in commits():
        store.commit(commit)
        ends.append(wal(running).stat().st_size)
    crash(store, running, directory)
    log = wal(directory).read_bytes()
    made = Sample(directory, read_epoch_of(directory), ends, records_in(log))
    assert {log[at + TYPE_AT] for at in made.records} == {1, 2, 3, 4}
    return made


def records_in(log: bytes) -> list[int]:
    """Where records begin in a write-ahead log that is whole."""
    found, at = [], 0
    while at < len(log):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        found.append(at)
        at += 7 + struct.unpack_from("<H", log, at + 4)[0]
    return found


def garbage(type_: int) -> bytes:
    """The header of a record that is longer than what is left of the log, and some more."""
    return b"\x9d\x01\x77\xe0" + struct.pack("<HB", 57_005, type_) + bytes(range(200))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def overwrite(path: Path, at: int, type_: int) -> None:
    data = bytearray(path.read_bytes())
    data[at + TYPE_AT] = type_
    path.write_bytes(data)


def manifest(data_dir: Path) -> Path:
    [path] = (data_dir / STORE_DIRECTORY).glob("MANIFEST-*")
    return path


def test_garbage_instead_of_any_record(tmp_path: Path, sample: Sample) -> None:
    cuts = [
        sample.cut(tmp_path / f"{at}-{type_}", at, garbage(type_))
        for at in (*sample.records, sample.ends[-1])
        for type_ in TWINS
    ]
    assert open_each([cut for cut, _ in cuts]) == [acknowledged for _, acknowledged in cuts]


def test_garbage_of_any_kind(tmp_path: Path, sample: Sample) -> None:
    """Seeded; every other one begins with a type that would be read for ever."""
    cuts = []
    for seed in range(SEEDS):
        draw = random.Random(seed)
        tail = bytearray(draw.randbytes(draw.choice((8, 40, 400, 4_000, 70_000))))
        if seed % 2:
            tail[TYPE_AT] = draw.choice(list(TWINS))
        at = draw.choice([*sample.records, sample.ends[-1]])
        cuts.append(sample.cut(tmp_path / str(seed), at, bytes(tail)))
    assert open_each([cut for cut, _ in cuts]) == [acknowledged for _, acknowledged in cuts]


def test_a_flipped_bit_of_a_type_takes_nothing(tmp_path: Path, sample: Sample) -> None:
    flipped = []
    for at in sample.records:
        copy = sample.copy(tmp_path / str(at))
        type_ = wal(copy).read_bytes()[at + TYPE_AT]
        overwrite(wal(copy), at, {twin: each for each, twin in TWINS.items()}[type_])
        flipped.append(copy)
    assert open_each(flipped) == [Opened(END, END)] * len(flipped)


def test_garbage_at_the_end_of_the_manifest(tmp_path: Path, sample: Sample) -> None:
    copies = [sample.copy(tmp_path / str(type_)) for type_ in TWINS]
    for type_, copy in zip(TWINS, copies, strict=True):
        append(manifest(copy), garbage(type_))
    assert open_each(copies) == [Opened(END, END)] * len(copies)


def test_a_damaged_manifest_is_refused_and_repaired(tmp_path: Path, sample: Sample) -> None:
    copy = sample.copy(tmp_path / "copy")
    second = records_in(manifest(copy).read_bytes())[1]
    overwrite(manifest(copy), second, 8)
    [opened] = open_each([copy])
    assert f"its file {manifest(copy).name} is damaged" in opened.refusal
    assert repair(copy).end == END
    assert open_each([copy]) == [Opened(END, END)]


# -- what is changed, and what is said ------------------------------------------------------


def test_one_byte_is_changed_and_told(
    tmp_path: Path, sample: Sample, caplog: pytest.LogCaptureFixture
) -> None:
    copy = sample.copy(tmp_path / "copy")
    before = contents(copy / STORE_DIRECTORY)
    at = sample.records[2]
    overwrite(wal(copy), at, 5)
    with caplog.at_level(logging.WARNING, "penstock.store.database"):
        open_for_reading(copy).close()
        open_for_reading(copy).close()
    assert contents(copy / STORE_DIRECTORY) == before
    [told] = [record.getMessage() for record in caplog.records]
    assert told == (
        f"the store in {copy} is mended: byte {at + TYPE_AT} of {wal(copy).name} was found to be 5,"
        " which is never written there: garbage, as a power cut may leave it, or a flipped bit;"
        " it is 1 now"
    )


def test_a_check_tells_and_changes_nothing(tmp_path: Path, sample: Sample) -> None:
    end = sample.ends[-1]
    copy, _ = sample.cut(tmp_path / "copy", end, garbage(6))
    before = contents(copy / STORE_DIRECTORY)
    found = examine(copy)
    assert (found.problems, found.end) == ([], END)
    [note] = found.notes
    assert note == (
        f"byte {end + TYPE_AT} of {wal(copy).name} was found to be 6, which is never written"
        " there: garbage, as a power cut may leave it, or a flipped bit; a start mends it"
    )
    assert repair(copy).moved_paths == [], "a store that lost nothing is left as it is"
    assert contents(copy / STORE_DIRECTORY) == before


def test_a_check_finds_what_is_lost_too(tmp_path: Path, sample: Sample) -> None:
    """Without its MANIFEST, and with damage in the middle: all commits but the damaged one."""
    copy = sample.copy(tmp_path / "copy")
    path = wal(copy)
    data = bytearray(path.read_bytes())
    at = next(at for at in sample.records if at > sample.ends[2])
    data[at : at + 8] = garbage(7)[:8]
    path.write_bytes(data)
    manifest(copy).unlink()
    found = examine(copy)
    assert found.lost_ranges
    assert sum(end - begin for begin, end in found.lost_ranges) + found.messages == END


def test_a_backup_with_garbage_is_restored(tmp_path: Path, sample: Sample) -> None:
    store = RocksStore(sample.copy(tmp_path / "copy"))
    store.commit(rows(END, ROWS))
    store.backup(tmp_path / "backup")
    store.close()
    append(manifest(tmp_path / "backup"), garbage(6))
    restore(tmp_path / "backup", tmp_path / "restored")
    assert find_recyclable_records(tmp_path / "backup" / STORE_DIRECTORY)
    assert open_each([tmp_path / "restored"]) == [Opened(END + ROWS, END + ROWS)]


# -- who else has the store -----------------------------------------------------------------


def test_a_follower_waits_for_the_broker(tmp_path: Path, sample: Sample) -> None:
    copy, _ = sample.cut(tmp_path / "copy", sample.ends[-1], garbage(11))
    follower = LogFollower(copy)
    with pytest.raises(StoreNotReady, match="is mended by its broker: byte"):
        follower.extent()
    store = RocksStore(copy)
    assert follower.extent().end == END
    follower.close()
    store.close()


def test_a_store_that_another_process_has_open_is_left_alone(
    tmp_path: Path, sample: Sample
) -> None:
    copy = sample.copy(tmp_path / "copy")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(copy)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        append(max((copy / STORE_DIRECTORY).glob("MANIFEST-*")), garbage(6))
        found = find_recyclable_records(copy / STORE_DIRECTORY)
        with pytest.raises(StoreLocked):
            open_database(copy)
        assert find_recyclable_records(copy / STORE_DIRECTORY) == found != []
        holder.communicate()


_HOLD = """
import sys
from pathlib import Path
from penstock.store.rocks import RocksStore
store = RocksStore(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_log_that_is_written_has_none(tmp_path: Path) -> None:
    """And ours are never used again, whatever RocksDB takes for its default."""
    store = RocksStore(tmp_path)
    for commit in commits():
        store.commit(commit)
        assert find_recyclable_records(tmp_path / STORE_DIRECTORY) == []
    [settings, *_] = (tmp_path / STORE_DIRECTORY).glob("OPTIONS-*")
    assert "recycle_log_file_num=0\n" in settings.read_text()
    store.close()
