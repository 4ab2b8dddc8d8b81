"""A run without clock and sockets: who gets what and when, who has room, what it adds up to."""

from __future__ import annotations

import math
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.figures import Figures
from penstock.bench.load import Load
from penstock.bench.plan import Plan
from penstock.bench.publisher_state import UNBOUNDED
from penstock.bench.stamp import SIZE_BYTES, due_ns_of, is_stamped_by, publisher_of, sequence_of
from penstock.bench.subscriber_state import NO_PUBLISHER
from penstock.client import Publication
from penstock.errors import ConfigError, PublishFailed

RUN: Final = 7
START_NS: Final = 1_000_000_000_000
SECOND_NS: Final = 1_000_000_000
COUNTS = st.integers(1, 12)


def begun(**plan: object) -> Load:
    """A load whose messages are allowed."""
    wanted: dict[str, object] = {"messages": 1000, "qos": 1} | plan
    load = Load(Plan(**wanted), RUN, START_NS)  # type: ignore[arg-type]  # a test names them
    load.release_due(START_NS)
    return load


def send(load: Load, number: int = 0, now_ns: int = START_NS) -> tuple[bytes, Publication]:
    """One message leaves a publisher."""
    outgoing = load.publishers[number]
    assert outgoing.has_room
    payload = outgoing.next_payload(now_ns)
    publication = Publication("bench/0")
    if load.plan.qos:
        outgoing.track(publication)
    return payload, publication


# -- the plan ------------------------------------------------------------------------------


@given(COUNTS, COUNTS)
def test_every_message_has_a_subscriber_and_nobody_is_idle(
    publishers: int, subscribers: int
) -> None:
    plan = Plan(publishers=publishers, subscribers=subscribers, messages=1)
    heard = [set(plan.publishers_of(number)) for number in range(subscribers)]
    assert all(heard)
    for number in range(publishers):
        assert plan.fan_out(number) == sum(number in one for one in heard) > 0


@pytest.mark.parametrize(
    ("publishers", "subscribers", "filters"),
    [
        (2, 2, [["t/0"], ["t/1"]]),
        (1, 3, [["t/0"], ["t/0"], ["t/0"]]),
        (3, 1, [["t/0", "t/1", "t/2"]]),
    ],
)
def test_a_subscriber_gets_its_own_publishers(
    publishers: int, subscribers: int, filters: list[list[str]]
) -> None:
    plan = Plan(publishers=publishers, subscribers=subscribers, topic="t/%i", messages=1)
    assert [plan.filters_of(number) for number in range(subscribers)] == filters


def test_one_topic_for_all_goes_to_everybody() -> None:
    plan = Plan(publishers=3, subscribers=2, topic="all", messages=1)
    assert [plan.filters_of(number) for number in range(2)] == [["all"], ["all"]]
    assert [plan.fan_out(number) for number in range(3)] == [2, 2, 2]
    assert Plan(subscribers=0, messages=1).fan_out(0) == 0


@given(COUNTS, st.integers(0, 100))
def test_shares_add_up(publishers: int, count: int) -> None:
    plan = Plan(publishers=publishers, messages=1)
    assert sum(plan.share(number, count) for number in range(publishers)) == count


def test_the_messages_due_end_with_the_duration_or_their_number() -> None:
    plan = Plan(rate_per_s=10.0, duration_s=1.0, warm_up_s=1.0)
    assert [plan.due(int(at * SECOND_NS)) for at in (0, 0.05, 0.1, 1.95, 9)] == [1, 1, 2, 20, 20]
    assert Plan(rate_per_s=10.0, messages=5).due(9 * SECOND_NS) == 5
    assert Plan(messages=5).due(0) == 5
    assert Plan(duration_s=1.0).due(0) is None


@pytest.mark.parametrize(
    "plan",
    [
        {"messages": 1, "payload_bytes": SIZE_BYTES - 1},
        {},
        {"messages": 1, "duration_s": 1.0},
        {"messages": 1, "topic": "a/#"},
        {"messages": 1, "topic": ""},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(plan: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Plan(**plan)  # type: ignore[arg-type]  # wrong on purpose


# -- the load --------------------------------------------------------------------------------


@given(st.integers(0, 3), st.integers(0, 2**62), st.integers(SIZE_BYTES, 100))
def test_a_stamp_says_what_was_stamped(publisher: int, due_ns: int, size_bytes: int) -> None:
    load = begun(publishers=4, payload_bytes=size_bytes)
    payload, _ = send(load, publisher, due_ns)
    assert len(payload) == size_bytes
    assert is_stamped_by(RUN, payload)
    assert not is_stamped_by(RUN + 1, payload)
    assert not is_stamped_by(RUN, payload[: SIZE_BYTES - 1])
    assert (publisher_of(payload), sequence_of(payload)) == (publisher, 0)
    assert due_ns_of(payload) == due_ns


def test_with_a_rate_a_message_counts_from_when_it_was_due() -> None:
    load = begun(rate_per_s=2.0, publishers=2, subscribers=2, messages=None, duration_s=60.0)
    assert [one.send_limit for one in load.publishers] == [1, 0]
    load.publishers[1].is_waiting = True
    assert load.release_due(START_NS + SECOND_NS // 2) == [1]
    late_ns = START_NS + 10 * SECOND_NS
    load.release_due(late_ns)
    dues = [due_ns_of(send(load, 1, late_ns)[0]) for _ in range(2)]
    assert dues == [START_NS + SECOND_NS // 2, START_NS + 3 * SECOND_NS // 2]
    assert load.unsent(late_ns) == 21 - 2


def test_latencies_of_the_warm_up_do_not_count() -> None:
    load = begun(messages=None, duration_s=1.0, warm_up_s=1.0)
    assert load.publishers[0].send_limit == UNBOUNDED
    for now_ns in (START_NS, START_NS + SECOND_NS):
        payload, publication = send(load, now_ns=now_ns)
        publication.settle(0, None)
        load.publishers[0].settle(now_ns + 100)
        load.subscribers[0].receive(payload, now_ns + 200)
    assert (load.acknowledgement_latencies.count, load.acknowledgement_latencies.max_ns) == (1, 100)
    assert (load.end_to_end_latencies.count, load.end_to_end_latencies.max_ns) == (1, 200)
    assert not load.is_over(START_NS + 2 * SECOND_NS - 1)
    assert load.is_over(START_NS + 2 * SECOND_NS)


def test_the_window_is_what_is_not_settled_in_order() -> None:
    load = begun(window=2)
    outgoing = load.publishers[0]
    first, second = (send(load)[1] for _ in range(2))
    assert not outgoing.has_room
    second.settle(0, None)
    outgoing.settle(START_NS)
    assert outgoing.settled == 0, "the first is not answered"
    first.settle(0x10, None)
    outgoing.settle(START_NS)
    assert (outgoing.settled, outgoing.oldest_unsettled) == (2, None)
    assert outgoing.has_room


def test_subscribers_that_are_behind_hold_up_their_publisher() -> None:
    load = begun(end_to_end=1, subscribers=2, qos=0)
    outgoing = load.publishers[0]
    payload, _ = send(load)
    outgoing.is_waiting = True
    assert not outgoing.has_room
    assert load.subscribers[0].receive(payload, START_NS) == 0, "one of two copies came"
    send(load)
    assert load.subscribers[0].receive(payload, START_NS) == NO_PUBLISHER, (
        "a duplicate makes no room"
    )
    assert load.give_up_lost_copies() == []
    assert load.give_up_lost_copies() == [0], "nothing came since: nobody waits for what is missing"
    assert not load.is_drained, "it may come yet"


def test_a_copy_that_comes_late_is_not_lost_and_holds_up_again() -> None:
    load = begun(end_to_end=2, qos=0)
    outgoing = load.publishers[0]
    first = [send(load)[0] for _ in range(2)]
    load.give_up_lost_copies()
    load.give_up_lost_copies()
    second = [send(load)[0] for _ in range(2)]
    assert not outgoing.has_room
    for payload in first:
        load.subscribers[0].receive(payload, START_NS)
    assert outgoing.copies_in_flight == 2, "the second two"
    assert not outgoing.has_room, "they hold it up"
    for payload in second:
        load.subscribers[0].receive(payload, START_NS)
    assert load.is_drained
    assert (load.counts().lost, outgoing.copies_in_flight) == (0, 0)


def test_a_copy_that_never_comes_holds_up_once() -> None:
    load = begun(end_to_end=2, qos=0)
    outgoing = load.publishers[0]
    for _ in range(2):
        send(load)
    load.give_up_lost_copies()
    load.give_up_lost_copies()
    for _ in range(5):
        payload, _ = send(load)
        load.subscribers[0].receive(payload, START_NS)
    assert outgoing.has_room
    assert load.counts().lost == 2


def test_a_message_due_after_the_end_is_not_sent() -> None:
    load = begun(rate_per_s=1000.0, duration_s=10.0, messages=None)
    load.release_due(START_NS + SECOND_NS)
    load.stop()
    assert load.release_due(START_NS + 2 * SECOND_NS) == []
    assert not load.publishers[0].has_room


def test_everything_is_counted() -> None:
    load = begun(subscribers=2, messages=5)
    sent = [send(load) for _ in range(5)]
    assert not load.publishers[0].has_room
    assert load.is_over(START_NS)
    for _, publication in sent[:3]:
        publication.settle(0, None)
    sent[3][1].settle(0x97, PublishFailed("no"))
    load.publishers[0].settle(START_NS + 1)
    first, second = load.subscribers
    for index in (0, 2, 1, 1):
        first.receive(sent[index][0], START_NS + 2)
    second.receive(sent[0][0], START_NS + 3)
    second.receive(b"not ours", START_NS + 4)
    counts = load.counts()
    assert (counts.sent, counts.acknowledged, counts.refused) == (5, 3, 1)
    assert (counts.received, counts.expected, counts.lost) == (4, 6, 2)
    assert (counts.duplicated, counts.out_of_order, counts.foreign) == (1, 1, 1)
    assert counts.received_bytes == 5 * 64
    assert load.refused_by_code() == {0x97: 1}
    assert load.last_ns == START_NS + 3
    assert not load.is_drained


def test_the_run_is_done_when_everything_came() -> None:
    load = begun(messages=2)
    for payload, publication in [send(load) for _ in range(2)]:
        assert not load.is_drained
        publication.settle(0, None)
        load.publishers[0].settle(START_NS)
        load.subscribers[0].receive(payload, START_NS)
    assert load.is_drained
    load.stop()
    assert load.counts().lost == 0


# -- the verdict -----------------------------------------------------------------------------


def figures(
    qos: int, lost: int = 0, duplicated: int = 0, unacknowledged: int = 0, reconnections: int = 0
) -> Figures:
    load = begun(qos=qos)
    counts = load.counts()._replace(
        sent=10, acknowledged=10 - unacknowledged, lost=lost, duplicated=duplicated
    )
    return Figures(
        plan=load.plan,
        url="mqtt://b",
        counts=counts,
        refused={},
        unsent=0,
        reconnections=reconnections,
        keeps_sessions=False,
        seconds=1.0,
        sent_per_s=1.0,
        acknowledged_per_s=1.0,
        received_per_s=1.0,
        cores=0.1,
        acknowledgement_latencies=load.acknowledgement_latencies,
        end_to_end_latencies=load.end_to_end_latencies,
        is_interrupted=False,
        failure="",
    )


@pytest.mark.parametrize(
    ("qos", "lost", "duplicated", "told"),
    [
        (0, 1, 1, []),
        (1, 0, 1, []),
        (1, 1, 1, ["1 lost with QoS 1, which forbids it"]),
        (2, 0, 1, ["1 duplicated with QoS 2, which forbids it"]),
        (2, 2, 1, ["2 lost and 1 duplicated with QoS 2, which forbids it"]),
    ],
)
def test_the_qos_says_what_is_forbidden(
    qos: int, lost: int, duplicated: int, told: list[str]
) -> None:
    assert figures(qos, lost, duplicated).problems == told


def test_a_message_that_nobody_acknowledged_is_told_and_not_called_lost() -> None:
    assert figures(1, unacknowledged=2).problems == ["2 messages were not acknowledged"]
    assert figures(1).as_json()["latency_ms"] == {"acknowledgement": None, "end_to_end": None}


def test_a_session_that_ended_with_its_connection_owes_nothing() -> None:
    assert figures(2, lost=1, duplicated=1).qos_violation
    assert not figures(2, lost=1, duplicated=1, reconnections=1).qos_violation


@pytest.mark.parametrize(
    "wrong", [{"rate_per_s": math.inf}, {"rate_per_s": math.nan}, {"duration_s": math.inf}]
)
def test_numbers_without_an_end_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be a finite number"):
        begun(**{"messages": None, "duration_s": 1.0} | wrong)
