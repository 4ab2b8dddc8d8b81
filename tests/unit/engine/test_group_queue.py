"""The queue of a shared subscription: its room, its bounds and its order."""

from __future__ import annotations

import pytest

from penstock.engine.session.outlet import Outlet
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Permissions
from penstock.engine.values.limits import DROP_NEWEST, DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.values.options import STRATEGIES, SharingOptions
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes
from tests.unit.engine.group import SHARED as GROUP
from tests.unit.engine.group import acknowledge, got, member, publish, queued

SHARED = "$share/g/t"
FULL = reasons.QUOTA_EXCEEDED


class Barred(Permissions):
    """Of somebody who may receive nothing."""

    def may_receive(self, topic: str) -> bool:
        """No."""
        del topic
        return False


class Without(Permissions):
    """Of somebody who may receive all but one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def may_receive(self, topic: str) -> bool:
        """Unless it is that one."""
        return topic != self.topic


def published(bench: Bench, line: Line, number: int, size: int = 1) -> int:
    """The reason code a message of ``size`` bytes is answered with."""
    line.send(Publish("t", b"x" * size, 1, packet_id=number))
    bench.commit()
    (answer,) = line.read()
    assert isinstance(answer, Puback)
    return answer.reason_code


def waiting(*lines: Line) -> list[int]:
    """Messages in the window of each; in the queues of members there are none."""
    assert all(line.session.queue_length == 0 for line in lines)
    return [line.session.window_length for line in lines]


def waiting_for(bench: Bench, name: str = SHARED) -> int:
    """Messages that wait for the group."""
    return bench.server.router.sharing.groups[name].queue.queue_length


def test_bytes_are_asked_for_with_the_size_of_the_message() -> None:
    """The queue has the room of both members."""
    bench = Bench(EngineLimits(max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=REJECT))
    for name in ("s1", "s2"):
        bench.subscriber(name, SHARED, 1).cut()
    publisher = bench.join("p")
    codes = [published(bench, publisher, number, 435) for number in range(1, 6)]
    assert codes == [0, 0, 0, 0, FULL]
    assert published(bench, publisher, 6, 2000) == 0  # never fits: would be refused for ever
    assert sum(bench.server.drops.counts) == bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_each_group_has_places_of_its_own(qos: int) -> None:
    """Also where the same client is in all of them, and its own queue is full."""
    bench = Bench(EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT, max_inflight=1))
    away = bench.subscriber("s", "own", qos)
    away.send(Subscribe(2, [Subscription(SHARED, qos), Subscription("$share/h/t", qos)]))
    bench.commit()
    away.cut()
    bench.publish("own", b"x")
    publisher = bench.join("p")
    assert [published(bench, publisher, number) for number in (1, 2)] == [0, FULL]
    assert (waiting_for(bench), waiting_for(bench, "$share/h/t")) == (1, 1)
    back = bench.join("s", durable=True)
    assert waiting(back) == [1]
    assert published(bench, publisher, 3) == FULL
    assert sum(bench.server.drops.counts) == 0


def test_a_message_that_was_not_refused_has_its_place_in_each_group() -> None:
    """The one member has a place for one of the copies, and both queues are full."""
    limits = EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT, max_inflight=1)
    bench = Bench(limits)
    barred = bench.subscriber("barred", SHARED, 1)
    barred.send(Subscribe(2, [Subscription("$share/h/t", 1)]))
    barred.cut()
    bench.publish("t", b"full")
    free = bench.join("free", durable=True)
    free.session.transmission.outlet = Outlet(Barred())
    free.send(Subscribe(2, [Subscription(SHARED, 1), Subscription("$share/h/t", 1)]))
    bench.commit()
    bench.publish("t", b"full")  # the queues have two places now
    free.session.transmission.outlet = None
    publisher = bench.join("p")
    assert published(bench, publisher, 1) == 0
    assert waiting(free) == [1]
    assert (waiting_for(bench), waiting_for(bench, "$share/h/t")) in ((2, 3), (3, 2))
    assert published(bench, publisher, 2) == FULL
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("overflow", [REJECT, DROP_OLDEST, DROP_NEWEST])
def test_a_member_that_does_not_read_takes_nothing(overflow: str) -> None:
    bench = Bench(EngineLimits(max_mqueue_len=2, mqueue_overflow=overflow, max_inflight=1))
    full, slow, other = [bench.subscriber(name, SHARED, 1) for name in ("s1", "s2", "s3")]
    slow.connection.link.mark_socket_full()
    publisher = bench.join("p")
    assert [published(bench, publisher, number) for number in range(1, 9)] == [0] * 8
    assert waiting(full, slow, other) == [1, 0, 1]
    assert waiting_for(bench) == 6
    assert sum(bench.server.drops.counts) == 0
    answer = published(bench, publisher, 9)
    assert answer == (FULL if overflow == REJECT else 0)
    assert sum(bench.server.drops.counts) == (overflow != REJECT)


@pytest.mark.parametrize(
    ("policies", "what"),
    [
        ((REJECT, REJECT), REJECT),
        ((REJECT, DROP_NEWEST), DROP_NEWEST),
        ((DROP_NEWEST, DROP_OLDEST), DROP_OLDEST),
        ((DROP_OLDEST, SPILL, REJECT), SPILL),
    ],
)
def test_the_policy_of_a_full_queue_follows_from_all_members(
    policies: tuple[str, ...], what: str
) -> None:
    limits_by_name = {
        f"z{number}": EngineLimits(max_mqueue_len=1, mqueue_overflow=policy, name=f"z{number}")
        for number, policy in enumerate(policies)
    }
    bench = Bench(EngineLimits(mqueue_overflow=REJECT), limits_by_name=limits_by_name)
    wish = Properties(session_expiry_interval=3600)
    for limits_name in limits_by_name:
        line, _ = bench.connect(Connect(limits_name, properties=wish), limits_name)
        line.send(Subscribe(1, [Subscription(SHARED, 1)]))
        bench.commit()
        line.cut()
    publisher = bench.join("p")
    count = len(policies)
    assert [published(bench, publisher, 1 + number) for number in range(count)] == [0] * count
    assert published(bench, publisher, 9, 2) == (FULL if what == REJECT else 0)
    assert waiting_for(bench) == count + (what == SPILL)
    assert sum(bench.server.drops.counts) == (what in (DROP_OLDEST, DROP_NEWEST))
    back, _ = bench.connect(Connect("z0", 5, False, properties=wish), "z0")
    sizes = [len(packet.payload) for packet in publishes(back.read())]
    assert sizes[-1] == (2 if what in (DROP_OLDEST, SPILL) else 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_a_member_may_not_receive_waits_for_one_that_may(qos: int) -> None:
    """Others take what is behind it, and nothing is looked at again and again."""
    bench = Bench(EngineLimits())
    holder = bench.subscriber("s1", "$share/g/+", 1)
    holder.cut()
    bench.commit()
    for topic in ("secret", "secret", "t", "secret"):
        bench.publish(topic, topic.encode())
    barred = bench.join("s2", durable=True)
    barred.session.transmission.outlet = Outlet(Without("secret"))
    barred.send(Subscribe(1, [Subscription("$share/g/+", qos)]))
    bench.commit()
    assert [packet.payload for packet in publishes(barred.read())] == [b"t"]
    assert waiting_for(bench, "$share/g/+") == 3
    commits = bench.server.context.turn.counters.commits
    for _ in range(3):
        bench.pass_s(1)
        bench.commit()
    assert bench.server.context.turn.counters.commits == commits
    bench.publish("t", b"t")
    assert [packet.payload for packet in publishes(barred.read())] == [b"t"]
    bench.restart()
    allowed = bench.subscriber("s3", "$share/g/+", 1)
    assert waiting_for(bench, "$share/g/+") == 0
    assert allowed.session.window_length == (3 if qos == 0 else 5)
    assert sum(bench.server.drops.counts) == 0


def test_a_message_that_nobody_may_receive_is_counted_once() -> None:
    bench = Bench(EngineLimits())
    holder = bench.subscriber("s1", SHARED, 1)
    holder.send(Subscribe(2, [Subscription("own", 1)]))
    holder.cut()
    bench.publish("t", b"x")
    holder.session.transmission.outlet = Outlet(Barred())
    barred = bench.join("s2", durable=True)
    barred.session.transmission.outlet = Outlet(Barred())
    barred.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1
    assert sum(bench.server.drops.counts) == 1
    assert waiting(holder, barred) == [0, 0]
    assert waiting_for(bench) == 0


def test_messages_in_flight_at_a_crash_keep_their_size() -> None:
    """It goes to the front of the queue whatever the bounds, and counts there."""
    limits = EngineLimits(
        max_inflight=2, max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=REJECT
    )
    bench = Bench(limits)
    bench.subscriber("s1", SHARED, 1)
    for _ in range(2):
        bench.publish("t", b"x" * 700)
    bench.commit()
    bench.restart()
    queue = bench.server.router.sharing.groups[SHARED].queue
    assert (queue.queue_length, queue.backlog.queue_bytes) == (2, 2 * 765)
    assert published(bench, bench.join("p"), 1) == FULL
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("blocking", ["$share/h/+", "$share/h/#"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_refused_message_is_nobodys_turn(strategy: str, blocking: str) -> None:
    """One group has room, another has not: however often it is tried, the first does not move."""

    def gets_it(times: int) -> list[int]:
        limits = EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT)
        bench = Bench(limits, sharing=SharingOptions(strategy=strategy))
        lines = [bench.subscriber(f"s{number}", SHARED, 1) for number in range(5)]
        full = bench.subscriber("full", "other", 1)
        full.send(Subscribe(2, [Subscription(blocking, 1)]))
        bench.commit()
        full.cut()
        bench.publish("other", b"x")
        publisher = bench.join("p")
        for number in range(times):
            assert published(bench, publisher, number + 1) == FULL
        assert waiting(*lines) == [0] * 5
        bench.join("full", durable=True)
        assert published(bench, publisher, 100) == 0
        return waiting(*lines)

    first = gets_it(0)
    assert [gets_it(times) for times in (1, 2, 3)] == [first] * 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_messages_that_no_member_takes_at_once_wait_within_the_bounds_of_all_members(
    strategy: str,
) -> None:
    limits = EngineLimits(max_mqueue_len=1)
    bench = Bench(limits, sharing=SharingOptions(strategy=strategy))
    away, online = member(bench, "m1"), member(bench, "m2", window=1)
    away.cut()
    publish(bench, 3)
    assert (online.session.window_length, queued(bench)) == (1, 2)
    assert away.session.queue_length == online.session.queue_length == 0
    assert sum(bench.server.drops.counts) == 0
    publish(bench, 1, first=3)
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 1
    online.send(Unsubscribe(2, [GROUP]))  # less room, and nothing is dropped for it
    bench.commit()
    assert queued(bench) == 2
    assert sum(bench.server.drops.counts) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_connected(strategy: str) -> None:
    """It waits, and whoever comes back first gets it."""
    bench = Bench(sharing=SharingOptions(strategy=strategy))
    members = [member(bench, f"m{number}") for number in range(3)]
    for line in members:
        line.cut()
    publish(bench, 9)
    assert queued(bench) == 9
    back = bench.join("m1", durable=True)
    bench.commit()
    assert got(back) == list(range(9))


@pytest.mark.parametrize("strategy", ["hash_client", "hash_topic"])
def test_by_hash_a_member_without_room_holds_up_its_own_messages_only(strategy: str) -> None:
    bench = Bench(sharing=SharingOptions(strategy=strategy))
    lines = [member(bench, f"m{number}", window=1) for number in range(3)]
    sources = [bench.join(f"source{number}") for number in range(8)]
    for count in range(6):
        for number, source in enumerate(sources):
            payload = str(number * 100 + count).encode()
            source.send(Publish(f"t/{number}", payload, 1, packet_id=1 + count))
        bench.commit()
    stuck, *others = lines
    got(stuck)
    seen: dict[int, list[int]] = {}
    for _ in range(100):
        for place, line in enumerate(others):
            packets = publishes(line.read())
            seen.setdefault(place, []).extend(int(packet.payload) for packet in packets)
            acknowledge(bench, line, packets)
    homes = [{number // 100 for number in numbers} for numbers in seen.values()]
    assert homes[0]
    assert homes[1]
    assert not homes[0] & homes[1]
    for numbers in seen.values():
        for key in {number // 100 for number in numbers}:
            assert [number % 100 for number in numbers if number // 100 == key] == list(range(6))
    stuck_keys = set(range(8)) - homes[0] - homes[1]
    assert queued(bench) == 6 * len(stuck_keys) - 1
    stuck.cut()  # now it is the others', behind what it had
    bench.commit()
    numbers = []
    for _ in range(100):
        for line in others:
            packets = publishes(line.read())
            numbers.extend(int(packet.payload) for packet in packets)
            acknowledge(bench, line, packets)
    assert sorted(numbers) == [
        100 * key + count for key in sorted(stuck_keys) for count in range(6)
    ]
    for key in stuck_keys:
        assert [number % 100 for number in numbers if number // 100 == key] == list(range(6))


@pytest.mark.parametrize("strategy", ["hash_client", "hash_topic"])
def test_by_hash_a_full_queue_keeps_the_order_of_a_key_while_bodies_are_read(
    strategy: str,
) -> None:
    """A message that finds no room must not go to the home before those that wait."""
    limits = EngineLimits(max_mqueue_len=2, mqueue_overflow="drop_newest")
    bench = Bench(limits, sharing=SharingOptions(strategy=strategy))
    source = bench.join("source")
    for name in ("m1", "m2"):
        member(bench, name).cut()
    for number in range(4):  # as many as both have room for
        source.send(Publish("t/1", str(number).encode(), 1, packet_id=1 + number))
        bench.commit()
    bench.join("m2").cut()  # a clean start: m1 has room for two
    back = bench.line()
    properties = Properties(session_expiry_interval=3600)
    back.send(Connect("m1", 5, False, properties=properties))
    source.send(Publish("t/1", b"4", 1, packet_id=9))  # the bodies of the others are being read
    bench.commit()
    bench.commit()
    assert got(back) == [0, 1, 2, 3]
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 1


def test_the_queue_goes_with_the_last_member() -> None:
    """It is counted, makes dead letters, and is gone from the store."""
    bench = Bench(dead_letters="dead")
    letters = bench.subscriber("letters", "dead", 1)
    line = member(bench, "m", window=1)
    publish(bench, 3)
    taken = publishes(line.read())
    line.send(Unsubscribe(2, [GROUP]))
    bench.commit()
    assert bench.server.drops.counts[drop_reasons.SESSION_ENDED] == 2
    assert bench.server.router.sharing.groups == {}
    assert bench.server.context.groups_with_backlog == {}
    bench.pass_s(1)
    bench.commit()
    assert got(letters) == [1, 2]
    acknowledge(bench, line, taken)
    recovered = bench.store.recover()
    assert sorted(record.client_id for record in recovered.sessions) == ["letters", "m"]


def test_qos_0_is_returned_too() -> None:
    bench = Bench()
    first = member(bench, "m1")
    first.cut()
    publish(bench, 3, qos=0)
    second = bench.join("m2")
    second.send(Subscribe(1, [Subscription(GROUP, 1)]))
    bench.commit()
    assert got(second) == [0, 1, 2]


def test_a_message_that_waited_in_memory_is_in_the_log_for_its_next_member() -> None:
    """Another group's member had it in the log meanwhile, and retention took it from there."""
    bench = Bench(streams=())
    other = "$share/h/t/+"
    holder = member(bench, "holder", 0)
    holder.send(Subscribe(1, [Subscription(other, 0)]))
    bench.commit()
    holder.cut()
    publish(bench, 1)
    first, second = bench.join("first", durable=True), bench.join("second", durable=True)
    first.send(Subscribe(1, [Subscription(GROUP, 1)]))
    bench.commit()
    acknowledge(bench, first, publishes(first.read()))
    server = bench.server
    end = server.context.batch.next_offset
    assert (
        bench.store.trim_log(bench.now.wall_us + 1, 0, server.lowest_needed_offset(end)) == end == 1
    )
    second.send(Subscribe(1, [Subscription(other, 1)]))
    bench.commit()
    assert got(second) == [0]
    bench.restart()
    assert got(bench.join("second", durable=True)) == [0]
