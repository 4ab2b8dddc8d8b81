"""Whatever file of a store is damaged, nothing is missing afterwards that was not reported.

A store of two lives, the first in tables, the second in the write-ahead log, is damaged in one
place: a byte in each part of each file, the second half of it, all of it. Then

1. a start refuses the store with a sentence that says what to do, or nothing is missing silently;
2. the check names the damage, where there is any;
3. the repair keeps what can be read, and reports the rest: what the log holds afterwards is what
   was written but for the offsets reported, and what else is missing lies in a family named;
4. the store works afterwards, and is whole; the damaged one is still there.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.records import (
    AWAIT_PUBACK,
    ProducerRecord,
    RecoveredState,
    SubscriptionRecord,
    WillRecord,
    WindowPage,
)
from penstock.errors import StoreError
from penstock.protocol.packets import Subscription
from penstock.store import copying
from penstock.store import repair as repairing
from penstock.store.chunk import encode_key
from penstock.store.database import STORE_DIRECTORY, open_database
from penstock.store.diagnosis import unfinished_repair
from penstock.store.examination import examine
from penstock.store.repair import RepairResult, repair
from penstock.store.rocks import RocksStore
from penstock.store.watermark import WATERMARK_FILE
from tests.contract.test_damage import crash
from tests.contract.test_store import progress, rows, session

ROWS = 10
COMMITS = 12
END = ROWS * COMMITS
FAMILIES = ("sessions", "subscriptions", "queue", "progress", "retained", "wills", "meta")


def commit_of(number: int, payloads: random.Random) -> Commit:
    commit = rows(number * ROWS, ROWS)
    for message in commit.messages:
        message.payload = payloads.randbytes(700)
    name, key = f"c{number:02}", number + 1
    commit.sessions = [session(name, key)]
    commit.subscriptions = [SubscriptionRecord(key, "a/b", Subscription("a/b", 1))]
    waiting = PackedRun(2)
    for sequence in range(2, 6):
        assert waiting.add(sequence, number * ROWS + sequence, 700, (1, False, (), None))
    kept = progress(key, head=2, following=6, segment=[waiting])
    in_flight = (1, AWAIT_PUBACK, 1, number * ROWS + 1, 1, False, (), 700, None)
    kept.pages = [WindowPage(number, [in_flight])]
    commit.progress = [kept]
    commit.retained = [(name, Message(name, b"kept"))]
    commit.producers = [(f"u\0{name}", ProducerRecord(f"u\0{name}", number, 5))]
    commit.wills = [(name, WillRecord(Message(name, b"will"), 1, 2))]
    return commit


@dataclass
class Sample:
    """A store, and what is in it."""

    directory: Path
    written: dict[int, bytes]
    state: dict[str, set[Any]]


def state_of(recovered: RecoveredState) -> dict[str, set[Any]]:
    queued = {
        (number, run.first + position, run.offsets[position])
        for number, runs in recovered.queues.items()
        for run in runs
        for position in range(len(run))
    }
    return {
        "sessions": {(kept.client_id, kept.number) for kept in recovered.sessions},
        "subscriptions": {(kept.number, kept.topic_filter) for kept in recovered.subscriptions},
        "queue": set(queued),
        "progress": {
            (number, entry[0], entry[3])
            for number, kept in recovered.progress.items()
            for entry in kept.in_flight()
        },
        "retained": {message.topic for message in recovered.retained},
        "wills": set(recovered.wills),
        "meta": {(kept.key, kept.sequence) for kept in recovered.producers},
    }


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    directory = tmp_path_factory.mktemp("sample")
    payloads = random.Random(11)
    running = directory / "running"
    store = RocksStore(running)
    for number in range(COMMITS // 2):
        store.commit(commit_of(number, payloads))
    store.close()
    store = RocksStore(running)  # what the first life wrote is in tables now
    for number in range(COMMITS // 2, COMMITS):
        store.commit(commit_of(number, payloads))
    written = {offset: message.payload for offset, message in store.read(range(END)).items()}
    assert len(written) == END
    state = state_of(store.recover())
    crash(store, running, directory)
    return Sample(directory, written, state)


PLACES = ("removed", "cut", 0.0, 0.08, 0.3, 0.55, 0.8, 0.93, 0.99)
FILES_MAX = 3  # of a kind, in one test; which, the place decides
KINDS = ("sst", "MANIFEST", "CURRENT", "log")


def damage(path: Path, place: str | float) -> None:
    if place == "removed":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    if isinstance(place, float):
        data[int(len(data) * place)] ^= 0x40
    else:
        del data[len(data) // 2 :]
    path.write_bytes(data)


def files_of(sample: Sample, kind: str) -> list[str]:
    names = sorted(path.name for path in (sample.directory / STORE_DIRECTORY).iterdir())
    chosen = [name for name in names if name.endswith(f".{kind}") or name.startswith(kind)]
    return [name for name in chosen if (sample.directory / STORE_DIRECTORY / name).stat().st_size]


def contents(directory: Path) -> dict[str, bytes]:
    """The files that hold what was written."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.suffix in (".sst", ".log") or path.name.startswith(("MANIFEST", "CURRENT"))
    }


def copy_of(sample: Sample, directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(sample.directory, directory)
    return directory


def opened(data_dir: Path) -> RocksStore | str:
    """The store, or why it is refused."""
    try:
        return RocksStore(data_dir)
    except StoreError as refusal:
        return str(refusal)


def assert_started_whole_or_refused(sample: Sample, data_dir: Path) -> bool:
    """Whether it is refused, or cannot be read: anything but a store that works."""
    store = opened(data_dir)
    if isinstance(store, str):
        assert "penstock store repair" in store
        assert "\n" not in store
        return True
    try:
        assert state_of(store.recover()) == sample.state
        read = store.read(range(END))
    except StoreError:
        return True
    else:
        assert {offset: message.payload for offset, message in read.items()} == sample.written
        return False
    finally:
        store.close()


def assert_repaired(sample: Sample, data_dir: Path, repaired: RepairResult) -> None:
    """Nothing that is missing is unreported."""
    found = repaired.examination
    assert found is not None
    store = RocksStore(data_dir)
    try:
        read = {offset: message.payload for offset, message in store.read(range(END)).items()}
        state = state_of(store.recover())
        extent = store.log_extent()
    finally:
        store.close()
    reported = {offset for begin, end in found.lost_ranges for offset in range(begin, end)}
    assert set(read) == set(range(END)) - reported
    assert all(sample.written[offset] == payload for offset, payload in read.items())
    assert extent.end == max(read, default=-1) + 1
    said = " ".join(found.problems)
    blanket = (
        "write-ahead log",
        "changes of sessions",
        "not known whether tables are missing",
    )
    is_partly_lost = bool(reported) or any(words in said for words in blanket)
    for family in FAMILIES:
        if state[family] != sample.state[family]:
            assert f"{family}: " in said or is_partly_lost or found.lost_session_numbers, family
    for _, _, offset in state["queue"] | state["progress"]:
        assert offset in read, "what waits is there"
    numbers = {number for _, number in state["sessions"]}
    assert {number for number, *_ in state["queue"] | state["subscriptions"]} <= numbers
    after = examine(data_dir)
    assert after.problems == []
    assert (after.epoch != found.epoch) == (not found.log_is_whole)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_missing_that_was_not_reported(
    sample: Sample, tmp_path: Path, kind: str, place: str | float
) -> None:
    names = files_of(sample, kind)
    chosen = random.Random(str(place)).sample(names, min(len(names), FILES_MAX))
    for name in chosen:
        data_dir = copy_of(sample, tmp_path / "damaged")
        damage(data_dir / STORE_DIRECTORY / name, place)
        before = contents(data_dir / STORE_DIRECTORY)
        found = examine(data_dir)
        repaired = repair(data_dir)
        if found.problems:
            (kept,) = data_dir.glob("store.damaged-*")
            assert contents(kept) == before
            assert_repaired(sample, data_dir, repaired)
            RocksStore(data_dir).close()
            shutil.rmtree(data_dir / STORE_DIRECTORY)
            kept.rename(data_dir / STORE_DIRECTORY)
            shutil.copy(sample.directory / WATERMARK_FILE, data_dir / WATERMARK_FILE)
        is_refused = assert_started_whole_or_refused(sample, data_dir)
        assert is_refused == bool(found.problems), (name, found.problems)


# -- the repair itself ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_without_a_list_of_tables_a_missing_one_is_feared(
    sample: Sample, tmp_path: Path, seed: int
) -> None:
    """Nobody knows what there was; only the log shows its holes."""
    data_dir = copy_of(sample, tmp_path / "damaged")
    (manifest,) = files_of(sample, "MANIFEST")
    damage(data_dir / STORE_DIRECTORY / manifest, "cut")
    table = random.Random(seed).choice(files_of(sample, "sst"))
    damage(data_dir / STORE_DIRECTORY / table, "removed")
    assert_repaired(sample, data_dir, repair(data_dir))


class Killed(BaseException):
    """The process ends here."""


class Scythe:
    """Ends the repair before its n-th step that changes names, or waits for the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for owner, name in (
            (Path, "rename"),
            (Path, "replace"),
            (shutil, "rmtree"),
            (repairing, "sync_directory"),
            (repairing, "sync_file"),
            (copying, "write_watermark"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise Killed
            return step(*arguments, **named)

        return counted


def largest_table(data_dir: Path) -> Path:
    tables = (data_dir / STORE_DIRECTORY).glob("*.sst")
    return max(tables, key=lambda path: path.stat().st_size)


def test_a_repair_that_is_killed_can_be_run_again(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step: a start is refused, or finds the repaired store; the second repair ends it."""
    damaged = copy_of(sample, tmp_path / "damaged")
    damage(largest_table(damaged), 0.5)
    before = contents(damaged / STORE_DIRECTORY)
    lost = repair(copy_of(Sample(damaged, {}, {}), tmp_path / "other")).examination
    assert lost is not None
    scythe = Scythe(monkeypatch)
    for step in range(1, 200):
        data_dir = tmp_path / "killed"
        shutil.copytree(damaged, data_dir)
        scythe.left = step
        try:
            repair(data_dir)
        except Killed:
            scythe.left = 0
        else:
            break
        if not unfinished_repair(data_dir) and (data_dir / STORE_DIRECTORY / "CURRENT").exists():
            is_repaired = any(data_dir.glob("store.damaged-*"))
        else:
            is_repaired = False
            assert isinstance(opened(data_dir), str), "refused"
        repaired = repair(data_dir)
        assert is_repaired == bool(repaired.examination and not repaired.examination.problems)
        (kept,) = data_dir.glob("store.damaged-*")
        assert contents(kept) == before
        store = RocksStore(data_dir)
        expected = {offset for begin, end in lost.spans for offset in range(begin, end)}
        assert set(store.read(range(END))) == expected
        assert state_of(store.recover())["sessions"] == sample.state["sessions"]
        store.close()
        names = {path.name.partition("-")[0] for path in data_dir.iterdir()}
        assert names == {STORE_DIRECTORY, WATERMARK_FILE, "store.damaged", "committed.damaged"}
        shutil.rmtree(data_dir)
    assert step > 20, "there were steps to be killed at"


def test_a_rehearsal_changes_nothing(sample: Sample, tmp_path: Path) -> None:
    data_dir = copy_of(sample, tmp_path / "damaged")
    damage(largest_table(data_dir), 0.5)
    before = contents(data_dir / STORE_DIRECTORY)
    dry_run = repair(data_dir, is_dry_run=True)
    assert dry_run.examination is not None
    assert dry_run.examination.lost_ranges
    assert contents(data_dir / STORE_DIRECTORY) == before
    assert sorted(path.name for path in data_dir.iterdir()) == [WATERMARK_FILE, STORE_DIRECTORY]
    done = repair(data_dir)
    assert done.examination == dry_run.examination


def test_a_log_of_which_nothing_is_lost_keeps_its_epoch(sample: Sample, tmp_path: Path) -> None:
    data_dir = copy_of(sample, tmp_path / "damaged")
    (data_dir / STORE_DIRECTORY / "CURRENT").unlink()
    repaired = repair(data_dir)
    assert not repaired.is_new_epoch
    store = RocksStore(data_dir)
    assert store.recover().epoch == repaired.epoch
    assert state_of(store.recover()) == sample.state
    assert len(store.read(range(END))) == END
    store.close()


def test_the_lineage_says_up_to_where_the_log_is_the_same(sample: Sample, tmp_path: Path) -> None:
    data_dir = copy_of(sample, tmp_path / "damaged")
    damage(largest_table(data_dir), 0.5)
    repaired = repair(data_dir)
    assert repaired.examination is not None
    ((begin, end),) = repaired.examination.lost_ranges
    after = examine(data_dir)
    assert after.lineage == [(repaired.examination.epoch, begin)]
    assert after.given_up == [(begin, end)]
    assert after.end == END


def test_without_a_watermark_a_start_warns(
    sample: Sample, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = copy_of(sample, tmp_path / "damaged")
    (data_dir / WATERMARK_FILE).unlink()
    assert [note for note in examine(data_dir).notes if "it is not known" in note]
    RocksStore(data_dir).close()
    assert "not known whether the newest messages of the store are still there" in caplog.text
    caplog.clear()
    RocksStore(data_dir).close()
    assert "it is not known" not in caplog.text


def test_a_store_that_lost_its_first_table_too_says_so(sample: Sample, tmp_path: Path) -> None:
    """Nothing is left before the hole; retention has not been there."""
    data_dir = copy_of(sample, tmp_path / "damaged")
    largest_table(data_dir).unlink()
    found = examine(data_dir)
    assert found.lost_ranges == [(0, END // 2)]
    (data_dir / WATERMARK_FILE).unlink()
    assert examine(data_dir).lost_ranges == found.lost_ranges


def test_without_a_watermark_the_bytes_of_the_log_tell_that_its_end_is_lost(
    tmp_path: Path,
) -> None:
    running = tmp_path / "running"
    store = RocksStore(running)
    for number in range(3):
        store.commit(rows(number * ROWS, ROWS))
    store.close()
    database = open_database(running)
    database.families["log"].delete(encode_key(2 * ROWS))
    database.close()
    (running / WATERMARK_FILE).unlink()
    (problem,) = examine(running).problems
    assert "bytes of messages are missing, before offset 0 or after offset 19" in problem
    assert repair(running).is_new_epoch
    assert examine(running).problems == []
