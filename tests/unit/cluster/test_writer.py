"""The writer of the log: every fate of an append, at each step of a primary's life."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final, cast, final

import pytest

from penstock.cluster.log import (
    AppendRefused,
    AppendUnknown,
    Bounds,
    Entry,
    LogUnavailable,
    ReplicatedLog,
)
from penstock.cluster.record import (
    CLAIM,
    COMMIT,
    FIRST_PART,
    HEAD_BYTES,
    LAST_PART,
    MIDDLE_PART,
    Position,
    Record,
    checksum_of,
    decode_record,
    encode_record,
)
from penstock.cluster.writer import ATTEMPT_S, LATELY_S, PAUSE_S, Fenced, LogWriter
from penstock.errors import CommitUnknown
from tests.support.memory_log import AppendFault, MemoryCluster, MemoryLog

APPEND_S_MAX: Final = 0.1
TRIES: Final = 10  # more than fit into that time


@final
class Bench:
    """A log and some writers, with a clock that moves while they wait."""

    def __init__(self, entry_bytes_max: int = 1 << 20) -> None:
        self.cluster = MemoryCluster(entry_bytes_max=entry_bytes_max)
        self.now_s = 0.0
        self.in_pause: Callable[[], None] = lambda: None

    def log(self, name: str = "a") -> MemoryLog:
        return MemoryLog(self.cluster, name)

    def writer(self, name: str = "a") -> LogWriter:
        return LogWriter(self.log(name), APPEND_S_MAX, lambda: self.now_s, self._pause)

    def primary(self, name: str = "a") -> LogWriter:
        writer = self.writer(name)
        writer.claim(self.end(), name.encode())
        return writer

    def end(self) -> Position:
        """The end of the log, as a view that has read all of it knows it."""
        last = self.cluster.bounds.last
        if last == 0:
            return Position()
        record = self.records()[-1]
        return Position(last, record.term, record.number, record.checksum)

    def records(self) -> list[Record]:
        """All records; the chain is verified."""
        found: list[Record] = []
        bounds = self.cluster.bounds
        for sequence in range(bounds.first, bounds.last + 1):
            entry = self.cluster.entry(sequence)
            assert entry is not None
            record = decode_record(entry.data)
            assert not found or record.previous_checksum == found[-1].checksum
            found.append(record)
        return found

    def bodies(self) -> list[bytes]:
        return [record.body for record in self.records()]

    def fail(self, writer: LogWriter, *faults: AppendFault) -> None:
        assert isinstance(writer.log, MemoryLog)
        writer.log.faults.extend(faults)

    def _pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.in_pause()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_claim_and_commits_follow_one_another(bench: Bench) -> None:
    writer = bench.primary()
    assert writer.term == 1
    for number in range(3):
        assert writer.append(b"%d" % number).sequence == number + 2
    records = bench.records()
    assert [record.kind for record in records] == [CLAIM, COMMIT, COMMIT, COMMIT]
    assert [record.number for record in records] == [0, 1, 2, 3]
    assert {record.term for record in records} == {1}
    assert writer.position == bench.end()


def test_before_a_claim_nothing_is_appended(bench: Bench) -> None:
    with pytest.raises(CommitUnknown):
        bench.writer().append(b"x")
    assert bench.records() == []


@pytest.mark.parametrize(
    "faults", [*product(AppendFault, repeat=1), *product(AppendFault, repeat=2)]
)
def test_one_or_two_faults_cost_nothing(bench: Bench, faults: tuple[AppendFault, ...]) -> None:
    """The record is there once, whatever became of the first tries."""
    writer = bench.primary()
    bench.fail(writer, *faults)
    try:
        writer.append(b"x")
    except CommitUnknown:  # an earlier try came between: only where one was delayed
        assert AppendFault.DELAYED in faults
    for append in list(bench.cluster.delayed):
        bench.cluster.deliver(append)
    assert bench.bodies() == [b"a", b"x"]
    if writer.is_in_doubt:
        writer.resume(bench.end())
    writer.append(b"y")
    assert bench.bodies() == [b"a", b"x", b"y"]


@pytest.mark.parametrize("faults", list(product(AppendFault, repeat=2)))
def test_a_claim_counts_once(bench: Bench, faults: tuple[AppendFault, ...]) -> None:
    writer = bench.writer()
    bench.fail(writer, *faults)
    writer.claim(Position(), b"a")
    for append in list(bench.cluster.delayed):
        assert not bench.cluster.deliver(append)
    assert bench.bodies() == [b"a"]
    assert writer.position == bench.end()


@pytest.mark.parametrize("fault", [AppendFault.LOST, AppendFault.NOT_SENT, AppendFault.DELAYED])
def test_without_an_answer_in_time_it_is_in_doubt(bench: Bench, fault: AppendFault) -> None:
    writer = bench.primary()
    began_s = bench.now_s
    bench.fail(writer, *[fault] * TRIES)
    with pytest.raises(CommitUnknown, match="takes no records"):
        writer.append(b"x")
    assert APPEND_S_MAX <= bench.now_s - began_s < APPEND_S_MAX + 2 * PAUSE_S
    with pytest.raises(CommitUnknown, match="in doubt"):
        writer.append(b"y")
    assert bench.bodies() == [b"a"]


def test_in_doubt_it_goes_on_behind_what_the_view_has_read(bench: Bench) -> None:
    writer = bench.primary()
    bench.fail(writer, *[AppendFault.LOST] * TRIES)
    with pytest.raises(CommitUnknown):
        writer.append(b"x")
    writer.resume(bench.end())
    bench.fail(writer)
    assert isinstance(writer.log, MemoryLog)
    writer.log.faults.clear()
    writer.append(b"x")
    assert bench.bodies() == [b"a", b"x"]


def test_an_earlier_try_that_arrives_late_is_met_and_not_overwritten(bench: Bench) -> None:
    """The new try is other bytes, for its number is another: the view takes the earlier one in."""
    writer = bench.primary()
    bench.fail(writer, *[AppendFault.DELAYED] * TRIES)
    with pytest.raises(CommitUnknown):
        writer.append(b"x")
    writer.resume(bench.end())
    delayed = bench.cluster.delayed[0]
    assert isinstance(writer.log, MemoryLog)
    writer.log.faults.clear()
    assert bench.cluster.deliver(delayed)
    with pytest.raises(CommitUnknown, match="earlier try"):
        writer.append(b"x")
    assert writer.is_in_doubt
    assert not writer.fenced_by
    writer.resume(bench.end())
    writer.append(b"x")
    assert bench.bodies() == [b"a", b"x", b"x"]
    assert not any(bench.cluster.deliver(append) for append in list(bench.cluster.delayed))


def test_an_earlier_try_that_arrives_while_it_tries_again_is_the_same(bench: Bench) -> None:
    writer = bench.primary()
    bench.fail(writer, AppendFault.DELAYED, AppendFault.LOST)
    arrived: list[bool] = []

    def deliver() -> None:
        if bench.cluster.delayed:
            arrived.append(bench.cluster.deliver(bench.cluster.delayed[0]))

    bench.in_pause = deliver
    position = writer.append(b"x")
    assert arrived == [True]
    assert position == bench.end()
    assert bench.bodies() == [b"a", b"x"]


def test_the_claim_of_another_fences(bench: Bench) -> None:
    old = bench.primary("old")
    old.append(b"x")
    new = bench.primary("new")
    assert new.term == 2
    with pytest.raises(Fenced, match="in term 2; this one was it in term 1"):
        old.append(b"y")
    new.append(b"z")
    with pytest.raises(Fenced):
        old.append(b"y")
    assert bench.bodies() == [b"old", b"x", b"new", b"z"]


@pytest.mark.parametrize("fault", AppendFault)
def test_no_fault_hides_the_claim_of_another(bench: Bench, fault: AppendFault) -> None:
    old = bench.primary("old")
    bench.primary("new")
    bench.fail(old, fault)
    with pytest.raises(Fenced):
        old.append(b"y")
    assert not any(bench.cluster.deliver(append) for append in list(bench.cluster.delayed))
    assert bench.bodies() == [b"old", b"new"]


def test_a_claim_that_comes_while_it_tries_fences(bench: Bench) -> None:
    old = bench.primary("old")
    bench.fail(old, AppendFault.LOST, AppendFault.LOST)

    def claim() -> None:
        bench.in_pause = lambda: None
        bench.primary("new")

    bench.in_pause = claim
    with pytest.raises(Fenced):
        old.append(b"y")
    assert bench.bodies() == [b"old", b"new"]


def test_a_resumed_writer_is_fenced_by_a_claim_that_the_view_has_read(bench: Bench) -> None:
    old = bench.primary("old")
    bench.primary("new")
    with pytest.raises(Fenced):
        old.resume(bench.end())
    assert old.fenced_by


def test_an_old_primary_is_fenced_although_its_place_is_trimmed(bench: Bench) -> None:
    old = bench.primary("old")
    new = bench.primary("new")
    for number in range(5):
        new.append(b"%d" % number)
    bench.cluster.remove_before(5)
    with pytest.raises(Fenced):
        old.append(b"y")


def test_of_two_claims_of_one_term_one_counts(bench: Bench) -> None:
    at = bench.primary("first").position
    one, other = bench.writer("one"), bench.writer("other")
    one.claim(at, b"one")
    with pytest.raises(Fenced):
        other.claim(at, b"other")
    assert bench.bodies() == [b"first", b"one"]


def test_a_claim_is_refused_where_the_primary_went_on(bench: Bench) -> None:
    primary = bench.primary("primary")
    at = primary.position
    primary.append(b"x")
    with pytest.raises(Fenced):
        bench.writer("late").claim(at, b"late")
    primary.append(b"y")
    assert bench.bodies() == [b"primary", b"x", b"y"]


def test_a_claim_without_an_answer_may_come_later(bench: Bench) -> None:
    primary = bench.primary("primary")
    late = bench.writer("late")
    bench.fail(late, *[AppendFault.DELAYED] * TRIES)
    with pytest.raises(LogUnavailable):
        late.claim(primary.position, b"late")
    assert bench.cluster.deliver(bench.cluster.delayed[0])
    with pytest.raises(Fenced):
        primary.append(b"x")
    assert bench.bodies() == [b"primary", b"late"]


def test_a_log_that_is_said_to_be_shorter_takes_no_records(bench: Bench) -> None:
    """A deposed leader says so; behind the next one it goes on."""
    writer = bench.primary()
    writer.append(b"x")
    bench.cluster = MemoryCluster()
    writer.log = bench.log()
    with pytest.raises(CommitUnknown, match=r"does not end|ends at 0"):
        writer.append(b"y")
    assert not writer.fenced_by


def test_a_wrong_entry_of_the_leader_is_no_claim_of_another(bench: Bench) -> None:
    """It is in doubt, and the view comes upon the damage."""
    writer = bench.primary()
    bench.cluster.put(b"nonsense", 1)
    with pytest.raises(CommitUnknown):
        writer.append(b"x")
    assert not writer.fenced_by


def test_a_large_commit_is_in_pieces() -> None:
    bench = Bench(entry_bytes_max=HEAD_BYTES + 10)
    writer = bench.primary()
    for size in (10, 11, 20, 21, 35):
        body = bytes(range(size))
        before = len(bench.records())
        assert writer.append(body) == bench.end()
        records = bench.records()[before:]
        assert b"".join(record.body for record in records) == body
        kinds = [record.kind for record in records]
        if size <= 10:
            assert kinds == [COMMIT]
        else:
            assert kinds == [FIRST_PART, *[MIDDLE_PART] * (len(kinds) - 2), LAST_PART]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_commit_that_fails_between_its_pieces_begins_anew(failing: int) -> None:
    bench = Bench(entry_bytes_max=HEAD_BYTES + 10)
    writer = bench.primary()
    body = bytes(range(25))
    bench.fail(writer, *[AppendFault.NONE] * failing, *[AppendFault.LOST] * TRIES)
    with pytest.raises(CommitUnknown):
        writer.append(body)
    assert isinstance(writer.log, MemoryLog)
    writer.log.faults.clear()
    writer.resume(bench.end())
    writer.append(body)
    kinds = [record.kind for record in bench.records()]
    whole = [FIRST_PART, MIDDLE_PART, LAST_PART]
    assert kinds == [CLAIM, *whole[:failing], *whole]


def test_numbers_of_a_term_are_not_used_twice(bench: Bench) -> None:
    writer = bench.primary()
    for _ in range(3):
        bench.fail(writer, *[AppendFault.LOST] * TRIES)
        with pytest.raises(CommitUnknown):
            writer.append(b"x")
        assert isinstance(writer.log, MemoryLog)
        writer.log.faults.clear()
        writer.resume(bench.end())
        writer.append(b"x")
    numbers = [record.number for record in bench.records()]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 6


def test_a_record_says_what_it_follows() -> None:
    bench = Bench()
    writer = bench.primary()
    first = bench.records()[0]
    data = encode_record(COMMIT, 1, 1, first.checksum, b"x")
    writer.append(b"x")
    assert bench.records()[1].checksum == checksum_of(data)


@final
class FarLog:
    """A log whose leader is far away: what is sent arrives half a round trip later, in order.

    Each call waits for its answer, or ends at its time limit; then the answer is lost.
    """

    entry_bytes_max = 1 << 20

    def __init__(self, bench: Bench, round_trip_s: float) -> None:
        self.round_trip_s = round_trip_s
        self.waits_s: list[float] = []
        self._bench = bench
        self._near = bench.log()
        self._under_way: list[tuple[float, bytes, int]] = []

    def append(self, data: bytes, after: int, timeout_s: float) -> None:
        self.waits_s.append(timeout_s)
        self._under_way.append((self._bench.now_s + self.round_trip_s / 2, data, after))
        self._wait(timeout_s)
        bounds = self._near.bounds(1)
        if bounds.last < after + 1 or self._refused:
            raise AppendRefused(f"the log ends at {bounds.last}")

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        self._wait(timeout_s)
        return self._near.entry_at(sequence, timeout_s)

    def bounds(self, timeout_s: float) -> Bounds:
        self._wait(timeout_s)
        return self._near.bounds(timeout_s)

    def _wait(self, timeout_s: float) -> None:
        took_s = min(timeout_s, self.round_trip_s)
        self._bench.now_s += took_s
        while self._under_way and self._under_way[0][0] <= self._bench.now_s:
            _, data, after = self._under_way.pop(0)
            self._refused = False
            try:
                self._near.append(data, after, 1)
            except AppendRefused:
                self._refused = True
        if took_s < self.round_trip_s:
            raise AppendUnknown("no answer in time")


def test_a_slow_append_says_nothing_of_a_log_that_was_idle_since(bench: Bench) -> None:
    """Else a claim during an election was told as a slow log for as long as nobody published."""
    writer = LogWriter(
        cast(ReplicatedLog, FarLog(bench, 0.5)), 60.0, lambda: bench.now_s, bench._pause
    )
    writer.claim(Position(), b"a")
    assert writer.lately_append_s(bench.now_s + LATELY_S) == pytest.approx(0.5)
    assert writer.lately_append_s(bench.now_s + LATELY_S + 1) == 0.0


@pytest.mark.parametrize("round_trip_s", [0.5, 1.5, 2.5, 4.0])
def test_an_append_is_waited_for_as_long_as_its_log_is_far_away(
    bench: Bench, round_trip_s: float
) -> None:
    """Attempts of a fixed second were never answered, and nothing was ever acknowledged."""
    log = FarLog(bench, round_trip_s)
    writer = LogWriter(cast(ReplicatedLog, log), 60.0, lambda: bench.now_s, bench._pause)
    writer.claim(Position(), b"a")
    for number in range(40):
        writer.append(b"%d" % number)
    assert bench.bodies() == [b"a", *(b"%d" % number for number in range(40))]
    assert writer.append_s == pytest.approx(round_trip_s, rel=0.2)
    began_s = bench.now_s
    writer.append(b"last")
    assert bench.now_s - began_s == pytest.approx(round_trip_s)
    log.round_trip_s = 0.01
    for number in range(60):
        writer.append(b"%d" % number)
    assert log.waits_s[-1] == ATTEMPT_S
