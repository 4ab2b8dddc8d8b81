"""What clients leave behind has a bound for all of them together, and an answer beyond it."""

from typing import Any

import pytest

from penstock.engine.session.lane import HEAD_LEN_MAX, HEAD_LEN_MAX_OFFLINE
from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import SPILL, EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.pair import Pair, numbered, payloads

KIB = 1024
BODY = bytes(KIB)


def connect_code(bench: Bench, client_id: str, version: int = 5, will: bool = False) -> int:
    brings = Will("w", BODY) if will else None
    properties = Properties(session_expiry_interval=3600) if version == 5 else None
    connect = Connect(client_id, version, version == 5, 0, brings, properties=properties)
    return bench.connect(connect)[1].reason_code


def away(bench: Bench, count: int, topic_filter: str = "t") -> None:
    for number in range(count):
        bench.subscriber(f"s{number}", topic_filter, 0).cut()


# -- QoS 0 in queues ---------------------------------------------------------------------


def test_qos_0_in_all_queues_together_has_a_bound() -> None:
    """Twenty clients that are away, and a connection or two: finding 8, t12."""
    bench = Bench(EngineLimits(qos0_bytes_max=50 * KIB), streams=())
    for number in range(20):
        bench.subscriber(f"s{number}", f"t{number}", 0).cut()
    publisher = bench.join("p", 4)
    for number in range(20):
        for _ in range(10):
            publisher.send(Publish(f"t{number}", BODY))
    budget = bench.server.context.budget
    assert 50 * KIB <= budget.qos0_bytes < 52 * KIB
    waiting = sum(session.queue_length for session in bench.server.registry.sessions.values())
    assert bench.server.drops.counts[drop_reasons.MEMORY_FULL] == 200 - waiting > 0


def test_a_message_that_waits_in_many_queues_weighs_once() -> None:
    bench = Bench(EngineLimits(qos0_bytes_max=20 * KIB), streams=())
    away(bench, 20)
    bench.publish_qos0("t", BODY)
    waiting = [session.queue_length for session in bench.server.registry.sessions.values()]
    assert waiting == [1] * 20
    budget = bench.server.context.budget
    assert budget.qos0_bytes < 7 * KIB
    for number in range(20):
        assert budget.qos0_bytes > KIB, "it waits somewhere"
        bench.join(f"s{number}", durable=True)
    assert budget.qos0_bytes == 0


def test_a_message_that_the_log_has_weighs_little() -> None:
    bench = Bench(EngineLimits(qos0_bytes_max=20 * KIB), streams=("#",))
    away(bench, 1)
    for _ in range(50):
        bench.publish_qos0("t", BODY)
    assert bench.server.registry.sessions["s0"].queue_length == 50


def test_qos_1_has_room_when_qos_0_has_none() -> None:
    pair = Pair(EngineLimits(qos0_bytes_max=1))
    pair.line.cut()
    pair.publish(b"0", b"0", qos=0)
    pair.publish(b"1")
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.MEMORY_FULL] == 1
    assert payloads(pair.rejoin()) == [b"0", b"1"]


@pytest.mark.parametrize("way", ["sent", "ended", "displaced", "taken over", "trimmed"])
@pytest.mark.parametrize("streams", [(), ("#",)], ids=["memory", "log"])
def test_room_comes_back(way: str, streams: tuple[str, ...]) -> None:
    """However a message leaves its queue, nothing of it is counted any more."""
    limits = EngineLimits(max_mqueue_len=3)
    narrow = EngineLimits(max_mqueue_len=1, name="narrow")
    bench = Bench(limits, streams, limits_by_name={"narrow": narrow})
    budget = bench.server.context.budget
    topic_filter = "$share/g/t" if way == "taken over" else "t"
    away(bench, 1, topic_filter)
    for _ in range(3):
        bench.publish_qos0("t", BODY)
    bench.commit()
    full_bytes = budget.qos0_bytes
    assert full_bytes >= 3 * 256
    if way == "displaced":
        for _ in range(10):
            bench.publish_qos0("t", BODY)
        bench.commit()
        assert budget.qos0_bytes == full_bytes
    elif way == "taken over":
        other = bench.join("other")
        other.send(Subscribe(1, [Subscription(topic_filter, 0)]))
        bench.commit()
        bench.pass_s(1)
    elif way == "trimmed":
        properties = Properties(session_expiry_interval=3600)
        bench.connect(Connect("s0", 5, False, properties=properties), "narrow")
    if way == "ended":
        bench.join("s0", clean=True)
    else:
        bench.join("s0", durable=True)
    bench.commit()
    assert budget.qos0_bytes == 0


# -- queues that spill ---------------------------------------------------------------------


def test_spill_without_limits_bounds_what_the_log_does_not_hold() -> None:
    """Finding 8: with ``max_mqueue_len = 0`` nothing was ever full, and QoS 0 waited for ever."""
    limits = EngineLimits(max_mqueue_len=0, mqueue_overflow=SPILL)
    bench = Bench(limits, streams=())
    away(bench, 1)
    for _ in range(HEAD_LEN_MAX + 10):
        bench.publish_qos0("t", b"x")
    assert bench.server.registry.sessions["s0"].queue_length == HEAD_LEN_MAX
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 10


@pytest.mark.parametrize("crash", [False, True])
def test_spilled_queues_have_a_bound_together(crash: bool) -> None:
    limits = EngineLimits(max_mqueue_len=10, mqueue_overflow=SPILL, spilled_bytes_max=13 * 100)
    pair = Pair(limits)
    budget = pair.bench.server.context.budget
    pair.line.cut()
    pair.publish(*numbered(HEAD_LEN_MAX_OFFLINE + 120))
    pair.bench.commit()
    assert budget.packed_bytes == 13 * 100
    assert pair.bench.server.drops.counts[drop_reasons.MEMORY_FULL] == 20
    if crash:
        pair.bench.restart()
        budget = pair.bench.server.context.budget
        assert budget.packed_bytes == 13 * (HEAD_LEN_MAX_OFFLINE + 100), "all of it is taken up"
    line = pair.rejoin()
    received: list[bytes] = []
    while messages := publishes(line.read()):
        for message in messages:
            received.append(message.payload)
            line.send(
                Pubrec(message.packet_id, reasons.UNSPECIFIED_ERROR)
                if message.qos == 2
                else Puback(message.packet_id)
            )
        pair.bench.commit()
    assert received == numbered(HEAD_LEN_MAX_OFFLINE + 100)
    assert budget.packed_bytes == 0


def test_a_session_that_ends_gives_its_packed_queue_back() -> None:
    pair = Pair(EngineLimits(max_mqueue_len=0, max_inflight=5))
    pair.line.cut()
    pair.publish(*numbered(3000))
    pair.bench.commit()
    budget = pair.bench.server.context.budget
    assert budget.packed_bytes == 13 * (3000 - HEAD_LEN_MAX_OFFLINE)
    line = pair.rejoin()
    for message in publishes(line.read()):
        line.send(Puback(message.packet_id))
    line.cut()
    pair.bench.join("s", clean=True)
    assert budget.packed_bytes == 0


# -- sessions --------------------------------------------------------------------------------


def test_sessions_that_are_left_behind_have_a_bound() -> None:
    bench = Bench(EngineLimits(sessions_bytes_max=20 * KIB))
    codes = [connect_code(bench, f"c{number}") for number in range(7)]
    assert codes == [0] * 5 + [reasons.QUOTA_EXCEEDED] * 2
    assert connect_code(bench, "old", 4) == reasons.SERVER_UNAVAILABLE
    assert connect_code(bench, "c0") == 0, "whoever has one keeps it"
    assert bench.server.context.budget.sessions_refused == 3


def test_wills_count_also_while_they_are_delayed() -> None:
    bench = Bench(EngineLimits(sessions_bytes_max=20 * KIB))
    assert connect_code(bench, "c0") == 0
    will = Will("w", bytes(20 * KIB), properties=Properties(will_delay_interval=100))
    line = bench.join("c1", durable=True, will=will)
    assert connect_code(bench, "c2") == reasons.QUOTA_EXCEEDED
    line.cut()
    assert connect_code(bench, "c2") == reasons.QUOTA_EXCEEDED
    assert connect_code(bench, "c0", will=True) == reasons.QUOTA_EXCEEDED, "its session exists"
    bench.pass_s(101)
    bench.commit()
    assert connect_code(bench, "c0", will=True) == 0


def test_a_will_that_takes_the_place_of_its_own_needs_no_room_beside_it() -> None:
    """The client was kept from its own session, by what it had left there itself."""
    bench = Bench(EngineLimits(sessions_bytes_max=20 * KIB))
    will = Will("w", bytes(20 * KIB), properties=Properties(will_delay_interval=100))
    line = bench.join("c", durable=True, clean=False, will=will)
    for _ in range(2):  # delayed, and of a connection that is still there
        line.cut()
        line = bench.join("c", durable=True, clean=False, will=will)
        line = bench.join("c", durable=True, clean=False, will=will)
    assert connect_code(bench, "other", will=True) == reasons.QUOTA_EXCEEDED


def test_subscriptions_count_with_all_they_stand_in() -> None:
    bench = Bench(EngineLimits(sessions_bytes_max=40 * KIB))
    for version, code in ((5, reasons.QUOTA_EXCEEDED), (4, 0x80)):
        line = bench.join(f"c{version}", version, durable=True)
        deep = Subscription("/".join("abcdefghij" * 10), 0)
        line.send(Subscribe(1, [deep, Subscription("t", 0), deep]))
        bench.commit()
        assert line.read() == [Suback(1, [0, code, 0])]
        line.send(Unsubscribe(2, [deep.topic_filter]))
        bench.commit()
        line.read()
        line.send(Subscribe(3, [Subscription("t", 0)]))
        bench.commit()
        assert line.read() == [Suback(3, [0])]
        line.send(Unsubscribe(4, ["t"]))
        bench.commit()


def test_the_bytes_counted_are_the_same_after_a_restart_and_go_with_their_sessions() -> None:
    bench = Bench()
    will = Will("w", BODY, properties=Properties(will_delay_interval=1000))
    line = bench.join("c", durable=True, will=will)
    line.send(Subscribe(1, [Subscription("a/b", 0), Subscription("$share/g/c", 0)]))
    bench.commit()
    line.cut()
    bench.commit()
    before = bench.server.context.budget.sessions_bytes
    assert before > 4 * KIB + KIB
    bench.restart()
    assert bench.server.context.budget.sessions_bytes == before
    bench.join("c", 5, clean=True).cut()
    bench.commit()
    assert bench.server.context.budget.sessions_bytes == 0


# -- retained messages -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [{"retained_messages_max": 1}, {"retained_bytes_max": 2 * KIB}],
    ids=["count", "bytes"],
)
def test_a_retained_message_without_room_is_refused_where_that_can_be_told(
    limits: dict[str, Any],
) -> None:
    bench = Bench(EngineLimits(**limits))
    subscriber = bench.subscriber("s", "#", 0)
    line = bench.join("c")
    line.send(Publish("a", BODY, 1, True, packet_id=1), Publish("b", BODY, 1, True, packet_id=2))
    line.send(Publish("b", BODY, 2, True, packet_id=3), Publish("b", b"", 1, True, packet_id=4))
    bench.commit()
    full = reasons.QUOTA_EXCEEDED
    assert line.read() == [Puback(1), Puback(2, full), Pubrec(3, full), Puback(4)]
    assert [message.topic for message in publishes(subscriber.read())] == ["a", "b"]
    assert bench.server.drops.counts[drop_reasons.RETAINED_FULL] == 2
    old = bench.join("old", 4)
    old.send(Publish("b", BODY, 1, True, packet_id=1))
    bench.commit()
    assert old.read() == [Puback(1)]
    assert len(publishes(subscriber.read())) == 1, "delivered all the same"
    assert bench.server.drops.counts[drop_reasons.RETAINED_FULL] == 3
    assert [message.topic for message in bench.store.recover().retained] == ["a"]


def test_a_value_that_cannot_be_kept_leaves_no_older_one() -> None:
    bench = Bench(EngineLimits(retained_bytes_max=2 * KIB))
    bench.publish("a", b"old", 0, retain=True)
    bench.publish("a", bytes(3 * KIB), 0, retain=True)
    assert bench.server.router.retained.get("a") is None
    assert bench.server.router.retained.size_bytes == 0
    assert bench.store.recover().retained == []


def test_a_restart_keeps_what_is_above_a_smaller_bound() -> None:
    bench = Bench()
    for topic in ("a", "b", "c"):
        bench.publish(topic, BODY, 0, retain=True)
    size_bytes = bench.server.router.retained.size_bytes
    bench.limits = EngineLimits(retained_bytes_max=1, retained_messages_max=1)
    bench.restart()
    assert len(bench.server.router.retained) == 3
    assert bench.server.router.retained.size_bytes == size_bytes
    bench.publish("b", b"x", 0, retain=True)
    assert bench.server.router.retained.get("b") is None
