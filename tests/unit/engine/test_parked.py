"""What waits for a group at members that are away is looked at when something may come of it."""

from __future__ import annotations

from typing import final

import pytest

from penstock.engine.access import Permissions
from penstock.engine.kept import PACKED_BYTES
from penstock.engine.limits import EngineLimits
from penstock.engine.message import Message
from penstock.engine.share_group import ShareGroup
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Puback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

SHARED = "$share/g/#"
HOLDERS = 5
EACH = 200
SMALL = EngineLimits(max_mqueue_len=0, max_mqueue_bytes=500, zone="small")
ONE = EngineLimits(max_mqueue_len=1, max_mqueue_bytes=500, max_inflight=1, zone="one")


@final
class NoSecrets(Permissions):
    """Of somebody who may not receive what is secret."""

    def may_receive(self, topic: str) -> bool:
        """Anything else."""
        return not topic.startswith("secret")


def publish(bench: Bench, topic: str, payload: bytes, qos: int = 1) -> None:
    message = Message(topic, payload, qos, False, "p", bench.now.wall_us)
    bench.server.router.publish(message, None, bench.now)


def parked(*payloads: bytes, topic: str = "secret/t", qos: int = 1) -> tuple[Bench, list[Line]]:
    """A group; its members are away and full of these messages, the last one has none."""
    zones = {"small": SMALL, "one": ONE}
    limits = EngineLimits(max_mqueue_len=len(payloads))
    bench = Bench(limits, streams=(), zones=zones)
    lines = [bench.subscriber(f"a{number}", SHARED, 1) for number in range(HOLDERS + 1)]
    for line in lines:
        line.cut()
    for payload in payloads * HOLDERS:
        publish(bench, topic, payload, qos)
    bench.commit()
    assert [line.session.queue_length for line in lines] == [len(payloads)] * HOLDERS + [0]
    return bench, lines


def helper(bench: Bench, zone: str = "", qos: int = 1, name: str = "helper") -> Line:
    """A connected member that may not receive what is secret, with messages of its own."""
    wish = Properties(session_expiry_interval=3600)
    line, _ = bench.connect(Connect(name, properties=wish), zone)
    line.session.permissions = NoSecrets()
    wanted = [Subscription(SHARED, qos), Subscription("$SYS/own", 1)]
    line.send(Subscribe(1, wanted))
    bench.commit()
    return line


def looked_at(bench: Bench) -> int:
    return bench.server.effects.counters.shared_looked_at


def waiting(lines: list[Line]) -> int:
    return sum(line.session.queue_length for line in lines)


def group_of(bench: Bench) -> ShareGroup:
    return bench.server.router.sharing.groups[SHARED]


def take_all(bench: Bench, line: Line) -> list[bytes]:
    """Acknowledge until nothing comes any more; what came."""
    seen: list[bytes] = []
    while packets := publishes(line.read()):
        seen.extend(packet.payload for packet in packets)
        line.send(*[Puback(packet.packet_id) for packet in packets if packet.packet_id])
        bench.commit()
    return seen


def settle(bench: Bench, line: Line) -> list[bytes]:
    """Let things be tried until nothing moves any more; what came."""
    seen: list[bytes] = []
    for _ in range(2 * HOLDERS):
        bench.pass_s(1)
        bench.commit()
        seen += take_all(bench, line)
    return seen


def acknowledge_own(bench: Bench, line: Line, count: int) -> None:
    """``count`` times, a message of the helper's own empties its queue."""
    for _ in range(count):
        line.session.deliver(Message("own", b"", 1), 1, False, (), False, bench.now)
        bench.commit()
        assert take_all(bench, line) == [b""]


def test_who_may_not_receive_what_waits_is_not_asked_for_each_acknowledgement() -> None:
    """With 20 members parked, 86 ms went by for each."""
    bench, holders = parked(*[b"x"] * EACH)
    line = helper(bench)
    assert settle(bench, line) == []
    before = looked_at(bench)
    acknowledge_own(bench, line, 20)
    settle(bench, line)
    assert looked_at(bench) == before
    assert waiting(holders) == HOLDERS * EACH
    assert sum(bench.server.drops.counts) == 0
    line.session.permissions = None
    assert len(settle(bench, line)) == HOLDERS * EACH
    assert waiting(holders) == 0


def test_what_is_too_large_is_not_looked_at_for_each_acknowledgement() -> None:
    bench, holders = parked(*[b"x" * 1000] * EACH)
    line = helper(bench, "small")
    assert settle(bench, line) == []
    before = looked_at(bench)
    acknowledge_own(bench, line, 20)
    settle(bench, line)
    assert looked_at(bench) == before
    line.connection.link.wire_full()
    publish(bench, "t", b"smaller")
    line.connection.writable(bench.now)
    bench.commit()
    assert waiting(holders) == HOLDERS * EACH + 1
    assert settle(bench, line) == [b"smaller"]  # found among the others
    other = helper(bench, name="other")
    other.session.permissions = None
    assert len(settle(bench, other)) == HOLDERS * EACH  # who came has room for all
    assert waiting(holders) == 0


def test_one_place_at_a_time_costs_what_is_handed_on() -> None:
    """What is too large stands in front at every member; only one message fits at a time."""
    bench, holders = parked(*[b"x" * 1000] * 160, *[b"small"] * 40, topic="t")
    small = HOLDERS * 40
    before = looked_at(bench)
    line = helper(bench, "one")
    seen = take_all(bench, line)
    for _ in range(small):
        bench.pass_s(1)
        bench.commit()
        seen += take_all(bench, line)
    assert seen == [b"small"] * small
    assert waiting(holders) == HOLDERS * 160
    assert looked_at(bench) - before <= 2 * small * EACH  # of one holder, not of all


def test_qos_0_in_memory_that_nobody_may_receive_is_asked_for_once() -> None:
    bench, holders = parked(*[b"x"] * EACH, qos=0)
    line = helper(bench)
    settle(bench, line)
    before = looked_at(bench)
    for _ in range(5):
        publish(bench, "secret/t", b"x", 0)
        acknowledge_own(bench, line, 1)
    settle(bench, line)
    assert looked_at(bench) == before
    line.session.permissions = None
    bench.server.router.sharing.permissions_changed()
    assert len(settle(bench, line)) == HOLDERS * EACH + 5
    assert waiting(holders) == 0


def test_members_of_many_groups_are_asked_for_those_in_which_something_waits() -> None:
    @final
    class Asked(dict[str, ShareGroup]):
        count = 0

        def get(self, key: str) -> ShareGroup | None:  # type: ignore[override]
            self.count += 1
            return super().get(key)

    bench, _ = parked(b"x")
    line = helper(bench)
    names = [f"$share/h/{number}" for number in range(400)]
    line.send(Subscribe(1, [Subscription(name, 1) for name in names]))
    bench.commit()
    settle(bench, line)
    sharing = bench.server.router.sharing
    asked = sharing.uneven = Asked(sharing.uneven)
    assert len(asked) == 1
    acknowledge_own(bench, line, 1)
    assert asked.count <= 2


@pytest.mark.parametrize("published", [0, 1])
def test_what_there_is_no_memory_for_stays_where_it_is(published: int) -> None:
    """Handed on at QoS 0 it was dropped, and had been safe at its holder."""
    streams = ("#",) if published == 0 else ()
    bench = Bench(EngineLimits(qos0_bytes_max=3000), streams=streams)
    holder = bench.subscriber("holder", SHARED, 1)
    holder.cut()
    for _ in range(11):
        publish(bench, "t", b"x", published)
    bench.commit()
    filler = bench.subscriber("filler", "$filled", 0)
    filler.cut()
    while bench.server.effects.kept.has_room_for_qos0():
        publish(bench, "$filled", b"", 0)
    line = helper(bench, qos=0)
    settle(bench, line)
    before = looked_at(bench)
    acknowledge_own(bench, line, 5)
    settle(bench, line)
    assert looked_at(bench) == before
    assert waiting([holder]) == 11
    at_qos_1 = helper(bench, qos=1, name="other")
    seen = settle(bench, at_qos_1)
    assert len(seen) == (0 if published == 0 else 11)
    bench.join("filler", durable=True)  # takes what waits for it
    seen += settle(bench, line) + settle(bench, at_qos_1)
    assert len(seen) == 11
    assert sum(bench.server.drops.counts) == 0


def long_queue(count: int) -> tuple[Bench, Line]:
    """A connected member for which ``count`` messages wait, most of them packed."""
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=())
    line = bench.join("holder", durable=True, receive_maximum=1)
    line.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    for number in range(count + 1):
        publish(bench, "t", b"%d" % number)
    bench.commit()
    assert line.session.queue_length == count
    return bench, line


def packed(bench: Bench) -> int:
    return bench.server.effects.kept.packed_bytes // PACKED_BYTES


def test_the_last_member_that_unsubscribes_keeps_its_queue_packed() -> None:
    """All of it was unpacked at once, uncounted, and nobody was there to take it."""
    bench, line = long_queue(5000)
    before, was_packed = looked_at(bench), packed(bench)
    line.send(Unsubscribe(2, [SHARED]))
    assert (looked_at(bench), packed(bench)) == (before, was_packed)
    bench.commit()
    assert take_all(bench, line) == [b"%d" % number for number in range(5001)]


def test_what_waits_for_who_unsubscribes_is_handed_on_in_portions() -> None:
    bench, line = long_queue(5000)
    away = bench.subscriber("away", SHARED, 1)
    away.cut()
    was_packed = packed(bench)
    line.send(Unsubscribe(2, [SHARED]))
    assert packed(bench) == was_packed  # nobody is there
    bench.join("away", durable=True, receive_maximum=1)
    assert was_packed - 2500 < packed(bench) <= was_packed
    assert 1000 <= away.session.queue_length + away.session.window_length < 1100
    for _ in range(4):
        bench.pass_s(1)
        bench.commit()
    assert line.session.queue_length == 0
    assert away.session.queue_length + away.session.window_length == 5000
    assert len(take_all(bench, line)) == 1
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("others", [False, True])
def test_what_an_ended_session_leaves_is_unpacked_only_for_those_who_take_it(others: bool) -> None:
    bench, line = long_queue(5000)
    away = bench.subscriber("away", SHARED if others else "other", 1)
    away.cut()
    before = looked_at(bench)
    line.send(Disconnect(0, Properties(session_expiry_interval=0)))
    bench.commit()
    assert looked_at(bench) - before <= (8000 if others else 0)
    assert away.session.queue_length == (5001 if others else 0)
    assert sum(bench.server.drops.counts) == (0 if others else 5001)
    back = bench.join("away", durable=True)
    assert take_all(bench, back) == [b"%d" % number for number in range(5001)][: 5001 * others]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("way", ["cut", "unsubscribe", "end"])
def test_a_queue_longer_than_a_portion_is_handed_on_to_its_end(way: str, before: bool) -> None:
    """All of the first portion was taken, and nobody looked for what stood behind it."""
    count = 2500
    bench, line = long_queue(count)
    bench.subscriber("away", SHARED, 1).cut()
    taker = bench.subscriber("taker", SHARED, 1) if before else line
    if way == "cut":
        line.cut()
    elif way == "unsubscribe":
        line.send(Unsubscribe(2, [SHARED]))
    else:
        line.send(Disconnect(0, Properties(session_expiry_interval=0)))
    bench.commit()
    if not before:
        taker = bench.join("taker", durable=True)
        taker.send(Subscribe(1, [Subscription(SHARED, 1)]))
        bench.commit()
    seen: list[bytes] = []
    for _ in range(5):
        seen += take_all(bench, taker)
        bench.pass_s(1)
        bench.commit()
    in_flight = way == "unsubscribe"  # that is completed
    assert seen == [b"%d" % number for number in range(in_flight, count + 1)]
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("way", ["cut", "unsubscribe"])
def test_small_ones_behind_a_large_one_and_a_portion_are_handed_on(way: str) -> None:
    """They waited for room for the large one. In memory it is not for the taker, and in the log
    it is too large."""
    count = 1500
    wide = EngineLimits(max_mqueue_len=0, max_mqueue_bytes=200_000, zone="wide")
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=(), zones={"wide": wide})
    line = bench.join("holder", durable=True, receive_maximum=1)
    line.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    publish(bench, "t", b"first")
    publish(bench, "secret/t", b"x" * 300_000)
    for _ in range(count):
        publish(bench, "t", b"small")
    bench.commit()
    taker = helper(bench, "wide")
    if way == "cut":
        line.cut()
    else:
        line.send(Unsubscribe(2, [SHARED]))
    seen = settle(bench, taker)
    assert seen == [b"first"] * (way == "cut") + [b"small"] * count
    assert line.session.queue_length == 1


@pytest.mark.parametrize("reach", [16_000, 2000])
def test_a_look_goes_on_where_the_last_one_stopped(reach: int) -> None:
    """Small ones behind more than a portion of what is too large were never found. How far a look
    reaches has a bound: what stands behind that waits."""
    payloads = [b"x" * 1000] * 2500 + [b"small"] * 50
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=(), zones={"small": SMALL})
    bench.server.router.sharing.reach = reach
    holder = bench.subscriber("holder", SHARED, 1)
    holder.cut()
    for payload in payloads:
        publish(bench, "t", payload)
    bench.commit()
    line = helper(bench, "small")
    seen: list[bytes] = []
    for _ in range(10):
        before = looked_at(bench)
        bench.pass_s(1)
        assert looked_at(bench) - before <= len(payloads)
        bench.commit()
        seen += take_all(bench, line)
    found = 50 if reach > 2500 else 0
    assert seen == [b"small"] * found
    assert holder.session.queue_length == len(payloads) - found
    before = looked_at(bench)
    acknowledge_own(bench, line, 5)
    settle(bench, line)
    assert looked_at(bench) == before


def test_who_is_barred_from_the_log_has_what_lies_in_memory() -> None:
    """It was not asked, and QoS 0 waited beside its room."""
    bench = Bench(EngineLimits(mqueue_store_qos0=True, max_inflight=1), streams=())
    holder = bench.subscriber("holder", SHARED, 1)
    holder.cut()
    publish(bench, "secret/t", b"secret")
    bench.commit()
    line = helper(bench)
    assert take_all(bench, line) == []
    (barred,) = [member for member in group_of(bench).members.values() if member.is_barred()]
    assert barred.session is line.session
    line.connection.link.wire_full()
    for number in range(3):
        publish(bench, "t", b"%d" % number, 0)
    assert holder.session.queue_length == 4
    line.connection.writable(bench.now)
    assert settle(bench, line) == [b"0", b"1", b"2"]
    before = looked_at(bench)
    acknowledge_own(bench, line, 5)
    settle(bench, line)
    assert looked_at(bench) == before
    assert holder.session.queue_length == 1


def test_what_its_holder_had_in_memory_is_asked_for_in_the_log() -> None:
    """Nobody may have what a member has in memory when it goes: then it is in the log, unseen."""
    bench, holder = long_queue(0)
    line = helper(bench)
    line.connection.link.wire_full()
    publish(bench, "secret/t", b"secret")
    bench.commit()
    line.connection.writable(bench.now)
    holder.cut()
    assert holder.session.window_length + holder.session.queue_length == 1
    line.session.permissions = None
    assert b"secret" in settle(bench, line)
