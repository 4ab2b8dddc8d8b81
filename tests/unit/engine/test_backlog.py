"""The message queue inside a session: overflow, priorities, spilling, and all of it durable."""

from typing import Any

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import DROP_NEWEST, DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes
from tests.unit.engine.pair import Pair, numbered, payloads

PRIORITIES = {"alarm/#": 200, "plant/+": 3}


def drain(bench: Bench, line: Line) -> list[bytes]:
    """All that comes, each acknowledged at once."""
    found: list[bytes] = []
    while messages := publishes(line.read()):
        for message in messages:
            found.append(message.payload)
            line.send(Puback(message.packet_id))
        bench.commit()
    return found


def test_drop_newest_keeps_what_came_first() -> None:
    pair = Pair(EngineLimits(max_mqueue_len=3, mqueue_overflow=DROP_NEWEST))
    pair.line.cut()
    pair.publish(*numbered(5))
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 2
    pair.bench.restart()
    assert payloads(pair.rejoin()) == numbered(3)


@pytest.mark.parametrize("overflow", [DROP_NEWEST, DROP_OLDEST, REJECT])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_acknowledgement_makes_room_for_what_comes_behind_it(
    version: int, overflow: str
) -> None:
    """In the same read; in MQTT 3.1 it is the PUBREL that publishes."""
    bench = Bench(EngineLimits(max_inflight=1, max_mqueue_len=1, mqueue_overflow=overflow))
    line = bench.join("s", version)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.read()
    bench.publish("t", b"0")
    bench.publish("t", b"1")
    (first,) = publishes(line.read())
    third = Publish("t", b"2", 2 if version == 3 else 1, packet_id=7)
    if version == 3:
        line.send(third)
        bench.commit()
        line.read()
        line.send(Puback(first.packet_id), Pubrel(7))
    else:
        line.send(Puback(first.packet_id), third)
    bench.commit()
    assert drain(bench, line) == [b"1", b"2"]
    assert sum(bench.server.drops.counts) == 0


def test_bytes_are_counted_anew_after_a_restart() -> None:
    pair = Pair(EngineLimits(max_mqueue_bytes=1000, max_inflight=1))
    pair.line.cut()
    pair.publish(*[b"x" * 200 for _ in range(3)])
    pair.bench.commit()
    pair.bench.restart()
    pair.publisher = pair.bench.join("p", 4)
    pair.publish(b"y" * 500)
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 2
    assert drain(pair.bench, pair.rejoin()) == [b"x" * 200, b"y" * 500]


def prioritised(max_len: int = 1000) -> tuple[Bench, Line]:
    limits = EngineLimits(
        mqueue_priorities=PRIORITIES, max_inflight=1, max_mqueue_len=max_len, mqueue_overflow=SPILL
    )
    bench = Bench(limits)
    line = bench.join("s", durable=True)
    line.send(Subscribe(1, [Subscription("#", 1)]))
    bench.commit()
    line.read()
    return bench, line


@pytest.mark.parametrize("crash", [False, True])
def test_priorities_are_sent_first_and_survive_a_crash(crash: bool) -> None:
    bench, line = prioritised()
    line.cut()
    for number, topic in enumerate(("t", "plant/1", "alarm/a", "t", "alarm/b", "plant/2")):
        bench.publish(topic, b"%d" % number)
    if crash:
        bench.restart()
    line = bench.join("s", durable=True)
    assert drain(bench, line) == [b"2", b"4", b"1", b"5", b"0", b"3"]
    number = line.session.number
    recovered = bench.store.recover()
    assert recovered.segments.get(number, []) == []
    bench.publish("plant/1", b"on")
    line.cut()
    bench.publish("plant/1", b"off")
    bench.restart()
    line = bench.join("s", durable=True)
    assert drain(bench, line) == [b"on", b"off"]


def test_priorities_are_those_of_the_zone_the_session_comes_back_through() -> None:
    """For what arrives from then on, also while it is away again."""
    ranked = EngineLimits(mqueue_priorities=PRIORITIES, max_inflight=1, name="ranked")
    bench = Bench(EngineLimits(max_inflight=1), limits_by_name={"ranked": ranked})
    bench.subscriber("s", "#", 1).cut()
    again = Connect("s", 5, False, 0, properties=Properties(session_expiry_interval=3600))
    bench.connect(again, "ranked")[0].cut()
    for number, topic in enumerate(("t", "plant/1", "alarm/a")):
        bench.publish(topic, b"%d" % number)
    line, _ = bench.connect(again, "ranked")
    assert drain(bench, line) == [b"2", b"1", b"0"]


def test_a_message_that_left_a_lane_does_not_come_back_after_a_crash() -> None:
    """The alarms were delivered, and what has no priority still waits."""
    bench, line = prioritised()
    line.cut()
    for number, topic in enumerate(("t", "alarm/a", "t", "alarm/b")):
        bench.publish(topic, b"%d" % number)
    line = bench.join("s", durable=True)
    for _ in range(2):
        (message,) = publishes(line.read())
        line.send(Puback(message.packet_id))
        bench.commit()
    bench.restart()
    assert drain(bench, bench.join("s", durable=True)) == [b"0", b"2"]


@pytest.mark.parametrize("crash", [False, True])
def test_a_spilled_queue_has_no_limit_and_comes_back_whole(crash: bool) -> None:
    """Also what waited packed, in several segments, and half of it already sent."""
    limits = EngineLimits(max_mqueue_len=10, mqueue_overflow=SPILL, max_inflight=100)
    pair = Pair(limits)
    pair.line.cut()
    bodies = numbered(6000)
    for first in range(0, 6000, 1500):
        pair.publish(*bodies[first : first + 1500])
        pair.bench.commit()
    line = pair.rejoin()
    received: list[bytes] = []
    for _ in range(20):
        for message in publishes(line.read()):
            received.append(message.payload)
            line.send(Puback(message.packet_id))
        pair.bench.commit()
    assert len(received) == 2000
    assert sum(pair.bench.server.drops.counts) == 0
    if crash:
        pair.bench.restart()
    else:
        line.cut()
        pair.bench.commit()
    received += drain(pair.bench, pair.rejoin())
    assert list(dict.fromkeys(received)) == bodies
    assert pair.bench.store.recover().segments.get(line.session.number, []) == []


@pytest.mark.parametrize("larger", [{"mqueue_overflow": SPILL}, {"max_mqueue_len": 100}])
def test_a_restart_keeps_what_the_zone_of_the_session_has_room_for(larger: dict[str, Any]) -> None:
    limits_by_name = {"inside": EngineLimits(**{"max_mqueue_len": 3, "name": "inside", **larger})}
    bench = Bench(EngineLimits(max_mqueue_len=3), limits_by_name=limits_by_name)
    line, _ = bench.connect(Connect("s", 4, False), "inside")
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.cut()
    for body in numbered(10):
        bench.publish("t", body)
    bench.restart()
    bench.publish("t", b"after")
    bench.commit()
    bench.restart()  # a second one, with nothing of the client in between
    line, connack = bench.connect(Connect("s", 4, False), "inside")
    assert connack.session_present
    assert drain(bench, line) == [*numbered(10), b"after"]
    assert sum(bench.server.drops.counts) == 0


def test_a_restart_drops_nothing_of_a_zone_that_is_gone() -> None:
    """What may wait from then on is bounded as for the broker; what is there stays till then."""
    bench = Bench(EngineLimits(max_mqueue_len=3), limits_by_name={"old": EngineLimits(name="old")})
    line, _ = bench.connect(Connect("s", 4, False), "old")
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.cut()
    for body in numbered(10):
        bench.publish("t", body)
    bench.limits_by_name = {"new": EngineLimits(name="new")}
    bench.restart()
    line, _ = bench.connect(Connect("s", 4, False), "new")
    assert drain(bench, line) == numbered(10)
    assert sum(bench.server.drops.counts) == 0


def test_after_a_restart_a_zone_that_rejects_still_does() -> None:
    limits_by_name = {
        "inside": EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT, name="inside")
    }
    bench = Bench(limits_by_name=limits_by_name)
    line, _ = bench.connect(Connect("s", 4, False), "inside")
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.cut()
    bench.publish("t", b"0")
    bench.publish("t", b"1")
    bench.restart()
    publisher = bench.join("p", 5)
    publisher.send(Publish("t", b"2", 1, packet_id=1))
    bench.commit()
    assert publisher.read() == [Puback(1, reasons.QUOTA_EXCEEDED)]


@pytest.mark.parametrize("streams", [(), ("#",)])
def test_qos_0_does_not_wait_for_the_window(streams: tuple[str, ...]) -> None:
    """Seed 000: QoS 0 bypasses the window, also what came while the client was away, whether its
    body is in memory or in the log. Each QoS keeps its order [MQTT-4.6.0-6]."""
    bench = Bench(EngineLimits(max_inflight=1), streams)
    bench.subscriber("s", "t", 1).cut()
    for body in numbered(3):
        bench.publish("t", body)
    bench.publish("t", b"away 0", 0)
    bench.publish("t", b"away 1", 0)
    line = bench.join("s", durable=True)
    bench.commit()
    assert payloads(line) == [b"0", b"away 0", b"away 1"]
    bench.publish("t", b"now", 0)
    assert payloads(line) == [b"now"]
    line.send(Puback(1))
    bench.commit()
    assert drain(bench, line) == [b"1", b"2"]
    assert line.session.queue_length == 0
    assert sum(bench.server.drops.counts) == 0


def test_retained_qos_0_does_not_wait_for_the_window() -> None:
    bench = Bench(EngineLimits(max_inflight=1))
    bench.publish("r", b"retained", 0, retain=True)
    bench.subscriber("s", "t", 1).cut()
    for body in numbered(3):
        bench.publish("t", body)
    bench.publish("t", b"away", 0)
    line = bench.join("s", durable=True)
    line.send(Subscribe(2, [Subscription("r", 0)]))
    bench.commit()
    assert payloads(line) == [b"0", b"away", b"retained"]


def test_qos_0_past_retention_is_counted_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(EngineLimits(max_inflight=1))
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"0")
    bench.publish("t", b"1")
    bench.publish("t", b"away", 0)
    end = bench.store.log_extent().end
    bodies = bench.store.read(range(end))
    del bodies[end - 1]
    monkeypatch.setattr(
        bench.store,
        "read",
        lambda offsets: {offset: bodies[offset] for offset in offsets if offset in bodies},
    )
    line = bench.join("s", durable=True)
    bench.commit()
    assert payloads(line) == [b"0"]
    assert bench.server.drops.counts[drop_reasons.RETENTION] == 1
    line.send(Puback(1))
    bench.commit()
    assert payloads(line) == [b"1"]
    assert bench.server.drops.counts[drop_reasons.RETENTION] == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_place_that_qos_0_gives_up_is_taken_by_who_waits_for_it(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body came from the log, or is past retention."""
    bench = Bench(EngineLimits(max_inflight=1, max_mqueue_len=2, mqueue_overflow=REJECT))
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"0")
    bench.join("s", durable=True).cut()
    bench.publish("t", b"1")
    bench.publish("t", b"away", 0)
    publisher = bench.join("p", 4)
    publisher.send(Publish("t", b"2", 1, packet_id=2))
    bench.commit()
    assert publisher.read() == []
    if not kept:
        bodies = bench.store.read([0])
        monkeypatch.setattr(bench.store, "read", lambda _: bodies)
    bench.join("s", durable=True)
    bench.commit()
    assert publisher.read() == [Puback(2)]


def test_spilled_qos_0_is_bounded() -> None:
    pair = Pair(EngineLimits(max_mqueue_len=10, mqueue_overflow=SPILL))
    pair.line.cut()
    pair.publish(*numbered(20), qos=0)
    pair.publish(b"one")
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 10
    assert payloads(pair.rejoin()) == [*numbered(10), b"one"]


def test_an_online_client_that_is_slow_gets_all_in_order() -> None:
    """More waits than the head of the queue holds in memory, while the client is connected."""
    pair = Pair(EngineLimits(max_mqueue_len=0, max_inflight=10))
    bodies = numbered(5000)
    for first in range(0, 5000, 1000):
        pair.publish(*bodies[first : first + 1000])
        pair.bench.commit()
    assert drain(pair.bench, pair.line) == bodies


def test_the_store_keeps_what_the_queue_needs() -> None:
    """The lowest offset counts every lane and what is packed."""
    bench, line = prioritised()
    line.cut()
    for topic in ("t", "alarm/a"):
        bench.publish(topic, b"x")
    end = bench.server.context.batch.next_offset
    assert bench.server.lowest_needed_offset(end) == end - 2
    line = bench.join("s", durable=True)
    (message,) = publishes(line.read())
    assert isinstance(message, Publish)
    line.send(Puback(message.packet_id))
    bench.commit()
    assert bench.server.lowest_needed_offset(end) == end - 2


def test_a_full_queue_is_counted() -> None:
    pair = Pair(EngineLimits(max_mqueue_len=3))
    pair.line.cut()
    pair.publish(*numbered(5))
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 2
    pair.bench.restart()
    assert payloads(pair.rejoin()) == numbered(5)[2:]


def test_a_queue_that_is_too_long_for_a_new_limit_is_counted() -> None:
    pair = Pair(EngineLimits(max_mqueue_len=5))
    pair.line.cut()
    pair.publish(*numbered(5))
    pair.bench.commit()
    pair.bench.limits = EngineLimits(max_mqueue_len=2)
    pair.bench.restart()
    assert (
        pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 0
    )  # not before it holds: on attach
    assert payloads(pair.rejoin()) == numbered(5)[3:]
    assert pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 3


def test_messages_that_an_ended_session_held_are_counted() -> None:
    pair = Pair(EngineLimits(max_inflight=2))
    pair.publish(b"has it", qos=2)
    pair.publish(b"window", b"queue")
    pair.bench.commit()
    pair.line.send(Pubrec(1))
    pair.line.send(Disconnect(0, Properties(session_expiry_interval=0)))
    assert pair.bench.server.drops.counts[drop_reasons.SESSION_ENDED] == 2
