"""A primary step by step: it learns of another one while it is idle, and trims."""

from __future__ import annotations

from typing import Final, final

import pytest

from penstock.cluster.log import LogUnavailable
from penstock.cluster.record import Position, decode_record
from penstock.cluster.watcher import TRIM_S, Watcher
from penstock.cluster.writer import LogWriter
from tests.support.memory_log import MemoryCluster, MemoryLog

ENTRIES_MAX: Final = 1000


@final
class Bench:
    """A primary with ten commits."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.now_s = 0.0
        self.writer = self.claim()
        for number in range(10):
            self.writer.append(b"%d" % number)
        log = MemoryLog(self.cluster)
        self.watcher = Watcher(log, self.writer, ENTRIES_MAX, lambda: self.now_s)

    def claim(self) -> LogWriter:
        """Claim the next term behind the end of the log."""
        last = self.cluster.bounds.last
        found = self.cluster.entry(last)
        at = Position()
        if found is not None:
            record = decode_record(found.data)
            at = Position(last, record.term, record.number, record.checksum)
        writer = LogWriter(MemoryLog(self.cluster), 1.0)
        writer.claim(at, b"")
        return writer

    def step(self, *synced: int) -> str:
        self.now_s += 1.0
        return self.watcher.step(synced, synced)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_alone_it_finds_nothing(bench: Bench) -> None:
    assert [bench.step() for _ in range(5)] == [""] * 5


def test_idle_it_learns_of_another_primary(bench: Bench) -> None:
    bench.step()
    other = bench.claim()
    assert "in term 2" in bench.step()
    other.append(b"x")
    assert "in term 2" in bench.step()


def test_an_own_record_of_which_it_did_not_learn_is_no_other_primary(bench: Bench) -> None:
    bench.step()
    ahead = LogWriter(MemoryLog(bench.cluster), 1.0)
    ahead.term = bench.writer.term
    ahead.resume(bench.writer.position)
    ahead.append(b"late")
    assert bench.step() == ""


def test_a_wrong_entry_at_the_end_is_no_other_primary(bench: Bench) -> None:
    bench.step()
    bench.cluster.put(b"nonsense", bench.cluster.bounds.last)
    assert bench.step() == ""


def test_without_an_answer_it_goes_on_later(bench: Bench) -> None:
    bench.cluster.has_majority = False
    with pytest.raises(LogUnavailable):
        bench.step()
    bench.cluster.has_majority = True
    assert bench.step() == ""


def test_now_and_then_it_trims_what_two_views_have(bench: Bench) -> None:
    for _ in range(round(TRIM_S) - 1):
        bench.step(11, 8)
        assert bench.cluster.bounds.first == 1
    bench.step(11, 8)
    assert bench.cluster.bounds.first == 9
    for _ in range(round(TRIM_S)):
        bench.step(11)
    assert bench.cluster.bounds.first == 9


def test_a_log_of_which_all_is_trimmed_is_watched_on(bench: Bench) -> None:
    for _ in range(round(TRIM_S)):
        bench.step(11, 11)
    assert bench.cluster.bounds == (12, 11)
    assert bench.step(11, 11) == ""
    bench.writer.append(b"x")
    assert bench.step(11, 11) == ""
