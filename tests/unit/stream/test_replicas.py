"""The choice among the addresses of one log: where a request goes next, and when it is given up."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.stream.replicas import (
    ADDRESSES_MAX,
    ATTEMPT_S_MIN,
    BACKOFF_S_MAX,
    BACKOFF_S_MIN,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    FailureKind,
    ReplicaHealth,
    RequestRetry,
    RetriesExhausted,
    parse_addresses,
)

ABC = ("a:1", "b:2", "c:3")


def begin(
    health: ReplicaHealth, patience_s: float = 60.0, now_s: float = 0.0, *, changes: bool = False
) -> RequestRetry:
    return RequestRetry(ABC, health, patience_s, now_s, changes=changes)


def fail(retry: RequestRetry, kind: FailureKind, now_s: float = 0.0) -> float:
    return retry.record_failure(kind, OSError(f"{retry.address} {kind.name}"), now_s)


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
    retry = begin(ReplicaHealth())
    asked = [retry.address]
    for _ in ABC[1:]:
        assert fail(retry, FailureKind.UNAVAILABLE) == 0
        asked.append(retry.address)
    assert tuple(asked) == ABC
    pauses = []
    for _ in range(7):
        pauses.append(fail(retry, FailureKind.UNAVAILABLE))
        fail(retry, FailureKind.UNAVAILABLE)
        fail(retry, FailureKind.UNAVAILABLE)
    assert pauses[0] == PAUSE_S_MIN
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_S_MAX


def test_the_address_that_worked_is_asked_first_by_later_requests() -> None:
    health = ReplicaHealth()
    retry = begin(health)
    fail(retry, FailureKind.BROKEN)
    retry.record_success(1.0)
    assert begin(health, now_s=2.0).address == "b:2"
    assert begin(health, now_s=2.0, changes=True).address == "a:1"  # the primary is another matter


def test_an_address_that_did_not_answer_is_put_off_for_longer_each_time() -> None:
    health = ReplicaHealth()
    now_s, lengths = 0.0, []
    for _ in range(9):
        health.record_failure("a:1", now_s)
        health.record_failure("a:1", now_s)  # another request at the same time
        begin_s = now_s
        while health.is_backing_off("a:1", now_s):
            now_s += 0.5
        lengths.append(now_s - begin_s)
    assert lengths[:3] == [BACKOFF_S_MIN, 2 * BACKOFF_S_MIN, 4 * BACKOFF_S_MIN]
    assert lengths[-1] == BACKOFF_S_MAX
    assert health.order(ABC, begin_s, changes=False) == ["b:2", "c:3", "a:1"]
    health.record_success("a:1", now_s, changes=False)
    health.record_failure("a:1", now_s)
    assert not health.is_backing_off("a:1", now_s + BACKOFF_S_MIN)


def test_one_that_was_put_off_is_not_asked_where_another_will_soon_do() -> None:
    health = ReplicaHealth()
    health.record_failure("a:1", 0.0)
    retry = begin(health)
    assert retry.address == "b:2"
    fail(retry, FailureKind.BEHIND)
    assert retry.address == "c:3"
    assert fail(retry, FailureKind.BEHIND) > 0
    assert retry.address == "b:2"
    retry = begin(health, patience_s=0.0)  # but before it is given up
    fail(retry, FailureKind.BEHIND)
    fail(retry, FailureKind.BEHIND)
    assert retry.address == "a:1"


def test_a_request_that_every_replica_refuses_is_given_up_at_once() -> None:
    retry = begin(ReplicaHealth())
    fail(retry, FailureKind.OTHER_EPOCH)
    fail(retry, FailureKind.TRIMMED)
    with pytest.raises(RetriesExhausted) as given_up:
        fail(retry, FailureKind.OTHER_EPOCH)
    assert given_up.value.worst.kind is FailureKind.TRIMMED  # of the log that was meant


@pytest.mark.parametrize("kind", [FailureKind.UNAVAILABLE, FailureKind.STANDBY, FailureKind.BEHIND])
def test_one_that_may_have_it_later_is_waited_for(kind: FailureKind) -> None:
    retry = begin(ReplicaHealth(), patience_s=10.0)
    fail(retry, FailureKind.OTHER_EPOCH)
    fail(retry, kind)
    assert fail(retry, FailureKind.OTHER_EPOCH) > 0
    fail(retry, kind, now_s=10.0)
    fail(retry, kind, now_s=10.0)
    with pytest.raises(RetriesExhausted) as given_up:
        fail(retry, kind, now_s=10.0)
    assert given_up.value.worst.kind is kind


def test_the_limit_is_one_for_the_whole_request_from_its_beginning() -> None:
    retry = begin(ReplicaHealth(), patience_s=9.0)
    assert retry.attempt_s(0.0, 10.0) == 3.0, "there are three addresses"
    fail(retry, FailureKind.UNAVAILABLE, now_s=3.0)
    assert retry.attempt_s(3.0, 10.0) == 3.0
    fail(retry, FailureKind.UNAVAILABLE, now_s=6.0)
    fail(retry, FailureKind.UNAVAILABLE, now_s=8.9)
    assert retry.attempt_s(9.0, 10.0) == ATTEMPT_S_MIN
    fail(retry, FailureKind.UNAVAILABLE, now_s=10.0)
    fail(retry, FailureKind.UNAVAILABLE, now_s=10.0)
    with pytest.raises(RetriesExhausted):
        fail(retry, FailureKind.UNAVAILABLE, now_s=10.0)
    assert retry.waited_s(10.0) == 10.0


def test_a_service_that_works_on_a_request_may_take_its_time() -> None:
    retry = begin(ReplicaHealth(), patience_s=1.0)
    retry.record_acceptance()
    assert fail(retry, FailureKind.UNAVAILABLE, now_s=100.0) == 0
    retry.record_acceptance()  # but one that fails each time it has begun is given up
    fail(retry, FailureKind.UNAVAILABLE, now_s=101.0)
    with pytest.raises(RetriesExhausted):
        fail(retry, FailureKind.UNAVAILABLE, now_s=101.0)


def test_patience_begins_anew_with_each_row() -> None:
    retry = begin(ReplicaHealth(), patience_s=1.0)
    fail(retry, FailureKind.UNAVAILABLE)
    retry.record_success(100.0)
    assert fail(retry, FailureKind.UNAVAILABLE, now_s=100.5) == 0
    assert fail(retry, FailureKind.UNAVAILABLE, now_s=100.5) == 0
    assert fail(retry, FailureKind.UNAVAILABLE, now_s=100.5) > 0


def test_a_log_alone_is_not_behind_itself() -> None:
    retry = RequestRetry(["a:1"], ReplicaHealth(), 60.0, 0.0)
    with pytest.raises(RetriesExhausted):
        fail(retry, FailureKind.BEHIND)


def test_a_refusal_of_what_may_be_the_primary_ends_a_change() -> None:
    retry = begin(ReplicaHealth(), changes=True)
    fail(retry, FailureKind.STANDBY)
    fail(retry, FailureKind.BROKEN)
    with pytest.raises(RetriesExhausted) as given_up:
        fail(retry, FailureKind.STANDBY)
    assert given_up.value.worst.kind is FailureKind.BROKEN
