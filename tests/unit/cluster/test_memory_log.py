"""The faults of the log in memory: each is what the port says of it, and no other."""

from __future__ import annotations

from random import Random

import pytest

from penstock.cluster.log import (
    AppendRefused,
    AppendUnknown,
    Bounds,
    EntriesTrimmed,
    Entry,
    LogUnavailable,
)
from tests.support.memory_log import AppendFault, MemoryCluster, MemoryHeartbeats, MemoryLog


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def log(cluster: MemoryCluster) -> MemoryLog:
    return MemoryLog(cluster)


def test_an_append_that_is_not_sent_is_not_there(log: MemoryLog, cluster: MemoryCluster) -> None:
    log.faults.append(AppendFault.NOT_SENT)
    with pytest.raises(LogUnavailable) as caught:
        log.append(b"a", 0, 1)
    assert not isinstance(caught.value, AppendUnknown)
    assert cluster.bounds == Bounds(1, 0)
    log.append(b"a", 0, 1)
    assert cluster.entry(1) == Entry(1, b"a")


def test_a_lost_answer_is_of_an_append_that_is_there(log: MemoryLog) -> None:
    log.faults.extend([AppendFault.ANSWER_LOST, AppendFault.ANSWER_LOST])
    with pytest.raises(AppendUnknown):
        log.append(b"a", 0, 1)
    assert log.entry_at(1, 1) == Entry(1, b"a")
    with pytest.raises(AppendUnknown):  # it was refused, which nobody hears
        log.append(b"b", 0, 1)
    assert log.bounds(1) == Bounds(1, 1)


def test_a_deposed_leader_may_refuse_what_the_next_one_appends(log: MemoryLog) -> None:
    log.faults.append(AppendFault.ANSWER_OF_DEPOSED)
    with pytest.raises(AppendRefused):
        log.append(b"a", 0, 1)
    assert log.entry_at(1, 1) == Entry(1, b"a")


def test_a_lost_append_never_comes(log: MemoryLog, cluster: MemoryCluster) -> None:
    log.faults.append(AppendFault.LOST)
    with pytest.raises(AppendUnknown):
        log.append(b"a", 0, 1)
    assert not cluster.delayed
    assert log.entry_at(1, 1) is None


def test_a_delayed_append_arrives_when_the_test_says_so(
    log: MemoryLog, cluster: MemoryCluster
) -> None:
    log.faults.extend([AppendFault.DELAYED, AppendFault.DELAYED])
    for data in (b"a", b"b"):
        with pytest.raises(AppendUnknown):
            log.append(data, 0, 1)
    assert log.entry_at(1, 1) is None
    first, second = cluster.delayed
    assert cluster.deliver(second)
    assert not cluster.deliver(first)
    assert not cluster.delayed
    assert log.read(1, 10, 1) == [Entry(1, b"b")]


def test_a_member_that_is_cut_reaches_nothing_and_others_do(
    log: MemoryLog, cluster: MemoryCluster
) -> None:
    other = MemoryLog(cluster, "b")
    log.is_cut = True
    for call in (
        lambda: log.append(b"a", 0, 1),
        lambda: log.read(1, 1, 1),
        lambda: log.entry_at(1, 1),
        lambda: log.bounds(1),
        lambda: log.state(1),
        lambda: log.trim(1, 1),
    ):
        with pytest.raises(LogUnavailable) as caught:
            call()
        assert not isinstance(caught.value, AppendUnknown)
    other.append(b"b", 0, 1)
    log.is_cut = False
    with pytest.raises(AppendRefused):
        log.append(b"a", 0, 1)


def test_without_a_majority_only_replicas_answer(log: MemoryLog, cluster: MemoryCluster) -> None:
    log.append(b"a", 0, 1)
    cluster.has_majority = False
    with pytest.raises(AppendUnknown):
        log.append(b"b", 1, 1)
    with pytest.raises(LogUnavailable):
        log.entry_at(1, 1)
    with pytest.raises(LogUnavailable):
        log.bounds(1)
    assert log.read(1, 10, 1) == [Entry(1, b"a")]
    state = log.state(1)
    assert not state.has_quorum
    assert not state.leader
    cluster.has_majority = True
    assert log.bounds(1) == Bounds(1, 1)


def test_a_replica_that_lags_has_a_prefix(log: MemoryLog) -> None:
    for after in range(5):
        log.append(b"%d" % after, after, 1)
    log.replica_end = 2
    assert [entry.sequence for entry in log.read(1, 10, 1)] == [1, 2]
    assert log.read(3, 10, 1) == []
    assert log.entry_at(5, 1) == Entry(5, b"4")
    log.replica_end = None
    assert [entry.sequence for entry in log.read(3, 10, 1)] == [3, 4, 5]


def test_a_trimmed_entry_cannot_be_read(log: MemoryLog) -> None:
    for after in range(5):
        log.append(b"%d" % after, after, 1)
    log.trim(4, 1)
    with pytest.raises(EntriesTrimmed) as caught:
        log.read(2, 10, 1)
    assert caught.value.first == 4
    assert log.bounds(1) == Bounds(4, 5)


def test_heartbeats_are_lost_late_repeated_and_overtaken_as_the_seed_says() -> None:
    def run(seed: int) -> list[tuple[float, bytes]]:
        now = [0.0]
        cluster = MemoryCluster(lambda: now[0], Random(seed))
        cluster.beat_loss, cluster.beat_repeat, cluster.beat_delay_s_max = 0.3, 0.3, 2.0
        a, b = MemoryHeartbeats(cluster, "a"), MemoryHeartbeats(cluster, "b")
        heard: list[tuple[float, bytes]] = []
        for number in range(100):
            now[0] = number * 0.1
            a.send(b"%d" % number)
            heard += [(now[0], beat) for beat in b.received(1.0)]
        now[0] = 100.0
        return heard + [(now[0], beat) for beat in b.received(1.0)]

    heard = run(1)
    assert run(1) == heard != run(2)
    numbers = [int(beat) for _, beat in heard]
    assert len(set(numbers)) < 100  # some are lost
    assert len(numbers) > len(set(numbers))  # some come twice
    assert numbers != sorted(numbers)  # some overtake others
    delays_s = [at_s - int(beat) * 0.1 for at_s, beat in heard if at_s < 100]
    assert max(delays_s) > 1


def test_links_are_cut_one_by_one_and_a_member_hears_itself() -> None:
    cluster = MemoryCluster()
    a, b = MemoryHeartbeats(cluster, "a"), MemoryHeartbeats(cluster, "b")
    cluster.cut_links.add(("a", "b"))
    a.send(b"of a")
    b.send(b"of b")
    assert a.received(1) == [b"of a", b"of b"]
    assert b.received(1) == [b"of b"]
    a.is_cut = True
    a.send(b"lost")
    b.send(b"more of b")
    assert a.received(1) == []
    a.is_cut = False
    assert a.received(1) == []
    b.close()
    a.send(b"alone")
    assert b.received(1) == [b"more of b"]
