"""What is shared waits in lanes of its own: handing it on costs what is handed on."""

from __future__ import annotations

import pytest

from penstock.engine import drop_counts
from penstock.engine.effects import Commit
from penstock.engine.kept import PACKED_BYTES
from penstock.engine.limits import EngineLimits
from penstock.engine.message import Message
from penstock.engine.shared_lanes import SLOTS
from penstock.protocol.packets import Connect, Puback, Subscribe, Subscription
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

SHARED = "$share/g/t"
MANY = 2000


def holder_of(bench: Bench, *filters: str) -> Line:
    """A client that is away, with subscriptions of its own and shared ones."""
    line = bench.subscriber("holder", "own", 1)
    for first in range(0, len(filters), 100):
        some = [Subscription(name, 1) for name in filters[first : first + 100]]
        line.send(Subscribe(2, some))
        bench.commit()
    line.cut()
    bench.commit()
    return line


def publish(bench: Bench, topic: str, number: int) -> None:
    message = Message(topic, str(number).encode(), 1, False, "p", bench.now.wall_us)
    bench.server.router.publish(message, None, bench.now)


def mixed_queue(bench: Bench, count: int) -> None:
    """Own and shared messages in turn, stored."""
    for number in range(count):
        publish(bench, "t" if number % 2 else "own", number)
        if number % 500 == 499:
            bench.finish(bench.seal())
    bench.commit()


def got(line: Line) -> list[int]:
    return [int(packet.payload) for packet in publishes(line.read())]


def acknowledge_all(bench: Bench, line: Line) -> list[int]:
    """Answer until nothing comes any more; what came."""
    seen: list[int] = []
    while packets := publishes(line.read()):
        seen.extend(int(packet.payload) for packet in packets)
        line.send(*[Puback(packet.packet_id) for packet in packets])
        bench.commit()
        bench.pass_s(1)
        bench.commit()
    return seen


def stored_anew(commit: Commit, line: Line) -> int:
    """Deliveries that were waiting at ``line`` and are written once more."""
    return sum(
        len(run)
        for progress in commit.progress
        if progress.number == line.session.number
        for run in progress.segments
    )


def test_what_stays_is_neither_stored_again_nor_looked_at() -> None:
    """The whole queue was, for every window of acknowledgements."""
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=())
    holder = holder_of(bench, SHARED)
    mixed_queue(bench, MANY)
    helper = bench.join("helper", durable=True, receive_maximum=20)
    counters = bench.server.effects.counters
    before = counters.shared_looked_at
    helper.send(Subscribe(1, [Subscription(SHARED, 1)]))
    written = 0
    seen: list[int] = []
    for _ in range(200):
        bench.turns()
        bench.write_ready()
        commit = bench.seal()
        written += stored_anew(commit, holder)
        bench.finish(commit)
        packets = publishes(helper.read())
        seen.extend(int(packet.payload) for packet in packets)
        if packets:
            helper.send(*[Puback(packet.packet_id) for packet in packets])
    assert seen == list(range(1, MANY, 2))
    assert written == 0
    assert counters.shared_looked_at - before < 3 * MANY
    back = bench.join("holder", durable=True)
    bench.commit()
    assert acknowledge_all(bench, back) == list(range(0, MANY, 2))


def test_a_crash_in_the_middle_of_handing_on_loses_nothing_and_repeats_nothing() -> None:
    zones = {"small": EngineLimits(max_mqueue_len=20, max_inflight=5)}
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=(), zones=zones)
    holder = holder_of(bench, SHARED, "$share/h/t")
    mixed_queue(bench, 200)
    wish = Properties(session_expiry_interval=3600)
    helper, _ = bench.connect(Connect("helper", properties=wish), "small")
    helper.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert 0 < 300 - holder.session.queue_length < 100
    seen = got(helper)
    bench.restart()
    back = bench.join("holder", durable=True)
    bench.commit()
    rest = acknowledge_all(bench, back)
    helper = bench.join("helper", durable=True)
    bench.commit()
    rest += acknowledge_all(bench, helper)
    assert set(seen) <= set(rest)  # sent again: not acknowledged
    twice = list(range(1, 200, 2)) * 2  # of each group one
    assert sorted(rest) == sorted([*range(0, 200, 2), *twice])


def test_messages_of_all_lanes_come_in_the_order_of_the_log() -> None:
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=())
    holder_of(bench, SHARED)
    mixed_queue(bench, 300)
    for _ in range(2):
        back = bench.join("holder", durable=True, receive_maximum=10)
        bench.commit()
        assert got(back) == list(range(10))
        bench.restart()
    back = bench.join("holder", durable=True)
    bench.commit()
    assert acknowledge_all(bench, back) == list(range(300))


def test_the_oldest_of_all_lanes_goes_for_a_new_one() -> None:
    bench = Bench(EngineLimits(max_mqueue_len=10), streams=())
    holder_of(bench, SHARED)
    mixed_queue(bench, 37)
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 27
    back = bench.join("holder", durable=True)
    bench.commit()
    assert acknowledge_all(bench, back) == list(range(27, 37))


def test_priorities_hold_for_what_is_shared() -> None:
    limits = EngineLimits(mqueue_priorities={"t": 7}, mqueue_default_priority=3)
    bench = Bench(limits, streams=())
    holder_of(bench, SHARED, "$share/g/low")
    for number in range(4):
        publish(bench, "low", 10 * number)
        publish(bench, "own", 10 * number + 1)
        publish(bench, "t", 10 * number + 2)
    bench.commit()
    bench.restart()
    back = bench.join("holder", durable=True)
    bench.commit()
    assert acknowledge_all(bench, back) == [2, 12, 22, 32, 0, 1, 10, 11, 20, 21, 30, 31]


@pytest.mark.parametrize("crash", [False, True])
def test_what_has_no_slot_is_handed_on_all_the_same(crash: bool) -> None:
    """More groups than slots, as in the queue that an older Penstock stored."""
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=())
    names = [f"$share/g{number}/t{number}" for number in range(SLOTS + 3)]
    holder_of(bench, *names)
    for number in range(SLOTS + 3):
        publish(bench, "own", 1000 + number)
        publish(bench, f"t{number}", number)
    bench.commit()
    if crash:
        bench.restart()
    helper = bench.join("helper", durable=True)
    helper.send(Subscribe(1, [Subscription(name, 1) for name in names[-10:]]))
    bench.commit()
    assert sorted(acknowledge_all(bench, helper)) == list(range(SLOTS - 7, SLOTS + 3))
    if crash:
        bench.restart()
    back = bench.join("holder", durable=True)
    bench.commit()
    rest = acknowledge_all(bench, back)
    assert [number for number in rest if number >= 1000] == list(range(1000, 1000 + SLOTS + 3))
    assert sorted(number for number in rest if number < 1000) == list(range(SLOTS - 7))


def test_a_slot_serves_another_group_when_it_is_empty() -> None:
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=())
    names = [f"$share/g{number}/t{number}" for number in range(2 * SLOTS)]
    holder_of(bench, *names)
    publish(bench, "own", 1000)
    for first in (0, SLOTS):
        for number in range(first, first + SLOTS):
            publish(bench, f"t{number}", number)
        bench.commit()
        helper = bench.join("helper", durable=True)
        helper.send(Subscribe(1, [Subscription(name, 1) for name in names]))
        counters = bench.server.effects.counters
        before = counters.shared_looked_at
        bench.commit()
        assert sorted(acknowledge_all(bench, helper)) == list(range(first, first + SLOTS))
        assert counters.shared_looked_at - before < 4 * SLOTS  # nobody looked at what is mixed
        helper.cut()
        bench.commit()


def test_what_is_handed_on_twice_keeps_its_priority() -> None:
    limits = EngineLimits(mqueue_priorities={"t": 7})
    bench = Bench(limits, streams=())
    holder_of(bench, SHARED)
    mixed_queue(bench, 40)
    for name in ("one", "two"):
        line = bench.join(name, durable=True, receive_maximum=1)
        line.send(Subscribe(1, [Subscription("own", 1)]))
        bench.commit()
        line.send(Subscribe(2, [Subscription(SHARED, 1)]))
        bench.commit()
        bench.pass_s(1)
        bench.commit()
        publish(bench, "own", 1000)
        bench.commit()
        line.cut()
        bench.commit()
    back = bench.join("two", durable=True)
    bench.commit()
    assert acknowledge_all(bench, back)[-1] == 1000
    assert sum(bench.server.drops.counts) == 0


def test_what_is_too_large_for_others_does_not_hold_up_the_rest() -> None:
    zones = {"small": EngineLimits(max_mqueue_bytes=500)}
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=(), zones=zones)
    holder = holder_of(bench, SHARED)
    for number in range(100):
        message = Message("t", b"%08d" % number + b"x" * (1000 if number < 90 else 1), 1)
        bench.server.router.publish(message, None, bench.now)
    bench.commit()
    helper, _ = bench.connect(Connect("helper"), "small")
    helper.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    seen: list[int] = []
    for _ in range(10):
        packets = publishes(helper.read())
        seen.extend(int(packet.payload[:8]) for packet in packets)
        helper.send(*[Puback(packet.packet_id) for packet in packets])
        bench.pass_s(1)
        bench.commit()
    assert seen == list(range(90, 100))
    assert holder.session.queue_length == 90
    bench.restart()
    assert holder.session.queue_length == 90


def test_what_is_taken_from_behind_what_stays_stores_no_more_than_a_segment_anew() -> None:
    """All that stayed was unpacked and stored anew, for each message handed on."""
    zones = {"small": EngineLimits(max_mqueue_len=0, max_mqueue_bytes=2000)}
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=(), zones=zones)
    holder = holder_of(bench, SHARED)
    bench.server.router.publish(Message("t", b"x" * 2000, 1, False, "p", 1), None, bench.now)
    for number in range(1, 5 * MANY):
        publish(bench, "t", number)
        if number % 100 == 0:
            bench.finish(bench.seal())
    bench.commit()
    packed_bytes = bench.server.effects.kept.packed_bytes
    assert packed_bytes > 4 * MANY * PACKED_BYTES
    wish = Properties(session_expiry_interval=3600)
    helper, _ = bench.connect(Connect("helper", properties=wish), "small")
    helper.send(Subscribe(1, [Subscription(SHARED, 1)]))
    seen: list[int] = []
    for _ in range(10):
        commit = bench.seal()
        assert stored_anew(commit, holder) <= 200  # what two segments may have left
        bench.finish(commit)
        bench.commit()
        packets = publishes(helper.read())
        assert packets
        seen.extend(int(packet.payload) for packet in packets)
        helper.send(*[Puback(packet.packet_id) for packet in packets])
    bench.commit()
    assert packed_bytes - bench.server.effects.kept.packed_bytes < PACKED_BYTES * 1100
    bench.restart()
    back = bench.join("holder", durable=True)
    bench.commit()
    numbers: list[int] = []
    large = 0
    while packets := publishes(back.read()):
        large += sum(len(packet.payload) == 2000 for packet in packets)
        numbers += [int(packet.payload) for packet in packets if len(packet.payload) < 2000]
        back.send(*[Puback(packet.packet_id) for packet in packets])
        bench.commit()
    assert large == 1
    assert sorted(seen + numbers) == list(range(1, 5 * MANY))
