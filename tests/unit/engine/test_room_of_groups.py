"""No room in shared subscriptions: what is acknowledged has a place, and keeps it."""

from __future__ import annotations

import pytest

from penstock.engine import drop_counts as drops
from penstock.engine.access import Permissions
from penstock.engine.limits import (
    DROP_NEWEST,
    DROP_OLDEST,
    PACKET_IDENTIFIERS,
    REJECT,
    EngineLimits,
)
from penstock.engine.message import Delivery, Message, Shared
from penstock.engine.options import STRATEGIES, SharingOptions
from penstock.protocol import reasons
from penstock.protocol.packets import Connect, Puback, Publish, Subscribe, Subscription
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

SHARED = "$share/g/t"
FULL = reasons.QUOTA_EXCEEDED


class Barred(Permissions):
    """Of somebody who may receive nothing."""

    def may_receive(self, topic: str) -> bool:
        """No."""
        del topic
        return False


def published(bench: Bench, line: Line, number: int, size: int = 1) -> int:
    """The reason code a message of ``size`` bytes is answered with."""
    line.send(Publish("t", b"x" * size, 1, packet_id=number))
    bench.commit()
    (answer,) = line.read()
    assert isinstance(answer, Puback)
    return answer.reason_code


def waiting(*lines: Line) -> list[tuple[int, int]]:
    """Messages in the window and in the queue of each."""
    return [(line.session.window_length, line.session.queue_length) for line in lines]


def test_bytes_are_asked_for_with_the_size_of_the_message() -> None:
    """The first may have room for a smaller one only: then it is the second's, or refused."""
    bench = Bench(EngineLimits(max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=REJECT))
    for name in ("s1", "s2"):
        bench.subscriber(name, SHARED, 1).cut()
    publisher = bench.join("p")
    codes = [published(bench, publisher, number, 435) for number in range(1, 6)]
    assert codes == [0, 0, 0, 0, FULL]
    assert published(bench, publisher, 6, 2000) == 0  # never fits: would be refused for ever
    assert sum(bench.server.drops.counts) == bench.server.drops.counts[drops.QUEUE_FULL] == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_each_copy_of_one_message_needs_a_place_of_its_own(qos: int) -> None:
    bench = Bench(EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT, max_inflight=1))
    away = bench.subscriber("s", "t", qos)
    away.send(Subscribe(2, [Subscription(SHARED, qos), Subscription("$share/h/t", qos)]))
    bench.commit()
    away.cut()
    publisher = bench.join("p")
    assert published(bench, publisher, 1) == FULL  # two places for three
    assert waiting(away) == [(0, 0)]
    back = bench.join("s", durable=True)
    assert published(bench, publisher, 2) == 0  # window and queue
    assert waiting(back) == [(1, 2)]
    assert sum(bench.server.drops.counts) == 0


def test_what_never_has_as_many_places_is_not_refused_for_ever() -> None:
    bench = Bench(EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT, max_inflight=1))
    away = bench.subscriber("s", "t", 1)
    away.send(Subscribe(2, [Subscription(SHARED, 1), Subscription("$share/h/t", 1)]))
    bench.commit()
    publisher = bench.join("p")
    assert published(bench, publisher, 1) == 0
    assert bench.server.drops.counts[drops.QUEUE_FULL] == 1
    assert waiting(away) == [(1, 1)]


def test_two_groups_do_not_give_the_same_place_away() -> None:
    """One chooses first; the other knows, and takes another member."""
    bench = Bench(EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT))
    first, second = bench.subscriber("s1", SHARED, 1), bench.subscriber("s2", SHARED, 1)
    for line in (first, second):
        line.send(Subscribe(2, [Subscription("$share/h/t", 1)]))
        bench.commit()
        line.cut()
    assert published(bench, bench.join("p"), 1) == 0
    assert waiting(first, second) == [(0, 1), (0, 1)]
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("overflow", [REJECT, DROP_OLDEST, DROP_NEWEST])
def test_a_member_that_does_not_read_and_has_room_comes_before_a_full_one(overflow: str) -> None:
    bench = Bench(EngineLimits(max_mqueue_len=2, mqueue_overflow=overflow, max_inflight=1))
    full, slow, other = [bench.subscriber(name, SHARED, 1) for name in ("s1", "s2", "s3")]
    slow.connection.link.wire_full()
    publisher = bench.join("p")
    assert [published(bench, publisher, number) for number in range(1, 9)] == [0] * 8
    assert waiting(full, slow, other) == [(1, 2), (0, 2), (1, 2)]
    assert sum(bench.server.drops.counts) == 0


def test_a_member_that_may_not_receive_makes_no_room() -> None:
    """Its empty queue is no reason to accept what the other one has no place for."""
    bench = Bench(EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT))
    barred, full = bench.subscriber("s1", SHARED, 1), bench.subscriber("s2", SHARED, 1)
    barred.session.permissions = Barred()
    barred.cut()
    full.cut()
    publisher = bench.join("p")
    assert [published(bench, publisher, number) for number in (1, 2)] == [0, FULL]
    assert waiting(barred, full) == [(0, 0), (0, 1)]


def test_what_is_handed_on_has_a_place_at_the_next() -> None:
    """It stays where it is rather than being dropped by a queue without room for it."""
    limits = EngineLimits(
        max_inflight=1, max_mqueue_len=0, max_mqueue_bytes=2000, mqueue_overflow=DROP_NEWEST
    )
    bench = Bench(limits)
    holder = bench.subscriber("s1", SHARED, 1)
    for _ in range(3):
        bench.publish("t", b"x" * 800)
    taker = bench.subscriber("s2", SHARED, 1)
    for _ in range(2):
        bench.publish("t", b"y" * 800)
    session = holder.session
    before = waiting(holder, taker)
    holder.cut()
    bench.commit()
    assert sum(bench.server.drops.counts) == 0
    assert session.window_length + session.queue_length + sum(waiting(taker)[0]) == 5, before


@pytest.mark.parametrize("there", [True, False])
def test_who_never_has_room_for_it_does_not_take_it_from_who_will_have(there: bool) -> None:
    """It was acknowledged, and dropped where it never fits: it is refused until it does."""
    small = EngineLimits(max_mqueue_bytes=500, mqueue_overflow=REJECT, max_inflight=1)
    large = EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT, max_inflight=1)
    bench = Bench(large, zones={"small": small})
    wish = Properties(session_expiry_interval=3600)
    first, _ = bench.connect(Connect("s1", 5, False, properties=wish), "small")
    first.send(Subscribe(1, [Subscription(SHARED, 1)]))
    second = bench.subscriber("s2", SHARED, 1)
    for line in (first, second):
        if not there:
            line.cut()
        elif line is first:
            line.connection.link.wire_full()
    publisher = bench.join("p")
    codes = [published(bench, publisher, number, 1000) for number in range(1, 4)]
    assert codes == ([0, 0, FULL] if there else [0, FULL, FULL])
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("busy", [False, True])
def test_what_a_member_may_not_receive_goes_on_to_one_that_may(qos: int, busy: bool) -> None:
    """Its body is in the log when it is handed on: that it may not have it is seen too late."""
    bench = Bench(EngineLimits())
    holder = bench.subscriber("s1", SHARED, 1)
    holder.cut()
    bench.commit()
    for _ in range(3):
        bench.publish("t", b"x")
    barred = bench.join("s2", durable=True, receive_maximum=1 if busy else None)
    if busy:  # QoS 0 passes the full window
        for _ in range(2):
            barred.session.deliver(Message("own", b"", 1), 1, False, (), False, bench.now)
    barred.session.permissions = Barred()
    barred.send(Subscribe(1, [Subscription(SHARED, qos)]))
    bench.commit()
    if busy:
        barred.session.permissions = None
        barred.send(Puback(PACKET_IDENTIFIERS))  # they are not in the log, and have no sequence
        barred.session.permissions = Barred()
        barred.send(Puback(PACKET_IDENTIFIERS - 1))
        bench.commit()
    assert sum(bench.server.drops.counts) == 0
    assert waiting(holder, barred) == [(0, 3), (0, 0)]
    commits = bench.server.effects.counters.commits
    for _ in range(3):  # nor does it come back again and again
        bench.pass_s(1)
        bench.commit()
    assert bench.server.effects.counters.commits == commits
    allowed = bench.subscriber("s3", SHARED, 1)
    assert waiting(holder, barred, allowed) == [(0, 0), (0, 0), (3, 0)]
    assert sum(bench.server.drops.counts) == 0


def test_what_nobody_may_receive_is_counted_once() -> None:
    bench = Bench(EngineLimits())
    holder = bench.subscriber("s1", SHARED, 1)
    holder.send(Subscribe(2, [Subscription("own", 1)]))
    holder.cut()
    bench.publish("t", b"x")
    holder.session.permissions = Barred()
    barred = bench.join("s2", durable=True)
    barred.session.permissions = Barred()
    barred.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert bench.server.drops.counts[drops.NO_PERMISSION] == 1
    assert sum(bench.server.drops.counts) == 1
    assert waiting(holder, barred) == [(0, 0), (0, 0)]


def test_what_was_in_flight_at_a_crash_keeps_its_size() -> None:
    """It had none, so it had room wherever it was handed on to."""
    limits = EngineLimits(
        max_inflight=2, max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=REJECT
    )
    bench = Bench(limits)
    bench.subscriber("s1", SHARED, 1)
    for _ in range(2):
        bench.publish("t", b"x" * 700)
    bench.commit()
    bench.restart()
    holder = bench.server.registry.sessions["s1"]
    assert [item.size_bytes for item in holder._window.undelivered()] == [765, 765]
    taker = bench.join("s2", durable=True)
    taker.send(Subscribe(1, [Subscription("own", 1)]))
    for _ in range(3):
        bench.publish("own", b"y" * 500)
    taker.send(Subscribe(2, [Subscription(SHARED, 1)]))
    bench.commit()
    assert taker.session.queue_bytes <= 1000
    assert (holder.window_length, holder.queue_length) == (2, 0)
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("blocking", ["$share/h/t", "$share/h/t/#"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_refused_is_nobodys_turn(strategy: str, blocking: str) -> None:
    """One group has room, another has not: however often it is tried, the first does not move."""

    def gets_it(times: int) -> list[tuple[int, int]]:
        limits = EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT)
        bench = Bench(limits, sharing=SharingOptions(strategy=strategy))
        lines = [bench.subscriber(f"s{number}", SHARED, 1) for number in range(5)]
        full = bench.subscriber("full", "other", 1)
        full.send(Subscribe(2, [Subscription(blocking, 1)]))
        full.cut()
        bench.publish("other", b"x")
        publisher = bench.join("p")
        for number in range(times):
            assert published(bench, publisher, number + 1) == FULL
        assert waiting(*lines) == [(0, 0)] * 5
        bench.join("full", durable=True)
        assert published(bench, publisher, 100) == 0
        return waiting(*lines)

    first = gets_it(0)
    assert [gets_it(times) for times in (1, 2, 3)] == [first] * 3


def test_what_is_handed_back_goes_where_it_is_kept() -> None:
    """The first that may have it would take it at QoS 0, and there is no memory for that."""
    bench = Bench(EngineLimits(qos0_bytes_max=1000))
    at_qos_0 = bench.subscriber("s0", SHARED, 0)
    at_qos_0.cut()
    filler = bench.subscriber("filler", "filled", 0)
    filler.cut()
    while bench.server.effects.kept.has_room_for_qos0():
        bench.publish_qos0("filled", b"x")
    holder = bench.subscriber("s1", SHARED, 1)
    kept = bench.subscriber("s2", SHARED, 1)
    kept.cut()
    message = Message("t", b"y", 1)
    delivery = Delivery(message, -1, 1)
    delivery.shared = Shared(SHARED, 1, False)
    assert bench.server.router.sharing.hand_back(holder.session, delivery, message, bench.now)
    assert waiting(at_qos_0, kept) == [(0, 0), (0, 1)]
    assert sum(bench.server.drops.counts) == 0
