"""The moment at which a standby claims: leases, deafness, ranks and hand overs, by a clock that the
test moves."""

from __future__ import annotations

from typing import Final, final

import msgspec
import pytest

from penstock.cluster.beats import Beat, Members
from penstock.cluster.record import Claim, Position
from penstock.cluster.role import (
    CLAIM_LEASES,
    RANKS_MAX,
    RETRY_LEASES,
    STAGGER,
    Standby,
)

LEASE_S: Final = 1.0
BEAT_S: Final = 0.1
TERM: Final = 3
END: Final = Position(100, TERM)


@final
class Bench:
    """One standby "b", whose own heartbeats come back as long as it hears."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.standby = Standby("b", LEASE_S, self.now_s)
        self.standby.restart_wait(self.now_s, TERM)
        self.hears = True
        self.primary_beats = False

    def beat(self, node: str, role: str = "standby", term: int = TERM, **known: object) -> None:
        beat = Beat(node=node, role=role, term=term, applied=100, synced=0, **known)  # type: ignore[arg-type]
        self.standby.record_beat(beat, self.now_s)

    def pass_s(self, seconds: float) -> None:
        """Let time pass, with a heartbeat of each each tenth of a lease."""
        for _ in range(round(seconds / BEAT_S)):
            self.now_s += BEAT_S
            if self.hears:
                self.beat("b", sent_s=self.now_s)
                if self.primary_beats:
                    self.beat("a", "primary")

    def claims(self, rank: int = 0, end: Position = END) -> bool:
        return self.standby.should_claim(end, rank)

    def claims_after_s(self, rank: int = 0) -> float:
        """How long it takes until it claims."""
        began_s = self.now_s
        while not self.claims(rank):
            self.pass_s(BEAT_S)
            assert self.now_s - began_s < 20, "it never claims"
        return self.now_s - began_s


@pytest.fixture
def bench() -> Bench:
    return Bench()


def near(seconds: float) -> object:
    return pytest.approx(seconds, abs=1.5 * BEAT_S)


def test_a_standby_claims_after_a_lease_without_a_sign(bench: Bench) -> None:
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_standby_does_not_claim_while_the_primary_lives(bench: Bench) -> None:
    bench.primary_beats = True
    bench.pass_s(10)
    assert not bench.claims()
    bench.primary_beats = False
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_record_is_a_sign(bench: Bench) -> None:
    bench.pass_s(0.9)
    bench.standby.note_records(bench.now_s, TERM, None)
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_new_primary_has_time_to_make_its_engine(bench: Bench) -> None:
    bench.standby.note_records(bench.now_s, TERM + 1, Claim("a"))
    assert bench.claims_after_s() == near(CLAIM_LEASES * LEASE_S)


def test_a_record_of_a_new_primary_shows_that_it_has_one(bench: Bench) -> None:
    bench.standby.note_records(bench.now_s, TERM + 1, Claim("a"))
    bench.standby.note_records(bench.now_s, TERM + 1, None)
    assert bench.claims_after_s() == near(LEASE_S)


def test_an_own_claim_of_which_it_did_not_learn_is_no_sign(bench: Bench) -> None:
    bench.pass_s(0.9)
    bench.standby.note_records(bench.now_s, TERM + 1, Claim("b"))
    assert bench.claims_after_s() == near(0.1)


def test_the_next_in_line_waits_longer() -> None:
    waits = [Bench().claims_after_s(rank) for rank in range(RANKS_MAX + 3)]
    for rank, waited_s in enumerate(waits):
        assert waited_s == near(LEASE_S * (1 + STAGGER * min(rank, RANKS_MAX)))


def test_a_refused_claim_waits_for_a_lease(bench: Bench) -> None:
    bench.pass_s(2)
    assert bench.claims()
    bench.standby.restart_wait(bench.now_s, TERM)
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_record_that_was_unread_at_a_claim_is_no_sign_of_life(bench: Bench) -> None:
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.pass_s(BEAT_S)
    bench.standby.note_records(bench.now_s, TERM, None)
    assert bench.claims_after_s() == near(RETRY_LEASES * LEASE_S - BEAT_S)


def test_a_record_after_it_has_caught_up_is_a_sign(bench: Bench) -> None:
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.pass_s(RETRY_LEASES * LEASE_S + BEAT_S)
    bench.standby.note_records(bench.now_s, TERM, None)
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_new_wait_ends_the_catching_up(bench: Bench) -> None:
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.standby.restart_wait(bench.now_s, TERM)
    bench.pass_s(BEAT_S)
    bench.standby.note_records(bench.now_s, TERM, None)
    assert bench.claims_after_s() == near(LEASE_S)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.standby.restart_wait(bench.now_s, TERM, 0.5)
    bench.pass_s(BEAT_S)
    bench.standby.note_records(bench.now_s, TERM, None)
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_primary_that_is_heard_again_while_it_catches_up_is_left_alone(bench: Bench) -> None:
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.primary_beats = True
    bench.pass_s(10)
    assert not bench.claims()


def test_a_claim_that_it_reads_while_it_catches_up_gives_the_new_primary_its_time(
    bench: Bench,
) -> None:
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.standby.note_records(bench.now_s, TERM + 1, Claim("a"))
    assert bench.claims_after_s() == near(CLAIM_LEASES * LEASE_S)


def test_a_primary_that_was_heard_while_it_caught_up_has_a_whole_lease_again(bench: Bench) -> None:
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.beat("a", "primary")
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_record_of_a_new_primary_is_a_sign_also_while_it_catches_up(bench: Bench) -> None:
    """Its claim came with it, or was read just before."""
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.standby.note_records(bench.now_s, TERM + 1, None)
    assert bench.claims_after_s() == near(LEASE_S)
    bench.standby.catch_up(bench.now_s, TERM + 1)
    bench.standby.note_records(bench.now_s, TERM + 2, Claim("a"))
    bench.standby.note_records(bench.now_s, TERM + 2, None)
    assert bench.claims_after_s() == near(LEASE_S)


def test_a_late_heartbeat_does_not_make_it_deaf_while_it_catches_up(bench: Bench) -> None:
    bench.pass_s(2)
    bench.now_s += 0.09  # without a heartbeat, before the wait
    bench.standby.catch_up(bench.now_s, TERM)
    bench.now_s += 0.15
    bench.beat("b", sent_s=bench.now_s)
    assert bench.claims_after_s() == near(RETRY_LEASES * LEASE_S - 0.15)


@pytest.mark.parametrize(("deaf_s", "left_s"), [(0.2, 0.7), (0.3, 0.6), (0.7, 1.0), (5, 1.0)])
def test_deaf_while_it_catches_up_it_waits_for_a_whole_lease(
    bench: Bench, deaf_s: float, left_s: float
) -> None:
    bench.pass_s(2)
    bench.standby.catch_up(bench.now_s, TERM)
    bench.hears = False
    bench.pass_s(deaf_s)
    bench.hears = True
    bench.pass_s(BEAT_S)
    assert bench.claims_after_s() == near(left_s)


def test_while_it_is_deaf_its_claim_is_due_in_a_lease(bench: Bench) -> None:
    assert bench.standby.claim_due_s(bench.now_s, 0) == bench.now_s + LEASE_S
    bench.hears = False
    bench.pass_s(0.6)
    assert bench.standby.claim_due_s(bench.now_s, 0) == bench.now_s + LEASE_S


@pytest.mark.parametrize("stopped_s", [0.6, 2, 100])
def test_stopped_it_does_not_take_its_deafness_for_silence(bench: Bench, stopped_s: float) -> None:
    """Its own heartbeat from before comes first when it goes on, then those of the primary."""
    bench.primary_beats = True
    bench.pass_s(1)
    sent_s = bench.now_s
    bench.now_s += stopped_s
    bench.beat("b", sent_s=sent_s)
    assert not bench.claims()
    bench.pass_s(5)
    assert not bench.claims()


def test_cut_off_it_waits_for_a_lease_when_it_hears_again(bench: Bench) -> None:
    bench.hears = False
    bench.pass_s(10)
    assert not bench.claims(), "its own heartbeats do not come back"
    bench.hears = True
    assert bench.claims_after_s() == near(LEASE_S)


def test_heartbeats_that_are_lost_now_and_then_delay_nothing(bench: Bench) -> None:
    for _ in range(4):
        bench.hears = False
        bench.pass_s(0.2)
        bench.hears = True
        bench.pass_s(0.1)
    assert bench.claims()


def test_late_and_repeated_heartbeats_of_its_own_do_not_matter(bench: Bench) -> None:
    bench.pass_s(0.9)
    for sent_s in (bench.now_s - 0.5, bench.now_s - 50, bench.now_s + 1e6):
        bench.beat("b", sent_s=sent_s)
    assert not bench.claims()
    assert bench.claims_after_s() == near(0.1)


def test_a_primary_of_an_older_term_is_no_sign(bench: Bench) -> None:
    for _ in range(30):
        bench.pass_s(BEAT_S)
        bench.beat("a", "primary", term=TERM - 1)
    assert bench.claims()


def test_another_standby_is_no_sign(bench: Bench) -> None:
    for _ in range(30):
        bench.pass_s(BEAT_S)
        bench.beat("c", "standby")
    assert bench.claims()


def test_a_standby_claims_at_once_when_it_is_called(bench: Bench) -> None:
    bench.beat("a", "standby", hands_over_to="b")
    assert not bench.claims(end=Position(99, TERM)), "it has not read all yet"
    assert bench.claims()


def test_a_call_for_another_one_is_not_for_it(bench: Bench) -> None:
    bench.beat("a", "standby", hands_over_to="c")
    assert not bench.claims()


@pytest.mark.parametrize("end", [Position(120, TERM + 1), Position(100, TERM - 1)])
def test_a_call_of_another_term_is_void(bench: Bench, end: Position) -> None:
    bench.beat("a", "standby", hands_over_to="b")
    assert not bench.claims(end=end)


def test_a_late_call_of_an_older_term_is_void(bench: Bench) -> None:
    bench.standby.note_records(bench.now_s, TERM + 1, Claim("b"))
    bench.beat("a", "standby", hands_over_to="b")
    assert not bench.claims()


def test_a_claim_that_fails_after_a_call_waits(bench: Bench) -> None:
    bench.beat("a", "standby", hands_over_to="b")
    bench.standby.restart_wait(bench.now_s, TERM)
    assert not bench.claims()


def test_a_new_log_is_claimed_at_once(bench: Bench) -> None:
    bench.standby.restart_wait(bench.now_s, 0, 0.0)
    assert bench.claims_after_s() < 1.5 * BEAT_S


def test_a_late_heartbeat_does_not_delay_the_claim_of_a_new_log(bench: Bench) -> None:
    bench.now_s += 0.3
    bench.standby.restart_wait(bench.now_s, 0, 0.0)
    assert bench.claims_after_s() < 1.5 * BEAT_S


def test_a_record_ends_the_wait_for_a_new_log(bench: Bench) -> None:
    bench.standby.restart_wait(bench.now_s, 0, 0.0)
    bench.standby.note_records(bench.now_s, 1, None)
    assert bench.claims_after_s() == near(LEASE_S)


def test_the_heartbeats_of_a_machine_of_the_same_name_are_those_of_another() -> None:
    """Else a primary would be silent to its namesake, and be fenced again and again."""
    standby = Standby("a", 1.0, 0.0, "mine")
    namesake = Beat(node="a", role="primary", term=1, applied=5, synced=5, process="other")
    own = Beat(node="a", role="standby", term=1, applied=5, synced=5, process="mine")
    for tenth in range(1, 50):
        now_s = tenth / 10
        standby.record_beat(namesake, now_s)
        standby.record_beat(msgspec.structs.replace(own, sent_s=now_s), now_s)
        assert not standby.should_claim(Position(5, 1), 0)


def test_a_namesake_is_told() -> None:
    members = Members("a", 0.0, process="mine")
    assert not members.has_namesake(1.0)
    beat = Beat(node="a", role="standby", term=1, applied=5, synced=5, process="other")
    assert not members.record(beat, 1.0)
    assert members.has_namesake(1.5)
    assert not members.has_namesake(60.0)
