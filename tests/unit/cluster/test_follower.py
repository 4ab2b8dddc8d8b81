"""A standby step by step: reading, damage, other logs, claims; and reading a log to its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import pytest

from penstock.cluster.beats import Beat
from penstock.cluster.beginning import HeardBeats
from penstock.cluster.follower import AHEAD_S, DAMAGED_S, READ_S_MIN, Follower, Overtaken, Progress
from penstock.cluster.histories import Word, begin_history
from penstock.cluster.log import EntriesTrimmed, Entry, EntryMissing, LogUnavailable
from penstock.cluster.operations import PUT
from penstock.cluster.reading import catch_up
from penstock.cluster.record import (
    CLAIM,
    GENESIS,
    Claim,
    Former,
    Position,
    decode_claim,
    decode_record,
    encode_claim,
    encode_record,
)
from penstock.cluster.role import RETRY_LEASES, Standby
from penstock.cluster.view import ForeignView, LogDamaged, Superseded, View
from penstock.cluster.writer import LogWriter
from penstock.store.identity import begin_epoch
from tests.model.memory_rocks import MemoryDatabase, StoppedDatabase, ViewDisk
from tests.support.memory_log import AppendFault, MemoryCluster, MemoryLog
from tests.unit.cluster.records import EPOCH_OF_TESTS, META, Records

LEASE_S: Final = 1.0
APPEND_S_MAX: Final = 0.1


@final
class DamagedLog:
    """A way to the log on which some entries come changed, from replicas and from the leader."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.entry_bytes_max = log.entry_bytes_max
        self.damaged: set[int] = set()
        self.holes: set[int] = set()
        self.missing_everywhere: set[int] = set()
        self.leader_damaged = False
        self.leader_lacks = False
        self.replica_is_gone = False
        self.needs_s = 0.0  # time without which a read fails
        self.moved_to: list[str] = []
        self.asked = 0  # the leader, for an entry
        self.open = log.open
        self.append = log.append
        self.bounds = log.bounds
        self.trim = log.trim
        self.state = log.state
        self.prefer = log.prefer
        self.read_copy = log.read_copy
        self.left = 0  # how often its server was left
        self.close = log.close

    def read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        if self.replica_is_gone or timeout_s < self.needs_s:
            raise LogUnavailable("no answer")
        found = self._log.read(first, count_max, timeout_s)
        missing = min(self.missing_everywhere, default=None)
        if first == missing:
            raise EntryMissing(f"the entry {first} is missing")
        if missing is not None:
            found = [entry for entry in found if entry.sequence < missing]
        return [self._given(entry) for entry in found if entry.sequence not in self.holes]

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        self.asked += 1
        if self.leader_lacks:
            return None
        found = self._log.entry_at(sequence, timeout_s)
        return self._given(found) if found is not None and self.leader_damaged else found

    def leave_server(self) -> None:
        self.left += 1

    def move_leader(self, preferred: Sequence[str], timeout_s: float) -> None:
        self.moved_to += preferred
        self._log.move_leader(preferred, timeout_s)

    def _given(self, entry: Entry) -> Entry:
        if entry.sequence not in self.damaged:
            return entry
        return Entry(entry.sequence, entry.data[:-1] + bytes([entry.data[-1] ^ 1]))


@final
class Bench:
    """A log that a primary "a" wrote, and a standby "b" that follows it."""

    def __init__(self, directory: Path) -> None:
        self.cluster = MemoryCluster()
        self.now_s = 1000.0
        self.records = Records()
        self.records.claim()
        self.records.begin_epoch()
        self.records.commit([(PUT, META, b"k", b"v")])
        self.disk = ViewDisk()
        self.directory = directory
        self.written = 0
        self.claim_faults: list[AppendFault] = []
        self.way_is_cut = False
        self.heard: dict[str, Beat] = {}
        self.others = ["a"]
        self.start()

    def start(self) -> None:
        """Start the standby."""
        self.log = DamagedLog(MemoryLog(self.cluster, "b"))
        self.view = View(MemoryDatabase(self.disk, self.directory))
        self.standby = Standby("b", LEASE_S, self.now_s)
        self.follower = Follower(
            self.log,
            self.view,
            self.standby,
            Claim("b", "", "h:1", "h:2", "1", "p"),
            self._new_writer,
            lambda: self.now_s,
            lambda: HeardBeats(self.heard, self.heard),
            self.others,
        )

    def _new_writer(self) -> LogWriter:
        log = MemoryLog(self.cluster, "b")
        log.faults.extend(self.claim_faults)
        log.is_cut = self.way_is_cut
        return LogWriter(log, APPEND_S_MAX, lambda: self.now_s, self._pause)

    def _pause(self, seconds: float) -> None:
        self.now_s += seconds

    def append(self, count: int | None = None) -> None:
        """Let the log have the records that were made, or the next ``count`` of them."""
        entries = self.records.entries[self.written :][:count]
        for entry in entries:
            self.cluster.put(entry.data, entry.sequence - 1)
        self.written += len(entries)

    def silence(self, seconds: float = LEASE_S + 0.2) -> None:
        """Let time pass in which only its own heartbeats come."""
        for _ in range(round(seconds / 0.1)):
            self.now_s += 0.1
            beat = Beat(node="b", role="standby", term=0, applied=0, synced=0, sent_s=self.now_s)
            self.standby.record_beat(beat, self.now_s)

    def hear(
        self,
        node: str,
        applied: int,
        epoch: str,
        term: int = 1,
        former: tuple[Former, ...] = (),
    ) -> None:
        """Let the last heartbeat of another member be this."""
        self.heard[node] = Beat(
            node=node,
            role="standby",
            term=term,
            applied=applied,
            synced=0,
            epoch=epoch,
            former=former,
            is_empty=not applied and not epoch,
        )

    def step(self) -> Progress:
        return self.follower.step(0)

    def follow(self) -> None:
        """Step until there is nothing to read."""
        while self.step() is Progress.READ:
            pass

    def is_level(self) -> bool:
        return self.disk.content == self.records.contents[self.cluster.bounds.last]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.append()
    return made


def test_a_standby_reads_to_the_end_and_on(bench: Bench) -> None:
    assert bench.step() is Progress.READ
    assert bench.follower.is_following
    assert bench.step() is Progress.NOTHING
    assert bench.is_level()
    bench.records.commit([(PUT, META, b"k", b"w")])
    bench.append()
    assert bench.step() is Progress.READ
    assert bench.is_level()


def test_a_standby_waits_for_a_log_that_cannot_be_reached(bench: Bench) -> None:
    bench.cluster.has_majority = False
    assert bench.step() is Progress.UNREACHABLE
    assert "cannot be reached" in bench.follower.note
    assert not bench.follower.is_following
    bench.cluster.has_majority = True
    assert bench.step() is Progress.READ
    assert bench.follower.note == ""


def test_after_a_lease_it_claims_behind_all_that_it_read(bench: Bench) -> None:
    bench.follow()
    bench.silence()
    assert bench.step() is Progress.CLAIMED
    writer = bench.follower.writer
    assert writer is not None
    assert writer.term == 2
    found = bench.cluster.entry(bench.cluster.bounds.last)
    assert found is not None
    record = decode_record(found.data)
    assert record.kind == CLAIM
    claim = decode_claim(record.body)
    assert (claim.node, claim.address, claim.stream_address) == ("b", "h:1", "h:2")
    assert claim.epoch == bench.view.current_watermark().epoch != ""


def test_a_standby_claims_where_the_replica_that_it_reads_is_gone_with_the_primary(
    bench: Bench,
) -> None:
    bench.follow()
    bench.log.replica_is_gone = True
    assert bench.step() is Progress.UNREACHABLE
    bench.silence()
    assert bench.step() is Progress.CLAIMED
    assert bench.follower.note == ""


def test_a_claim_that_was_not_sent_is_tried_again_without_another_lease(bench: Bench) -> None:
    bench.follow()
    bench.silence()
    bench.way_is_cut = True
    assert bench.step() is Progress.UNREACHABLE
    bench.way_is_cut = False
    assert bench.step() is Progress.CLAIMED


def test_a_standby_claims_behind_pieces_whose_writer_was_lost(bench: Bench) -> None:
    bench.records.parts([(PUT, META, b"lost", b"x" * 100)], 3, with_last=False)
    bench.append()
    bench.follow()
    bench.silence()
    assert bench.step() is Progress.CLAIMED


def test_a_standby_does_not_claim_while_there_is_something_to_read(bench: Bench) -> None:
    bench.follow()
    bench.silence()
    bench.records.commit([(PUT, META, b"k", b"w")])
    bench.append()
    assert bench.step() is Progress.READ
    assert bench.step() is Progress.NOTHING


def test_a_claim_on_a_replica_that_lags_is_refused_and_the_leader_asked(bench: Bench) -> None:
    bench.follow()
    bench.records.commit([(PUT, META, b"k", b"w")])
    bench.append()
    bench.log.holes = {4}
    bench.silence()
    assert bench.step() is Progress.NOTHING
    assert bench.follower.writer is None
    assert bench.step() is Progress.READ
    assert bench.is_level()
    assert bench.step() is Progress.NOTHING
    bench.silence(RETRY_LEASES * LEASE_S + 0.1)
    assert bench.step() is Progress.CLAIMED, "it waits for a whole lease, where it was behind"


def test_a_log_that_answers_slowly_is_read_before_the_next_claim(bench: Bench) -> None:
    """A claim that is due leaves little time to read; one that was refused is not made again
    before the record is read because of which it was."""
    bench.append()
    bench.follow()
    bench.records.commit([(PUT, META, b"k2", b"v")])
    bench.append()
    bench.log.needs_s = READ_S_MIN + 0.3
    bench.silence()
    steps: list[Progress] = []
    while bench.follower.writer is None and len(steps) < 50:
        steps.append(bench.step())
        bench.silence(0.2)
    assert bench.follower.writer is not None, steps
    assert Progress.READ in steps


def test_a_claim_that_got_no_answer_and_came_is_read_and_followed_by_another(
    bench: Bench,
) -> None:
    bench.follow()
    bench.silence()
    bench.claim_faults = [AppendFault.DELAYED] * 10
    assert bench.step() is Progress.NOTHING
    bench.claim_faults = []
    assert bench.cluster.deliver(bench.cluster.delayed[0])
    assert bench.step() is Progress.READ
    bench.silence()
    assert bench.step() is Progress.CLAIMED
    assert bench.follower.writer is not None
    assert bench.follower.writer.term == 3


def test_a_new_log_is_claimed_without_a_lease(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.step() is Progress.NOTHING
    bench.silence(0.4)
    assert bench.step() is Progress.NOTHING
    assert "waits for a" in bench.follower.note
    bench.hear("a", 0, "")
    for _ in range(4):
        bench.now_s += 0.1
        beat = Beat(node="b", role="standby", term=0, applied=0, synced=0, sent_s=bench.now_s)
        bench.standby.record_beat(beat, bench.now_s)
    assert bench.step() is Progress.CLAIMED


# -- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["damaged", "holes"])
def test_the_leader_is_asked_where_a_replica_is_wrong(bench: Bench, kind: str) -> None:
    setattr(bench.log, kind, {2})
    bench.follow()
    assert bench.is_level()
    assert bench.log.asked == 1
    assert bench.log.moved_to == []


def test_another_server_shall_lead_where_the_leader_is_wrong(bench: Bench) -> None:
    bench.log.damaged, bench.log.leader_damaged = {2}, True
    assert bench.step() is Progress.NOTHING
    assert bench.log.moved_to == ["m2", "m3"]
    assert bench.cluster.leader == "m2"
    assert "wrong entry at sequence 2" in bench.follower.note
    assert bench.view.end.sequence == 1
    for _ in range(10):
        assert bench.step() is Progress.NOTHING
    assert len(bench.log.moved_to) == 2, "the election has its time"
    bench.log.damaged = set()
    bench.now_s += DAMAGED_S
    bench.follow()
    assert bench.is_level()
    assert bench.follower.note == ""


def test_another_server_shall_lead_where_the_leader_lacks_an_entry_too(bench: Bench) -> None:
    bench.log.missing_everywhere = {2}
    assert bench.step() is Progress.READ
    assert bench.step() is Progress.UNREACHABLE
    assert bench.log.moved_to == ["m2", "m3"]
    assert bench.log.left == 1
    bench.log.missing_everywhere = set()
    bench.follow()
    assert bench.is_level()


def test_while_it_cannot_read_on_it_claims_nothing(bench: Bench) -> None:
    bench.log.damaged, bench.log.leader_damaged = {2}, True
    bench.silence()
    bench.step()
    bench.silence()
    for _ in range(5):
        assert bench.step() is Progress.NOTHING
        bench.silence()
    assert bench.cluster.bounds.last == 3


def test_damage_without_a_leader_is_no_end(bench: Bench) -> None:
    bench.step()
    bench.records.commit([(PUT, META, b"k", b"w")])
    bench.append()
    bench.log.damaged = {4}
    bench.cluster.has_majority = False
    assert bench.step() is Progress.UNREACHABLE
    bench.cluster.has_majority = True
    assert bench.step() is Progress.READ
    assert bench.is_level()


# -- other logs -----------------------------------------------------------------------------


def lose(bench: Bench, kept: int = 0) -> None:
    """Let the log keep its first ``kept`` entries only."""
    entries = [bench.cluster.entry(at + 1) for at in range(kept)]
    bench.cluster = MemoryCluster()
    for entry in entries:
        assert entry is not None
        bench.cluster.put(entry.data, entry.sequence - 1)


def test_a_view_ahead_of_the_log_waits_for_its_entries(bench: Bench) -> None:
    bench.follow()
    lose(bench, 2)
    bench.start()
    assert bench.step() is Progress.UNREACHABLE
    assert "may have been away, and is asked again: the view has come" in bench.follower.note
    bench.now_s += AHEAD_S
    for _ in range(3):
        assert bench.step() is Progress.UNREACHABLE
        assert bench.follower.note.startswith("the view has come to entry 3 of the replicated log")
        assert "which ends at 2" in bench.follower.note
        assert "penstock cluster recover" in bench.follower.note
        bench.silence(10)
    entry = bench.records.entries[2]
    bench.cluster.put(entry.data, 2)  # its servers have their data back
    bench.follow()
    assert bench.follower.is_following
    assert bench.follower.note == ""


def test_a_log_that_is_lost_while_it_is_followed_is_not_claimed(bench: Bench) -> None:
    bench.follow()
    bench.cluster._entries.pop()
    bench.silence()
    assert bench.step() is Progress.NOTHING  # its claim is not taken
    assert bench.step() is Progress.UNREACHABLE
    assert "which ends at 2" in bench.follower.note


def test_a_log_that_ends_before_a_view_that_is_heard_is_not_claimed(bench: Bench) -> None:
    """Else this member would acknowledge behind entry 2, and the others' entry 3 would be lost."""
    bench.append(2)
    lose(bench, 2)
    bench.start()
    bench.follow()
    bench.hear("a", applied=3, epoch=EPOCH_OF_TESTS)
    bench.silence()
    assert bench.step() is Progress.NOTHING
    assert bench.log.asked == 0
    assert bench.step() is Progress.NOTHING
    assert bench.log.asked == 1  # the leader has it no more than the replica
    assert "the view of a has come to entry 3 of the cluster's log, which ends at 2" in (
        bench.follower.note
    )
    assert bench.cluster.bounds.last == 2
    bench.cluster.put(bench.records.entries[2].data, 2)
    bench.silence()
    assert bench.step() is Progress.READ
    bench.silence()
    assert bench.step() is Progress.CLAIMED


def test_a_replica_that_lags_behind_a_view_that_is_heard_delays_no_claim(bench: Bench) -> None:
    bench.follow()
    bench.records.commit([(PUT, META, b"k", b"w")])
    bench.append()
    bench.log.holes = {4}
    bench.hear("a", applied=4, epoch=EPOCH_OF_TESTS)
    bench.silence()
    assert bench.step() is Progress.NOTHING
    assert bench.step() is Progress.READ
    assert bench.is_level()


def test_a_view_of_another_history_stops_nobody(bench: Bench) -> None:
    """A machine with a store of another cluster would end each failover by being started."""
    bench.follow()
    bench.hear("d", applied=5000, epoch="20270101T000000-11111111")
    bench.silence()
    assert bench.step() is Progress.CLAIMED


def test_a_view_that_has_nothing_but_a_claim_of_a_lost_log_starts_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.append(1)
    bench.follow()
    assert bench.view.position.sequence == 1
    lose(bench)
    bench.start()
    assert bench.step() is Progress.UNREACHABLE
    assert bench.view.position == Position()
    bench.hear("a", 0, "")
    assert bench.step() is Progress.CLAIMED
    assert bench.cluster.bounds.last == 1


def test_a_standby_whose_history_ended_looks_at_the_log_again(bench: Bench) -> None:
    """It would read nothing behind its place, and never know that the log is another one."""
    bench.follow()
    new = "20270101T000000-11111111"
    bench.cluster.lose()
    claim = encode_claim(Claim("a", new))
    bench.cluster.put(encode_record(GENESIS, 9, 0, 0, claim), 0)
    assert bench.step() is Progress.NOTHING
    assert bench.follower.is_following
    bench.hear("a", applied=1, epoch=new, former=(Former(EPOCH_OF_TESTS, 3, 1),))
    assert bench.step() is Progress.NOTHING
    with pytest.raises(Superseded):
        bench.step()


def test_an_empty_log_is_not_claimed_while_a_view_is_heard(bench: Bench) -> None:
    lose(bench)
    bench.disk = ViewDisk()
    bench.start()
    bench.hear("a", applied=3, epoch=EPOCH_OF_TESTS)
    bench.silence()
    for _ in range(5):
        assert bench.step() is Progress.NOTHING
        bench.silence()
    assert "the view of a has come to entry 3" in bench.follower.note
    assert bench.cluster.bounds.last == 0


def test_an_operator_begins_a_new_history_behind_any_end_of_the_log(bench: Bench) -> None:
    """Behind entries that only other members have, in a term that nobody had."""
    bench.follow()
    database = StoppedDatabase(bench.disk, bench.directory)
    epoch = begin_history(database, Word(3))
    bench.start()
    assert (bench.view.word, bench.view.position) == (Word(3), Position())
    assert bench.view.former == (Former(EPOCH_OF_TESTS, 3, 1),)
    bench.hear("a", applied=3, epoch=EPOCH_OF_TESTS, term=7)
    assert bench.step() is Progress.CLAIMED
    entry = bench.cluster.entry(4)
    assert entry is not None
    record = decode_record(entry.data)
    assert (record.kind, record.term, record.previous_checksum) == (GENESIS, 8, 0)
    assert decode_claim(record.body).epoch == epoch
    writer = bench.follower.writer
    assert writer is not None
    bench.view.pass_claim(writer.position)
    bench.start()
    assert (bench.view.word, bench.view.position.sequence) == (None, 4)
    bench.follow()
    assert bench.follower.is_following


def test_a_new_history_gives_up_nothing_that_its_operator_was_not_told_of(bench: Bench) -> None:
    """Another member became the primary before this one had started: 469 acknowledged entries were
    given up."""
    bench.follow()
    database = StoppedDatabase(bench.disk, bench.directory)
    begin_history(database, Word(2))  # the log ended there, and has gone on to 3
    bench.start()
    with pytest.raises(
        Overtaken, match="from entry 2 to 3: run it again, it says what is given up"
    ):
        bench.step()
    assert bench.cluster.bounds.last == 3
    begin_history(database, Word(None))  # the log did not answer
    bench.start()
    assert bench.step() is Progress.CLAIMED


def test_a_genesis_without_an_answer_is_appended_again(bench: Bench) -> None:
    """The log has gone on by this member's own genesis."""
    bench.follow()
    database = StoppedDatabase(bench.disk, bench.directory)
    epoch = begin_history(database, Word(3))
    bench.cluster.put(encode_record(GENESIS, 8, 0, 0, encode_claim(Claim("b", epoch))), 3)
    bench.start()
    assert bench.step() is Progress.CLAIMED
    assert bench.cluster.bounds.last == 5


def test_a_view_that_reads_the_beginning_of_a_new_history_is_replaced(bench: Bench) -> None:
    bench.follow()
    claim = encode_claim(Claim("a", "20270101T000000-11111111"))
    bench.cluster.put(encode_record(GENESIS, 9, 0, 0, claim), 3)
    with pytest.raises(Superseded, match="at entry 4 of the log an operator began") as found:
        bench.step()
    assert found.value.term == 9


def test_a_store_that_followed_no_log_is_not_given_up_by_a_new_history(bench: Bench) -> None:
    """It may have what no member of the cluster ever had."""
    bench.follow()
    database = StoppedDatabase(bench.disk, bench.directory)
    begin_epoch(database)  # as a restored backup does
    bench.cluster.lose()
    claim = encode_claim(Claim("a", "20270101T000000-11111111"))
    bench.cluster.put(encode_record(GENESIS, 9, 0, 0, claim), 0)
    bench.start()
    with pytest.raises(ForeignView) as found:
        bench.step()
    assert not found.value.is_empty


def test_a_view_of_a_lost_log_is_replaced_by_a_recovered_store_that_contains_it(
    bench: Bench,
) -> None:
    bench.follow()
    lose(bench)
    new = "20270101T000000-11111111"
    claim = encode_claim(Claim("a", new))
    bench.cluster.put(encode_record(GENESIS, 9, 0, 0, claim), 0)
    bench.start()
    bench.hear("a", applied=1, epoch=new, former=(Former(EPOCH_OF_TESTS, 2, 1),))
    assert bench.step() is Progress.UNREACHABLE  # entry 3 is in this view alone
    assert "penstock cluster reseed" in bench.follower.note
    bench.hear("a", applied=1, epoch=new, former=(Former(EPOCH_OF_TESTS, 3, 1),), term=9)
    bench.now_s += 1
    with pytest.raises(Superseded, match="a has it") as found:
        bench.step()
    assert found.value.term == 9


def test_a_log_that_a_deposed_leader_called_shorter_is_followed(bench: Bench) -> None:
    bench.follow()
    whole = bench.cluster
    bench.cluster = MemoryCluster()
    bench.written = 0
    bench.append(2)
    bench.start()
    for _ in range(3):
        assert bench.step() is Progress.UNREACHABLE
        bench.now_s += AHEAD_S / 4
    entry = whole.entry(3)
    assert entry is not None
    bench.cluster.put(entry.data, 2)
    assert bench.step() is Progress.NOTHING
    assert bench.follower.is_following
    assert bench.follower.note == ""


@pytest.mark.parametrize("trimmed", [0, 3])
def test_a_view_of_another_log_that_is_longer_does_not_follow_it(
    bench: Bench, trimmed: int
) -> None:
    """Also where the entry at its place is trimmed."""
    bench.follow()
    bench.cluster = MemoryCluster()
    other = Records()
    other.claim(node="other")
    other.begin_epoch()
    other.grow_by(20)
    for entry in other.entries:
        bench.cluster.put(entry.data, entry.sequence - 1)
    bench.cluster.remove_before(trimmed + 1)
    bench.start()
    assert bench.step() is Progress.UNREACHABLE
    bench.now_s += AHEAD_S
    assert bench.step() is Progress.UNREACHABLE
    assert "the entry 3 of the replicated log is not the one" in bench.follower.note


def test_a_leader_that_gives_a_wrong_entry_does_not_make_it_another_log(bench: Bench) -> None:
    bench.follow()
    bench.start()
    bench.log.damaged, bench.log.leader_damaged = {3}, True
    assert bench.step() is Progress.NOTHING
    assert bench.follower.is_following


def test_a_view_whose_place_is_trimmed_goes_on(bench: Bench) -> None:
    bench.follow()
    bench.records.commit([(PUT, META, b"k", b"w")])
    bench.append()
    bench.cluster.remove_before(4)
    bench.start()
    bench.follow()
    assert bench.is_level()


def test_a_view_that_lacks_trimmed_entries_must_be_seeded(bench: Bench) -> None:
    bench.cluster.remove_before(3)
    with pytest.raises(EntriesTrimmed):
        bench.step()


# -- to the end -----------------------------------------------------------------------------


def test_catching_up_asks_the_leader_where_a_replica_lags(bench: Bench) -> None:
    bench.log.holes = {2, 3}
    catch_up(bench.view, bench.log)
    assert bench.is_level()


def test_catching_up_ends_where_nobody_gives_an_entry(bench: Bench) -> None:
    bench.log.holes = {2, 3}
    bench.log.leader_lacks = True
    with pytest.raises(LogUnavailable, match="entry 2"):
        catch_up(bench.view, bench.log)
    assert bench.view.position.sequence == 1


def test_catching_up_refuses_damage_and_shorter_logs(bench: Bench) -> None:
    bench.log.damaged, bench.log.leader_damaged = {2}, True
    with pytest.raises(LogDamaged):
        catch_up(bench.view, bench.log)
    bench.view.note_appended(Position(9, 1))
    with pytest.raises(LogUnavailable, match="ends at 3"):
        catch_up(bench.view, bench.log)
