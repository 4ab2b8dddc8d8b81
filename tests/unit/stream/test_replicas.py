"""The choice among the addresses of one log: where a request goes next, and when it is given up."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.stream.replicas import (
    ADDRESSES_MAX,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    PUT_OFF_S_MAX,
    PUT_OFF_S_MIN,
    GivenUp,
    Kind,
    Memory,
    Trial,
    parse_addresses,
)

ABC = ("a:1", "b:2", "c:3")


def begin(
    memory: Memory, patience_s: float = 60.0, now_s: float = 0.0, *, changes: bool = False
) -> Trial:
    return Trial(ABC, memory, patience_s, now_s, changes=changes)


def fail(trial: Trial, kind: Kind, now_s: float = 0.0) -> float:
    return trial.failed(kind, OSError(f"{trial.address} {kind.name}"), now_s)


def test_addresses_are_separated_by_commas_and_may_have_schemes() -> None:
    assert parse_addresses("grpc://a:1, grpc+tls://b:2,c:3") == ABC


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a:1,,b:2", "an address is missing"),
        ("", "an address is missing"),
        ("a:1,b:2,grpc://a:1", "names a:1 twice"),
        (",".join(f"a:{n}" for n in range(ADDRESSES_MAX + 1)), "may have 16 addresses, not 17"),
    ],
)
def test_a_list_with_a_mistake_is_refused(text: str, mistake: str) -> None:
    with pytest.raises(ConfigError, match=mistake):
        parse_addresses(text)


def test_a_round_asks_each_address_once_and_the_next_comes_after_a_pause() -> None:
    trial = begin(Memory())
    asked = [trial.address]
    for _ in ABC[1:]:
        assert fail(trial, Kind.AWAY) == 0
        asked.append(trial.address)
    assert tuple(asked) == ABC
    pauses = []
    for _ in range(7):
        pauses.append(fail(trial, Kind.AWAY))
        fail(trial, Kind.AWAY)
        fail(trial, Kind.AWAY)
    assert pauses[0] == PAUSE_S_MIN
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_S_MAX


def test_the_address_that_worked_is_asked_first_by_later_requests() -> None:
    memory = Memory()
    trial = begin(memory)
    fail(trial, Kind.BROKEN)
    trial.worked(1.0)
    assert begin(memory, now_s=2.0).address == "b:2"
    assert begin(memory, now_s=2.0, changes=True).address == "a:1"  # the primary is another matter


def test_an_address_that_did_not_answer_is_put_off_for_longer_each_time() -> None:
    memory = Memory()
    now_s, lengths = 0.0, []
    for _ in range(9):
        memory.failed("a:1", now_s)
        memory.failed("a:1", now_s)  # another request at the same time
        begin_s = now_s
        while memory.is_put_off("a:1", now_s):
            now_s += 0.5
        lengths.append(now_s - begin_s)
    assert lengths[:3] == [PUT_OFF_S_MIN, 2 * PUT_OFF_S_MIN, 4 * PUT_OFF_S_MIN]
    assert lengths[-1] == PUT_OFF_S_MAX
    assert memory.order(ABC, begin_s, changes=False) == ["b:2", "c:3", "a:1"]
    memory.worked("a:1", now_s, changes=False)
    memory.failed("a:1", now_s)
    assert not memory.is_put_off("a:1", now_s + PUT_OFF_S_MIN)


def test_one_that_was_put_off_is_not_asked_where_another_will_soon_do() -> None:
    memory = Memory()
    memory.failed("a:1", 0.0)
    trial = begin(memory)
    assert trial.address == "b:2"
    fail(trial, Kind.BEHIND)
    assert trial.address == "c:3"
    assert fail(trial, Kind.BEHIND) > 0
    assert trial.address == "b:2"
    trial = begin(memory, patience_s=0.0)  # but before it is given up
    fail(trial, Kind.BEHIND)
    fail(trial, Kind.BEHIND)
    assert trial.address == "a:1"


def test_what_every_replica_refuses_is_given_up_at_once() -> None:
    trial = begin(Memory())
    fail(trial, Kind.FOREIGN)
    fail(trial, Kind.GONE)
    with pytest.raises(GivenUp) as given_up:
        fail(trial, Kind.FOREIGN)
    assert given_up.value.worst.kind is Kind.GONE  # of the log that was meant


@pytest.mark.parametrize("kind", [Kind.AWAY, Kind.STANDBY, Kind.BEHIND])
def test_one_that_may_have_it_later_is_waited_for(kind: Kind) -> None:
    trial = begin(Memory(), patience_s=10.0)
    fail(trial, Kind.FOREIGN)
    fail(trial, kind)
    assert fail(trial, Kind.FOREIGN) > 0
    fail(trial, kind, now_s=10.0)
    fail(trial, kind, now_s=10.0)
    with pytest.raises(GivenUp) as given_up:
        fail(trial, kind, now_s=10.0)
    assert given_up.value.worst.kind is kind


def test_patience_begins_anew_with_each_row() -> None:
    trial = begin(Memory(), patience_s=1.0)
    fail(trial, Kind.AWAY)
    trial.worked(100.0)
    assert fail(trial, Kind.AWAY, now_s=100.5) == 0
    assert fail(trial, Kind.AWAY, now_s=100.5) == 0
    assert fail(trial, Kind.AWAY, now_s=100.5) > 0


def test_a_log_alone_is_not_behind_itself() -> None:
    trial = Trial(["a:1"], Memory(), 60.0, 0.0)
    with pytest.raises(GivenUp):
        fail(trial, Kind.BEHIND)


def test_a_refusal_of_what_may_be_the_primary_ends_a_change() -> None:
    trial = begin(Memory(), changes=True)
    fail(trial, Kind.STANDBY)
    fail(trial, Kind.BROKEN)
    with pytest.raises(GivenUp) as given_up:
        fail(trial, Kind.STANDBY)
    assert given_up.value.worst.kind is Kind.BROKEN
