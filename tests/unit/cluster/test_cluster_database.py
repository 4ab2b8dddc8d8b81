"""The store of a primary on a real RocksDB: the log first, then the view, and back to the log when
something fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import pytest
from rocksdict import WriteBatch

from penstock.cluster.database import ClusterDatabase, ViewOpener, open_cluster_database
from penstock.cluster.reading import catch_up
from penstock.cluster.record import Claim, Position, decode_record, encode_claim
from penstock.cluster.view import View
from penstock.cluster.writer import Fenced, LogWriter
from penstock.errors import CommitUnknown, StoreUnavailable
from penstock.store.mark import NO_MARK
from penstock.store.rocks import RocksStore
from penstock.store.watermark import WatermarkFile, read_watermark
from tests.contract.test_store import rows
from tests.model.memory_rocks import Content
from tests.support.memory_log import AppendFault, MemoryCluster, MemoryLog

APPEND_S_MAX: Final = 0.05
TRIES: Final = 20  # more than fit into that time


@final
class FullDatabase(ClusterDatabase):
    """A database whose disk is full for a while."""

    is_full = False

    def write_here(self, batch: WriteBatch, sync: bool) -> None:
        if FullDatabase.is_full:
            raise CommitUnknown("No space left on device")
        super().write_here(batch, sync)


@final
class Primary:
    """A store on a view of a log in memory."""

    def __init__(self, cluster: MemoryCluster, data_dir: Path) -> None:
        self.cluster = cluster
        self.data_dir = data_dir
        self.log = MemoryLog(cluster)
        self._now_s = 0.0
        self._is_closed = False
        self.writer = LogWriter(self.log, APPEND_S_MAX, lambda: self._now_s, self._pause)
        database = open_cluster_database(data_dir)
        view = View(database)
        catch_up(view, MemoryLog(cluster))
        self.writer.claim(view.end, encode_claim(Claim("a", view.current_watermark().epoch)))
        self.views = [view]
        self.opener = ViewOpener(
            self.writer, lambda _, view: self.views.append(view), database, view, self._open
        )
        self.store = RocksStore(data_dir, (), self.opener)

    def _open(self, data_dir: Path) -> ClusterDatabase:
        opened = open_cluster_database(data_dir)
        return FullDatabase(opened.rocks, data_dir, opened.families)

    def _pause(self, seconds: float) -> None:
        self._now_s += seconds

    def claim_elsewhere(self) -> None:
        """Let another member be the primary."""
        last = self.cluster.bounds.last
        entry = self.cluster.entry(last)
        assert entry is not None
        record = decode_record(entry.data)
        at = Position(last, record.term, record.number, record.checksum)
        epoch = self.views[-1].current_watermark().epoch
        LogWriter(MemoryLog(self.cluster, "b"), 1.0).claim(at, encode_claim(Claim("b", epoch)))

    def fail(self, fault: AppendFault) -> None:
        self.log.faults.extend([fault] * TRIES)

    def close(self) -> None:
        """Close it; that may be asked for twice."""
        if not self._is_closed:
            self._is_closed = True
            self.store.close()
            self.opener.close()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Primary]:
    FullDatabase.is_full = False
    made = Primary(MemoryCluster(), tmp_path / "a")
    yield made
    made.close()


def content_of(data_dir: Path, cluster: MemoryCluster) -> Content:
    """All that the view in ``data_dir`` has, with all of the log."""
    database = open_cluster_database(data_dir)
    try:
        catch_up(View(database), MemoryLog(cluster))
        return {family: dict(database.items(family)) for family in database.families}
    finally:
        database.close()


def test_a_primary_writes_into_the_log_first(primary: Primary, tmp_path: Path) -> None:
    before = primary.cluster.bounds.last
    primary.store.write_state("s", b"1")
    assert primary.cluster.bounds.last == before + 1
    assert primary.views[-1].position.sequence == before + 1
    assert primary.store.read_state("s") == b"1"
    primary.close()
    assert content_of(primary.data_dir, primary.cluster) == content_of(
        tmp_path / "b", primary.cluster
    )


@pytest.mark.parametrize("fault", [AppendFault.LOST, AppendFault.DELAYED, AppendFault.NOT_SENT])
@pytest.mark.parametrize("arrives", [False, True])
def test_after_doubt_it_goes_on_with_what_the_log_has(
    primary: Primary, tmp_path: Path, fault: AppendFault, arrives: bool
) -> None:
    primary.store.write_state("s", b"1")
    primary.fail(fault)
    with pytest.raises(CommitUnknown):
        primary.store.write_state("s", b"2")
    with pytest.raises(CommitUnknown):
        primary.store.write_state("t", b"3")
    assert primary.store.read_state("s") == b"1"
    primary.log.faults.clear()
    if arrives:
        for append in list(primary.cluster.delayed):
            primary.cluster.deliver(append)
    primary.store.reopen()
    has_arrived = arrives and fault is AppendFault.DELAYED
    assert primary.store.read_state("s") == (b"2" if has_arrived else b"1")
    primary.store.write_state("s", b"2")
    assert primary.store.read_state("s") == b"2"
    primary.close()
    assert content_of(primary.data_dir, primary.cluster) == content_of(
        tmp_path / "b", primary.cluster
    )


def test_a_view_that_could_not_be_written_takes_it_from_the_log(primary: Primary) -> None:
    primary.store.write_state("s", b"1")
    primary.store.reopen()
    FullDatabase.is_full = True
    with pytest.raises(CommitUnknown, match="No space"):
        primary.store.write_state("s", b"2")
    appended = primary.cluster.bounds.last
    with pytest.raises(CommitUnknown, match="behind the replicated log"):
        primary.store.write_state("s", b"3")
    assert primary.cluster.bounds.last == appended
    with pytest.raises(StoreUnavailable):
        primary.store.reopen()
    FullDatabase.is_full = False
    primary.store.reopen()
    assert primary.store.read_state("s") == b"2"
    primary.store.write_state("s", b"3")
    assert primary.store.read_state("s") == b"3"


def test_without_a_majority_it_is_not_opened_anew(primary: Primary) -> None:
    """The store stays readable, and its files are left alone."""
    primary.store.write_state("s", b"1")
    primary.cluster.has_majority = False
    with pytest.raises(CommitUnknown):
        primary.store.write_state("s", b"2")
    with pytest.raises(StoreUnavailable):
        primary.store.reopen()
    assert len(primary.views) == 1
    assert primary.store.read_state("s") == b"1"
    primary.cluster.has_majority = True
    primary.store.reopen()
    primary.store.write_state("s", b"2")
    assert primary.store.read_state("s") == b"2"


def test_another_primary_ends_it(primary: Primary) -> None:
    primary.store.write_state("s", b"1")
    primary.claim_elsewhere()
    with pytest.raises(Fenced):
        primary.store.write_state("s", b"2")
    with pytest.raises(Fenced):
        primary.store.reopen()
    assert primary.store.read_state("s") == b"1"


def test_another_primary_ends_it_when_it_is_opened_anew(primary: Primary) -> None:
    primary.store.write_state("s", b"1")
    primary.fail(AppendFault.LOST)
    with pytest.raises(CommitUnknown):
        primary.store.write_state("s", b"2")
    primary.log.faults.clear()
    primary.claim_elsewhere()
    with pytest.raises(StoreUnavailable, match="another member of the cluster is the primary"):
        primary.store.reopen()
    with pytest.raises(Fenced):
        primary.store.reopen()


def test_the_next_primary_has_all_of_it(primary: Primary, tmp_path: Path) -> None:
    primary.store.write_state("s", b"1")
    other = Primary(primary.cluster, tmp_path / "b")
    try:
        assert other.writer.term == 2
        assert other.store.read_state("s") == b"1"
        other.store.write_state("s", b"2")
        with pytest.raises(Fenced):
            primary.store.write_state("s", b"3")
    finally:
        other.close()
    primary.close()
    assert content_of(primary.data_dir, primary.cluster) == content_of(
        tmp_path / "b", primary.cluster
    )


def test_a_removal_that_got_no_answer_is_counted_once_it_is_in_the_view(
    primary: Primary, tmp_path: Path
) -> None:
    """A service settles it by its own write; the next removal goes on behind it."""
    for base in range(0, 40, 10):
        primary.store.commit(rows(base, 10))
    primary.log.faults.extend([AppendFault.ANSWER_LOST] + [AppendFault.NOT_SENT] * TRIES)
    with pytest.raises(StoreUnavailable):
        primary.store.trim_log(10**18, 10**12, 20)
    primary.log.faults.clear()
    primary.store.write_state("s", b"1")
    assert primary.store.trim_log(10**18, 10**12, 30) == 30
    extent = primary.store.log_extent()
    assert extent.earliest == 30
    primary.close()
    alone = RocksStore(tmp_path / "alone")
    alone.commit(rows(0, 10))
    one_chunk_bytes = alone.log_extent().size_bytes
    alone.close()
    assert extent.size_bytes == one_chunk_bytes


def test_every_view_has_the_same_history_and_each_claim_begins_a_run(
    primary: Primary, tmp_path: Path
) -> None:
    primary.store.commit(rows(0, 3))
    epoch, mark = primary.store.epoch, primary.store.mark_at(3)
    primary.close()
    later = Primary(primary.cluster, primary.data_dir)
    assert later.store.judge(epoch, 3, mark).is_same
    later.store.commit(rows(3, 2))
    newest = later.store.mark_at(5)
    assert newest.path[:-1] == mark.path
    later.close()
    assert content_of(primary.data_dir, primary.cluster) == content_of(
        tmp_path / "b", primary.cluster
    )
    elsewhere = Primary(primary.cluster, tmp_path / "b")
    assert elsewhere.store.mark_at(5) == newest
    elsewhere.close()


@pytest.mark.parametrize("arrives", [False, True])
def test_a_fork_without_an_answer_is_there_or_not_when_the_store_is_opened_again(
    primary: Primary, tmp_path: Path, arrives: bool
) -> None:
    primary.store.commit(rows(0, 3))
    epoch = primary.store.epoch
    primary.fail(AppendFault.DELAYED)
    with pytest.raises(CommitUnknown):
        primary.store.fork(2)
    assert primary.store.epoch == epoch
    primary.log.faults.clear()
    if arrives:
        for append in list(primary.cluster.delayed):
            primary.cluster.deliver(append)
    primary.store.reopen()
    assert (primary.store.epoch != epoch) == arrives
    primary.store.commit(rows(3, 1))
    forked = primary.store.fork(1)
    assert primary.store.epoch == forked
    assert primary.store.judge(epoch, 1, NO_MARK).is_same
    assert primary.store.judge(epoch, 2, NO_MARK).parts_at == 1
    watermark = read_watermark(primary.data_dir)
    assert watermark is not None
    assert (watermark.epoch, watermark.end) == (forked, 4)
    primary.close()
    standby = open_cluster_database(tmp_path / "b")
    view = View(standby)
    view.attach_watermark(
        WatermarkFile(tmp_path / "b", view.current_watermark()), view.current_watermark()
    )
    catch_up(view, MemoryLog(primary.cluster))
    assert read_watermark(tmp_path / "b") == watermark
    view.close_watermark()
    standby.close()
