"""Registered readers: the table of states, and what is promised whatever happens in between."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.control.reader_requests import Lease
from penstock.errors import ConfigError, OffsetOutOfRange, StoreError
from penstock.services.readers import Reader, Readers
from penstock.store.port import NOTHING_LEASED
from tests.support.budget import budget

EPOCH = "20261121T000000-00000001"
END = 100


def asks(group: str = "etl", offset: int = 10, ttl_s: float = 60.0, **more: object) -> Lease:
    given: dict[str, object] = {"stream": "messages", "topics": (), "epoch": EPOCH} | more
    return Lease(group=group, offset=offset, ttl_s=ttl_s, **given)  # type: ignore[arg-type]


def known(*kept: Reader, readers_max: int = 3, now_s: float = 0.0) -> Readers:
    return Readers(EPOCH, readers_max, 1000.0, kept, now_s)


def test_nobody_holds_anything_at_first() -> None:
    assert known().lowest_leased_offset(0.0) == NOTHING_LEASED


def test_a_lease_holds_until_its_time_is_over() -> None:
    readers = known()
    granted, is_new = readers.lease(asks(offset=10), END, 0.0)
    assert (granted.offset, granted.ttl_s, granted.epoch, is_new) == (10, 60.0, EPOCH, True)
    assert readers.lowest_leased_offset(59.9) == 10
    assert readers.remaining_s("etl", 59.0) == pytest.approx(1.0)
    assert readers.expire(59.9) == []
    assert readers.lowest_leased_offset(60.0) == NOTHING_LEASED, "also before anybody noticed"
    assert [reader.group for reader in readers.expire(60.0)] == ["etl"]
    assert readers.remaining_s("etl", 61.0) == 0.0
    assert len(readers) == 1, "it stays known"


def test_a_renewal_moves_the_offset_and_need_not_be_kept_at_once() -> None:
    readers = known()
    readers.lease(asks(offset=10), END, 0.0)
    assert readers.lease(asks(offset=20), END, 50.0)[1] is False
    assert readers.lowest_leased_offset(100.0) == 20
    assert readers.lease(asks(offset=15), END, 51.0)[1] is True, "it moved back"
    assert readers.lease(asks(offset=15, ttl_s=90), END, 52.0)[1] is True, "it lasts longer"


def test_the_lowest_of_those_that_hold_counts() -> None:
    readers = known()
    readers.lease(asks("a", 30, ttl_s=10), END, 0.0)
    readers.lease(asks("b", 20, ttl_s=20), END, 0.0)
    assert [readers.lowest_leased_offset(now_s) for now_s in (5.0, 15.0, 25.0)] == [
        20,
        20,
        NOTHING_LEASED,
    ]
    assert readers.release("b")
    assert not readers.release("b")
    assert readers.lowest_leased_offset(5.0) == 30


def test_a_group_that_is_known_resumes_where_it_was() -> None:
    """What startingOffsets latest rests on: asked again, it is the same place."""
    readers = known()
    assert readers.lease(asks(offset=40, resume=True), END, 0.0)[0].offset == 40
    assert readers.lease(asks(offset=90, resume=True), END, 1.0)[0].offset == 40
    readers.expire(100.0)
    assert readers.lease(asks(offset=95, resume=True), END, 101.0)[0].offset == 40
    readers.release("etl")
    assert readers.lease(asks(offset=95, resume=True), END, 102.0)[0].offset == 95


def test_a_restart_gives_every_lease_its_whole_time_again() -> None:
    readers = known()
    readers.lease(asks("a", 10), END, 0.0)
    readers.lease(asks("b", 5, ttl_s=1), END, 0.0)
    readers.expire(30.0)
    again = known(*copy.deepcopy(readers.records()), now_s=1_000_000.0)
    assert again.lowest_leased_offset(1_000_059.0) == 10, "a lapsed one stays lapsed"
    assert again.lowest_leased_offset(1_000_061.0) == NOTHING_LEASED


def test_no_lease_is_longer_than_the_limit() -> None:
    readers = known()
    assert readers.lease(asks(ttl_s=1e9), END, 0.0)[0].ttl_s == 1000.0
    assert readers.lowest_leased_offset(1000.0) == NOTHING_LEASED


def test_one_group_has_one_selection_while_it_holds() -> None:
    readers = known()
    readers.lease(asks(topics=("a/#",)), END, 0.0)
    with pytest.raises(
        ConfigError, match=r"group etl reads a/# of the stream messages, and cannot read b/#, c of"
    ):
        readers.lease(asks(topics=("b/#", "c")), END, 1.0)
    assert readers.lease(asks(offset=70, topics=("b/#",), resume=True), END, 60.0)[0].offset == 70


def test_one_that_lapsed_gives_its_place_to_another_and_one_that_holds_does_not() -> None:
    readers = known()
    for number, group in enumerate(("a", "b", "c")):
        readers.lease(asks(group, ttl_s=10.0 - number), END, 0.0)
    with pytest.raises(StoreError, match="no place for the group d: 3 groups of readers are regis"):
        readers.lease(asks("d"), END, 7.0)
    readers.lease(asks("d"), END, 8.0)
    assert {reader.group for reader in readers.records()} == {"a", "b", "d"}


def test_nobody_is_registered_where_none_may_be() -> None:
    with pytest.raises(StoreError, match="no place"):
        known(readers_max=0).lease(asks(), END, 0.0)


def test_each_message_that_leaves_the_log_all_the_same_is_counted() -> None:
    readers = known()
    readers.lease(asks("a", 10), END, 0.0)
    readers.lease(asks("b", 30), END, 0.0)
    readers.lease(asks("gone", 0, ttl_s=1), END, 0.0)
    assert readers.count_losses(0, 10, 2.0) == []
    found = [(reader.group, lost) for reader, lost in readers.count_losses(10, 40, 2.0)]
    assert found == [("a", 30), ("b", 10)]
    assert readers.lease(asks("a", 50), END, 3.0)[0].lost == 30


@pytest.mark.parametrize(
    ("wrong", "kind", "sentence"),
    [
        (asks("a b"), ConfigError, "a group must be 1 to 64 letters, digits and . _ - that start"),
        (asks("x" * 65), ConfigError, "a group must be"),
        (asks(ttl_s=0), ConfigError, "a lease must last for more than 0 s, not 0 s"),
        (asks(ttl_s=float("nan")), ConfigError, "a lease must last for more than 0 s, not nan s"),
        (asks(offset=101), OffsetOutOfRange, "group etl asks for offset 101, and the log ends at"),
        (asks(offset=-1), OffsetOutOfRange, "group etl asks for offset -1"),
    ],
)
def test_a_mistake_is_one_sentence(wrong: Lease, kind: type[Exception], sentence: str) -> None:
    readers = known()
    with pytest.raises(kind, match=sentence):
        readers.lease(wrong, END, 0.0)
    assert len(readers) == 0


@dataclass
class Promise:
    """What a group was told last."""

    offset: int
    ttl_s: float
    ends_s: float


class Promises(RuleBasedStateMachine):
    """Leases, time, restarts that forget renewals, trimming: a live lease holds what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.readers = known(readers_max=4)
        self.written: list[Reader] = []
        self.promises: dict[str, Promise] = {}
        self.now_s = 0.0
        self.earliest = 0

    @rule(
        group=st.sampled_from("abcdef"),
        offset=st.integers(0, END),
        ttl_s=st.sampled_from([5.0, 50.0]),
        resume=st.booleans(),
    )
    def lease(self, group: str, offset: int, ttl_s: float, resume: bool) -> None:
        try:
            granted, is_new = self.readers.lease(
                asks(group, offset, ttl_s, resume=resume), END, self.now_s
            )
        except StoreError:
            assert len(self.readers) == 4
            assert all(reader.has_lease for reader in self.readers.records())
            return
        assert resume or granted.offset == offset
        self.promises[group] = Promise(granted.offset, ttl_s, self.now_s + ttl_s)
        if is_new:
            self.write()

    @rule()
    def write(self) -> None:
        self.written = copy.deepcopy(self.readers.records())

    @rule(group=st.sampled_from("abcdef"))
    def release(self, group: str) -> None:
        self.promises.pop(group, None)
        if self.readers.release(group):
            self.write()

    @rule(seconds=st.sampled_from([0.5, 6.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self._forget_what_is_over()

    @rule(clock_s=st.floats(0, 1e6))
    def crash(self, clock_s: float) -> None:
        """The new process has another clock."""
        for promise in self.promises.values():
            promise.ends_s = clock_s + promise.ttl_s
        self.now_s = clock_s
        self.readers = known(*copy.deepcopy(self.written), readers_max=4, now_s=clock_s)

    @precondition(lambda self: self.readers.lowest_leased_offset(self.now_s) < NOTHING_LEASED)
    @rule()
    def trim(self) -> None:
        earliest = max(self.earliest, min(END, self.readers.lowest_leased_offset(self.now_s)))
        assert self.readers.count_losses(self.earliest, earliest, self.now_s) == []
        self.earliest = earliest

    @rule()
    def look(self) -> None:
        for reader in self.readers.expire(self.now_s):
            assert reader.group not in self.promises
        self._forget_what_is_over()

    @invariant()
    def what_was_promised_is_held(self) -> None:
        live = [promise.offset for promise in self.promises.values()]
        assert self.readers.lowest_leased_offset(self.now_s) <= min(live, default=NOTHING_LEASED)
        assert len(self.readers) <= 4

    def _forget_what_is_over(self) -> None:
        self.promises = {
            group: promise
            for group, promise in self.promises.items()
            if promise.ends_s > self.now_s
        }


TestPromises = Promises.TestCase
TestPromises.settings = settings(max_examples=budget(60), stateful_step_count=40, deadline=None)
