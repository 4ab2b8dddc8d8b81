"""The history of a log: the contract of ``store.history``, of marks and of the chain.

A position is judged by the store that it comes back to: the same one, an older copy that was put
back and went on, a newer one, one of another installation, one that an older version wrote.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.store.backup import restore
from penstock.store.chain import NO_DIGEST, digest_of, read_link
from penstock.store.chunk import decode_key, encode_key
from penstock.store.database import open_database, open_for_reading
from penstock.store.examination import examine
from penstock.store.history import RUNS, decode_runs
from penstock.store.identity import begin_epoch
from penstock.store.mark import NO_MARK, PATH_RUNS_MAX, Mark, Run, Verdict, parse_mark
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from penstock.store.watermark import Watermark, write_watermark
from tests.contract.test_store import rows
from tests.released.write import unpack
from tests.support.crash_image import copy_running

RELEASED = Path(__file__).resolve().parents[1] / "released"
SAME = Verdict(True)
FIRST = Run(0, "4be1d0c7a2f9")


class Log:
    """A store and what was published to it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.store = RocksStore(data_dir)
        self.epoch = self.store.recover().epoch

    def publish(self, count: int, chunks: int = 1, received_at_us: int = 1_000) -> None:
        for _ in range(chunks):
            end = self.store.log_extent().end
            self.store.commit(rows(end, count, received_at_us))

    def restart(self) -> None:
        self.store.close()
        self.store = RocksStore(self.data_dir)

    def position(self, offset: int) -> tuple[str, int, Mark]:
        return self.epoch, offset, self.store.mark_at(offset)

    def copy(self, to: Path) -> Path:
        """Stop, copy the data directory, go on."""
        self.store.close()
        shutil.copytree(self.data_dir, to)
        self.store = RocksStore(self.data_dir)
        return to

    def put_back(self, copy: Path) -> None:
        self.store.close()
        shutil.rmtree(self.data_dir)
        shutil.copytree(copy, self.data_dir)
        self.store = RocksStore(self.data_dir)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "data")
    yield made
    made.store.close()


def test_a_position_of_the_same_history_goes_on_also_after_restarts(log: Log) -> None:
    log.publish(10, chunks=3)
    positions = [log.position(offset) for offset in (0, 1, 10, 15, 30)]
    log.restart()
    log.publish(5)
    log.restart()
    assert [log.store.judge(*position) for position in positions] == [SAME] * 5


def test_a_copy_that_was_put_back_and_went_on_parts_where_the_copy_ends(
    log: Log, tmp_path: Path
) -> None:
    log.publish(20)
    copy = log.copy(tmp_path / "copy")
    old = log.position(20)
    log.publish(10, chunks=2)
    lost = [log.position(offset) for offset in (21, 30, 40)]
    log.put_back(copy)
    assert [log.store.judge(*position) for position in lost] == [Verdict(False, 20)] * 3
    log.publish(10, chunks=4, received_at_us=2_000)
    assert [log.store.judge(*position) for position in lost] == [Verdict(False, 20)] * 3
    assert log.store.judge(*old) == SAME


def test_histories_part_where_the_copy_ends_though_it_was_put_back_again_and_again(
    log: Log, tmp_path: Path
) -> None:
    log.publish(20)
    copy = log.copy(tmp_path / "copy")
    lost = []
    for turn in range(4):
        log.publish(5, received_at_us=turn)
        log.restart()
        log.publish(5, received_at_us=turn)
        lost.append(log.position(30))
        log.put_back(copy)
    log.publish(10, received_at_us=9)
    assert [log.store.judge(*position) for position in lost] == [Verdict(False, 20)] * 4
    assert log.store.judge(*log.position(30)) == SAME


def test_a_copy_of_a_running_broker_parts_in_the_middle_of_a_run(log: Log, tmp_path: Path) -> None:
    log.publish(10)
    copy_running(log.data_dir, tmp_path / "image")
    log.publish(10)  # in the same run
    lost = log.position(20)
    log.put_back(tmp_path / "image")
    log.publish(30, received_at_us=5)
    assert log.store.judge(*lost) == Verdict(False, 10)


def test_histories_part_in_the_run_that_they_share_also_when_the_newer_one_comes_back(
    log: Log, tmp_path: Path
) -> None:
    log.publish(10)
    copy_running(log.data_dir, tmp_path / "image")
    log.publish(10)  # in the same run
    newer = log.copy(tmp_path / "newer")
    log.put_back(tmp_path / "image")
    log.publish(30, received_at_us=5)
    lost = [log.position(offset) for offset in (20, 30, 40)]
    log.put_back(newer)
    log.publish(30, received_at_us=6)
    assert [log.store.judge(*position) for position in lost] == [Verdict(False, 10)] * 3


def test_a_copy_of_an_empty_store_parts_at_the_beginning(log: Log, tmp_path: Path) -> None:
    copy = log.copy(tmp_path / "copy")
    log.publish(10)
    lost = log.position(10)
    log.put_back(copy)
    log.publish(10, received_at_us=5)
    assert log.store.judge(*lost) == Verdict(False, 0)


def test_the_path_decides_where_retention_has_removed_the_messages(
    log: Log, tmp_path: Path
) -> None:
    log.publish(10, chunks=2)
    copy = log.copy(tmp_path / "copy")
    log.publish(10, chunks=2)
    lost, old = log.position(30), log.position(15)
    log.put_back(copy)
    log.publish(10, chunks=4, received_at_us=5)
    assert log.store.trim_log(10**9, 0, 50) == 50
    assert log.store.judge(*lost) == Verdict(False, 20)
    assert log.store.judge(*old) == SAME
    assert log.store.mark_at(30).digest == ""
    assert log.store.judge(*log.position(30)) == SAME


def test_a_position_ahead_of_a_log_that_lost_its_end_in_the_same_run_is_not_taken_over(
    log: Log,
) -> None:
    log.publish(10)
    epoch, offset, mark = log.position(10)
    assert log.store.judge(epoch, offset + 5, mark) == Verdict(False, None)


def test_the_chain_tells_apart_what_a_resumed_memory_snapshot_wrote(log: Log) -> None:
    log.publish(10)
    epoch, offset, mark = log.position(10)
    other = Mark(mark.path, "0" * 64)
    assert log.store.judge(epoch, offset, other) == Verdict(False, None)


def test_a_position_of_another_installation_is_refused(log: Log, tmp_path: Path) -> None:
    log.publish(20)
    other = Log(tmp_path / "other")
    other.publish(10)
    assert log.store.judge(*other.position(10)) == Verdict(False, None)
    assert log.store.judge(*other.position(0)) == Verdict(False, None)
    other.store.close()


def test_a_position_without_a_mark_is_taken_over_up_to_the_end(log: Log) -> None:
    log.publish(10)
    assert log.store.judge(log.epoch, 10, NO_MARK) == SAME
    assert log.store.judge(log.epoch, 11, NO_MARK) == Verdict(False, None)
    assert log.store.judge("20200101T000000-00000000", 1, NO_MARK) == Verdict(False, None)


def test_a_store_that_an_older_version_wrote_goes_on_with_a_chain_and_its_copies_part(
    tmp_path: Path,
) -> None:
    """As 0.1.0 left it: no links, no runs."""
    unpack(RELEASED / "0.1.0.tar.xz", tmp_path)
    data_dir = tmp_path / "data"
    shutil.copytree(data_dir, tmp_path / "copy")
    log, other = Log(data_dir), Log(tmp_path / "copy")
    end = log.store.log_extent().end
    before = log.position(end)
    log.publish(5, chunks=2)
    other.publish(20, received_at_us=5)
    lost = other.position(end + 7)
    assert log.store.judge(log.epoch, end, NO_MARK) == SAME
    assert [one.store.judge(*before) for one in (log, other)] == [SAME, SAME]
    assert log.store.judge(*lost) == Verdict(False, end)
    for one in (log, other):
        one.store.close()
    assert examine(data_dir).problems == []


def test_every_chunk_carries_the_digest_of_all_before_it_also_large_ones(log: Log) -> None:
    log.publish(3)
    log.store.commit(rows(3, 2, size=3 * 1_048_576))
    log.publish(2)
    log.restart()
    log.publish(4)
    ends = [log.store.mark_at(offset).digest for offset in (3, 5, 7, 11)]
    assert log.store.mark_at(4).digest == ends[1]
    log.store.close()
    database = open_for_reading(log.data_dir)
    found = []
    before = NO_DIGEST
    for key, value in database.items("log"):
        whole = database.full_value("log", key, value)
        assert read_link(whole) == before
        before = digest_of(decode_key(key), whole)
        found.append(before.hex())
    database.close()
    assert found == ends
    log.store = RocksStore(log.data_dir)


def test_a_check_finds_messages_that_do_not_continue_those_before_them(
    log: Log, tmp_path: Path
) -> None:
    log.publish(3, chunks=3)
    log.store.close()
    other = Log(tmp_path / "other")
    other.publish(3, chunks=3, received_at_us=5)
    other.store.close()
    assert examine(log.data_dir).problems == []
    foreign = open_for_reading(other.data_dir)
    chunk = foreign.families["log"].get(encode_key(3))
    foreign.close()
    database = open_database(log.data_dir)
    database.families["log"][encode_key(3)] = chunk
    database.close()

    first, second = examine(log.data_dir).problems
    assert first.startswith("the messages from offset 3 on do not continue those before it")
    assert second.startswith("the messages from offset 6 on")
    result = repair(log.data_dir)
    assert result.is_new_epoch
    assert result.moved_paths
    found = examine(log.data_dir)
    assert (found.problems, found.lineage, found.end) == ([], [(log.epoch, 3)], 9)
    log.store = RocksStore(log.data_dir)
    assert log.store.judge(log.epoch, 3, NO_MARK) == SAME
    assert log.store.judge(log.epoch, 9, NO_MARK) == Verdict(False, 3)


def test_a_log_that_lost_its_end_and_was_repaired_parts_there_from_what_was_read(
    log: Log,
) -> None:
    log.publish(3, chunks=2)
    lost = log.position(6)
    log.store.close()
    database = open_database(log.data_dir)
    del database.families["log"][encode_key(3)]
    database.close()
    repair(log.data_dir)
    log.store = RocksStore(log.data_dir)
    log.publish(5, received_at_us=5)
    assert log.store.judge(*lost) == Verdict(False, 3)


def test_a_commit_that_is_written_again_continues_the_chain_once(log: Log) -> None:
    log.publish(3)
    commit = rows(3, 2)
    log.store.commit(commit)
    before = log.store.mark_at(5)
    log.store.reopen()
    assert log.store.mark_at(5) == before
    log.publish(1)
    log.restart()
    assert log.store.mark_at(5) == before


def test_runs_that_wrote_nothing_leave_no_trace(log: Log) -> None:
    for _ in range(5):
        log.restart()
    log.publish(1)
    for _ in range(PATH_RUNS_MAX + 5):
        log.restart()
        log.publish(1)
    mark = log.store.mark_at(log.store.log_extent().end)
    assert len(mark.path) == PATH_RUNS_MAX
    log.store.close()
    database = open_for_reading(log.data_dir)
    runs = decode_runs(database.families["meta"].get(RUNS))
    database.close()
    log.store = RocksStore(log.data_dir)
    assert len(runs) == 2 + PATH_RUNS_MAX + 5
    assert all(one.begin < other.begin for one, other in pairwise(runs[1:]))


@pytest.mark.parametrize(
    "mark",
    [NO_MARK, Mark((FIRST,), ""), Mark((FIRST, Run(20, "90d1c36b77aa")), "ab" * 32)],
)
def test_a_mark_is_text_and_back(mark: Mark) -> None:
    assert parse_mark(str(mark)) == mark


@pytest.mark.parametrize(
    "text", ["x", "/zz", "0-4be1/", "0-4be1d0c7a2f9", f"/{'A' * 64}", "/\n", "-4be1d0c7a2f9/"]
)
def test_a_text_that_is_no_mark_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no mark"):
        parse_mark(text)


def test_an_epoch_sorts_behind_the_former_ones_of_its_log_though_the_clock_is_behind(
    tmp_path: Path,
) -> None:
    ahead = "20991231T235959-00000000"
    data_dir = tmp_path / "data"
    RocksStore(data_dir).close()
    database = open_database(data_dir)
    begin_epoch(database, epoch=ahead)  # while the clock was ahead
    database.close()
    store = RocksStore(data_dir)
    store.commit(rows(0, 3))
    forked = store.fork(2)
    again = store.fork(1)
    store.backup(tmp_path / "backup")
    store.close()
    _, restored = restore(tmp_path / "backup", tmp_path / "restored")
    write_watermark(data_dir, Watermark(9, 0, 99, again))  # of messages that were lost
    repaired = repair(data_dir).epoch
    assert ahead < forked < again < restored
    assert again < repaired
    assert {len(name) for name in (forked, restored, repaired)} == {len(ahead)}
