"""The contract of the replicated log: one suite for everything that keeps one (``cluster.log``).

Each test has a log of its own, in a system that all tests of this file share.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from penstock.cluster.log import (
    AppendRefused,
    AppendUnknown,
    Bounds,
    EntriesTrimmed,
    Entry,
    Heartbeats,
    LogUnavailable,
)
from tests.contract.log_systems import EtcdSystem, LogSystem, MemorySystem, NatsSystem
from tests.support import etcd_cluster, nats_cluster
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.patient_log import PatientLog

CALL_S: Final = 10.0  # long, for a slow machine
SHORT_S: Final = 1.0  # of calls that are to fail, and are made again

SYSTEMS: Final = [
    MemorySystem,
    pytest.param(NatsSystem, marks=nats_cluster.needed),
    pytest.param(EtcdSystem, marks=etcd_cluster.needed),
]


@pytest.fixture(params=SYSTEMS, scope="module")
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LogSystem]:
    make: Callable[[Path], LogSystem] = request.param
    made = make(tmp_path_factory.mktemp("log"))
    yield made
    made.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of the test's own log."""
    return f"log-{zlib.crc32(request.node.nodeid.encode())}"


@pytest.fixture
def log(system: LogSystem, name: str) -> Iterator[PatientLog]:
    opened = PatientLog(system.log(name))
    yield opened
    opened.close()


def settled(log: PatientLog, data: bytes, after: int) -> bool:
    """Append an entry at a place where one may be; return whether it is this one that is there."""
    try:
        log.append(data, after, SHORT_S)
    except AppendRefused:
        return log.entry_at(after + 1, SHORT_S) == Entry(after + 1, data)
    return True


def everything(log: PatientLog, first: int, last: int) -> list[Entry]:
    """Read from ``first`` to ``last``, in as many pieces as it takes."""
    found: list[Entry] = []

    def apply_next_entries() -> bool:
        found.extend(log.read(first + len(found), 1000, CALL_S))
        return first + len(found) > last

    wait_for(f"entries up to {last}", apply_next_entries)
    return found


def numbered(count: int, first: int = 1) -> list[Entry]:
    return [Entry(at, b"entry %d" % at) for at in range(first, first + count)]


def fill(log: PatientLog, count: int) -> list[Entry]:
    entries = numbered(count)
    for entry in entries:
        log.append(entry.data, entry.sequence - 1, CALL_S)
    return entries


def test_a_new_log_is_empty(log: PatientLog) -> None:
    assert log.bounds(CALL_S) == Bounds(1, 0)
    assert log.read(1, 10, CALL_S) == []
    assert log.entry_at(1, CALL_S) is None


def test_entries_have_the_sequences_from_1_on(log: PatientLog) -> None:
    entries = fill(log, 20)
    assert log.bounds(CALL_S) == Bounds(1, 20)
    assert everything(log, 1, 20) == entries
    assert [log.entry_at(at, CALL_S) for at in (1, 7, 20)] == [entries[0], entries[6], entries[19]]
    assert log.entry_at(21, CALL_S) is None


def test_a_log_is_read_in_pieces(log: PatientLog) -> None:
    entries = fill(log, 10)
    everything(log, 1, 10)  # the replica has them all
    assert log.read(1, 4, CALL_S) == entries[:4]
    assert log.read(5, 1, CALL_S) == entries[4:5]
    assert log.read(8, 100, CALL_S) == entries[7:]
    assert log.read(11, 100, CALL_S) == []


@pytest.mark.parametrize("after", [0, 1, 2, 4, 100])
def test_an_entry_for_another_place_than_the_end_is_refused(log: PatientLog, after: int) -> None:
    entries = fill(log, 3)
    with pytest.raises(AppendRefused):
        log.append(b"elsewhere", after, CALL_S)
    assert log.bounds(CALL_S) == Bounds(1, 3)
    log.append(b"in its place", 3, CALL_S)
    assert everything(log, 1, 4) == [*entries, Entry(4, b"in its place")]


def test_an_entry_may_be_empty_or_of_any_bytes(log: PatientLog) -> None:
    bodies = [b"", bytes(range(256)), b"\r\n", b"PING\r\n", b"NATS/1.0\r\n\r\n"]
    for after, data in enumerate(bodies):
        log.append(data, after, CALL_S)
    assert [entry.data for entry in everything(log, 1, len(bodies))] == bodies


def test_an_entry_may_be_as_large_as_it_says(log: PatientLog) -> None:
    size = log.entry_bytes_max
    assert size >= 512 * 1024
    largest = [random.Random(number).randbytes(size) for number in range(2)]
    for after, data in enumerate(largest):
        log.append(data, after, DEADLINE_S)
    found = everything(log, 1, 2)
    assert [entry.data for entry in found] == largest
    assert log.entry_at(2, DEADLINE_S) == found[1]
    with pytest.raises(ValueError, match=str(size)):
        log.append(bytes(size + 1), 2, CALL_S)


def test_another_member_reads_what_one_appends(
    system: LogSystem, log: PatientLog, name: str
) -> None:
    with closing(PatientLog(system.log(name))) as other:
        entries = fill(log, 5)
        assert everything(other, 1, 5) == entries
        other.append(b"of the other", 5, CALL_S)
        with pytest.raises(AppendRefused):
            log.append(b"too late", 5, CALL_S)
        assert log.entry_at(6, CALL_S) == Entry(6, b"of the other")


def test_logs_of_different_names_are_different(
    system: LogSystem, log: PatientLog, name: str
) -> None:
    fill(log, 3)
    with closing(PatientLog(system.log(f"{name}-2"))) as other:
        assert other.bounds(CALL_S) == Bounds(1, 0)
        other.append(b"another's", 0, CALL_S)
    assert log.bounds(CALL_S) == Bounds(1, 3)


def test_trimmed_entries_are_gone_and_the_rest_stays(log: PatientLog) -> None:
    entries = fill(log, 10)
    log.trim(4, CALL_S)
    assert log.bounds(CALL_S) == Bounds(4, 10)
    assert log.entry_at(3, CALL_S) is None

    def is_refused() -> bool:
        try:
            return not log.read(3, 10, CALL_S)
        except EntriesTrimmed as error:
            return error.first == 4

    wait_for("the replica to trim too", is_refused)
    assert everything(log, 4, 10) == entries[3:]
    log.trim(2, CALL_S)
    assert log.bounds(CALL_S) == Bounds(4, 10)


def test_a_log_that_is_emptied_goes_on_with_the_next_sequence(log: PatientLog) -> None:
    fill(log, 5)
    log.trim(6, CALL_S)
    assert log.bounds(CALL_S) == Bounds(6, 5)
    assert log.entry_at(5, CALL_S) is None
    assert log.read(6, 10, CALL_S) == []

    def is_told() -> bool:
        try:
            log.read(1, 10, CALL_S)
        except EntriesTrimmed as error:
            return error.first == 6
        return False

    wait_for("a reader to learn that it is too late", is_told)
    with pytest.raises(AppendRefused):
        log.append(b"at the beginning", 0, CALL_S)
    log.append(b"the sixth", 5, CALL_S)
    assert log.bounds(CALL_S) == Bounds(6, 6)
    assert everything(log, 6, 6) == [Entry(6, b"the sixth")]


def test_a_trim_beyond_the_end_leaves_the_end_where_it_is(log: PatientLog) -> None:
    fill(log, 3)
    log.trim(100, CALL_S)
    assert log.bounds(CALL_S) == Bounds(4, 3)
    log.append(b"the fourth", 3, CALL_S)
    assert log.bounds(CALL_S) == Bounds(4, 4)


def test_an_acknowledged_entry_stays_when_two_writers_take_turns(
    system: LogSystem, log: PatientLog, name: str
) -> None:
    """Neither knows of the other but by what is refused to it."""
    chance = random.Random(7)
    told: dict[int, bytes] = {}
    with closing(PatientLog(system.log(name))) as other:
        ends = {b"a": 0, b"b": 0}
        writers = {b"a": log, b"b": other}
        while len(told) < 60:
            writer = chance.choice([b"a", b"b"])
            data = b"%b %d" % (writer, len(told))
            try:
                writers[writer].append(data, ends[writer], CALL_S)
            except AppendRefused:
                ends[writer] = writers[writer].bounds(CALL_S).last
            else:
                ends[writer] += 1
                assert ends[writer] not in told
                told[ends[writer]] = data
    assert {entry.sequence: entry.data for entry in everything(log, 1, 60)} == told


def test_an_acknowledged_entry_stays_when_two_writers_contend(
    system: LogSystem, log: PatientLog, name: str
) -> None:
    if not system.is_concurrent:
        pytest.skip("one thread uses it")
    told: dict[bytes, int] = {}
    failures: list[BaseException] = []

    def contend(member: bytes) -> None:
        with closing(PatientLog(system.log(name))) as mine:
            number = 0
            while number < 100:
                after = mine.bounds(CALL_S).last
                for _ in range(5):  # it does not look again unless it is refused
                    data = b"%b %d" % (member, number)
                    try:
                        mine.append(data, after, CALL_S)
                    except AppendRefused:
                        break
                    after += 1
                    number += 1
                    told[data] = after

    def guarded(member: bytes) -> None:
        try:
            contend(member)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(member,)) for member in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not failures
    last = log.bounds(CALL_S).last
    assert {entry.data: entry.sequence for entry in everything(log, 1, last)} == told
    assert last == len(told)


def test_an_append_without_an_answer_is_settled_by_its_place(
    system: LogSystem, log: PatientLog
) -> None:
    fill(log, 3)
    with system.silent():
        with pytest.raises(AppendUnknown):
            log.impatient.append(b"the fourth", 3, SHORT_S)
        with pytest.raises(LogUnavailable):
            log.impatient.entry_at(4, SHORT_S)
        with pytest.raises(LogUnavailable):
            log.impatient.bounds(SHORT_S)
    assert settled(log, b"the fourth", 3)
    assert settled(log, b"the fifth", 4)
    assert everything(log, 1, 5) == [
        *numbered(3),
        Entry(4, b"the fourth"),
        Entry(5, b"the fifth"),
    ]


def test_another_finds_the_place_taken_or_takes_it(
    system: LogSystem, log: PatientLog, name: str
) -> None:
    """An entry whose writer was not answered may still come, at its place and at no other."""
    fill(log, 3)
    with closing(PatientLog(system.log(name))) as other:
        with system.silent(), pytest.raises(AppendUnknown):
            log.impatient.append(b"perhaps", 3, SHORT_S)
        is_others = settled(other, b"of the other", 3)
        found = log.entry_at(4, CALL_S)
        assert found is not None
        assert found.data == (b"of the other" if is_others else b"perhaps")
        assert settled(other, b"the fifth", 4)
        assert everything(log, 1, 5) == [*numbered(3), found, Entry(5, b"the fifth")]


def test_an_acknowledged_entry_stays_when_the_leader_is_killed(
    system: LogSystem, log: PatientLog
) -> None:
    before = fill(log, 20)
    with system.without_leader(log):
        for entry in numbered(20, 21):
            assert settled(log, entry.data, entry.sequence - 1)
        assert everything(log, 1, 40) == [*before, *numbered(20, 21)]
    assert log.bounds(CALL_S) == Bounds(1, 40)


def test_each_server_that_is_left_for_the_next_gives_its_own_copy(log: PatientLog) -> None:
    """Some time after the first entry: followers of JetStream begin to answer reads later."""
    entries = fill(log, 10)

    for _ in range(4):  # more than there are servers
        wait_for("a copy", lambda: log.read_copy(3, 5, CALL_S) == entries[2:7])
        log.leave_server()
    assert settled(log, b"the next", 10)


def test_the_leader_is_moved(log: PatientLog) -> None:
    fill(log, 2)
    state = log.state(CALL_S)
    assert state.has_quorum
    assert state.bounds == Bounds(1, 2)
    assert state.size_bytes >= sum(len(entry.data) for entry in numbered(2))
    assert [node.name for node in state.nodes if node.is_leader] == [state.leader]
    assert len(state.nodes) == 3
    wanted = next(node.name for node in state.nodes if not node.is_leader)

    def leads() -> bool:
        log.move_leader([wanted], CALL_S)
        return log.state(CALL_S).leader == wanted

    wait_for(f"{wanted} to lead", leads)
    assert settled(log, b"the third", 2)
    wait_for(f"{wanted} to lead still", leads)


def test_all_is_there_after_all_machines_were_killed(system: LogSystem, log: PatientLog) -> None:
    fill(log, 10)
    log.trim(4, CALL_S)
    system.restart()

    assert log.bounds(SHORT_S) == Bounds(4, 10)
    assert everything(log, 4, 10) == numbered(7, 4)
    assert settled(log, b"the eleventh", 10)


def heard(heartbeats: Heartbeats, beat: bytes, sender: Heartbeats) -> bool:
    """Return whether a member receives a beat, which its sender repeats until then."""

    def is_heard() -> bool:
        sender.send(beat)
        return beat in heartbeats.received(0.1)

    return wait_for(f"{beat!r}", is_heard)


def test_heartbeats_reach_all_members(system: LogSystem, name: str) -> None:
    with closing(system.heartbeats(name, "a")) as a, closing(system.heartbeats(name, "b")) as b:
        for sender in (a, b):
            for receiver in (a, b):
                assert heard(receiver, b"of %d" % id(sender), sender)
        with closing(system.heartbeats(f"{name}-2", "c")) as stranger:
            a.received(0.01)
            assert heard(stranger, b"of a stranger", stranger)
            assert heard(a, b"the last", b)
            assert b"of a stranger" not in a.received(0.01)


def test_heartbeats_are_heard_again_after_the_machines_were_silent(
    system: LogSystem, name: str
) -> None:
    with closing(system.heartbeats(name, "a")) as a, closing(system.heartbeats(name, "b")) as b:
        assert heard(b, b"before", a)
        with system.silent():
            for _ in range(3):
                a.send(b"lost, or late")
                b.received(0.2)
        assert heard(b, b"afterwards", a)
