"""The database of a primary, on a log in memory whose faults the test chooses."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest

from penstock.cluster.database import ClusterDatabase, ViewOpener, open_cluster_database
from penstock.cluster.log import Entry
from penstock.cluster.operations import FAMILIES, encode_operations
from penstock.cluster.record import (
    CLAIM,
    COMMIT,
    FORMAT,
    NO_CHECKSUM,
    Claim,
    Position,
    RecordNewer,
    checksum_of,
    encode_claim,
    encode_record,
)
from penstock.cluster.view import View
from penstock.cluster.watcher import Watcher
from penstock.cluster.writer import Fenced, LogWriter
from penstock.errors import CommitUnknown, StoreFormatError
from penstock.store.database import FORMAT_KEY
from penstock.store.rocks import RocksStore
from penstock.store.stored_sessions import PUT
from tests.support.memory_log import AppendFault, MemoryCluster, MemoryLog


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, for_s: float) -> None:
        self.now_s += for_s


class Primary:
    """A primary with a store and no engine."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster(self.clock)
        self.log = MemoryLog(self.cluster)
        self.writer = LogWriter(self.log, 5.0, self.clock, self.clock.wait)
        database = open_cluster_database(data_dir)
        view = View(database)
        self.writer.claim(view.end, encode_claim(Claim("a")))
        self.opener = ViewOpener(self.writer, self._opened, database, view)
        self.store = RocksStore(data_dir, (), self.opener)

    def _opened(self, database: ClusterDatabase, view: View) -> None:
        raise AssertionError(f"{database} and {view} are opened anew, which a committer does")

    def close(self) -> None:
        self.store.close()
        self.opener.close()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Primary]:
    made = Primary(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("first", [AppendFault.ANSWER_LOST, AppendFault.LOST])
def test_services_write_on_after_an_outage_where_no_client_makes_a_commit(
    primary: Primary, first: AppendFault
) -> None:
    primary.log.faults.extend([first, *[AppendFault.NOT_SENT] * 2000])
    with pytest.raises(CommitUnknown):
        primary.store.write_state("one", b"1")
    with pytest.raises(CommitUnknown):
        primary.store.write_state("two", b"2")
    primary.log.faults.clear()
    primary.store.write_state("three", b"3")
    assert primary.store.read_state("three") == b"3"
    was_there = first is AppendFault.ANSWER_LOST
    assert primary.store.read_state("one") == (b"1" if was_there else None)


def newer(kind: int, term: int, before: int) -> bytes:
    """A record of the next format."""
    head = Struct("<4sBBIQI").pack(b"PSR\0", FORMAT + 1, kind, term, 0, before)
    return head + zlib.crc32(b"new", zlib.crc32(head)).to_bytes(4, "little") + b"new"


def test_the_claim_of_a_later_version_fences_a_primary(primary: Primary) -> None:
    end = primary.writer.position
    watcher = Watcher(primary.log, primary.writer, 1000, primary.clock)
    assert watcher.step([], []) == ""
    primary.cluster.put(newer(CLAIM, 2, end.checksum), end.sequence)
    assert watcher.step([], []) == "another member of the cluster is the primary, in term 2"
    with pytest.raises(Fenced, match="in term 2; this one was it in term 1"):
        primary.store.write_state("one", b"1")


def test_a_record_of_a_later_version_stops_a_standby_with_a_sentence(tmp_path: Path) -> None:
    database = open_cluster_database(tmp_path)
    try:
        view = View(database)
        with pytest.raises(RecordNewer, match=f"has format {FORMAT + 1}.*use the version that"):
            view.apply([Entry(1, newer(COMMIT, 1, NO_CHECKSUM))])
        assert view.position == Position()
    finally:
        database.close()


def test_a_store_that_a_later_version_rewrites_stops_a_standby_before_it(tmp_path: Path) -> None:
    database = open_cluster_database(tmp_path)
    try:
        view = View(database)
        claim = encode_record(CLAIM, 1, 0, NO_CHECKSUM, encode_claim(Claim("a")))
        operation = (PUT, FAMILIES.index("meta"), FORMAT_KEY, b"9")
        body = encode_operations([operation])
        commit = encode_record(COMMIT, 1, 1, checksum_of(claim), body)
        with pytest.raises(StoreFormatError, match="the store has format 9"):
            view.apply([Entry(1, claim), Entry(2, commit)])
        assert view.position == Position()
        assert database.families["meta"].get(FORMAT_KEY) is None
    finally:
        database.close()
