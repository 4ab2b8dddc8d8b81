"""Shared subscriptions: who gets a message, and what happens to it when that one dies."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.engine import drop_counts
from penstock.engine.limits import EngineLimits
from penstock.engine.message import Message
from penstock.engine.options import STRATEGIES, SharingOptions
from penstock.engine.share_group import Dice
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

SHARED = "$share/g/t/+"
VERSIONS = (3, 4, 5)


def member(
    bench: Bench, name: str, qos: int = 2, *, durable: bool = True, window: int | None = None
) -> Line:
    """A member of the group."""
    line = bench.join(name, durable=durable, receive_maximum=window)
    line.send(Subscribe(1, [Subscription(SHARED, qos)]))
    bench.commit()
    line.read()
    return line


def publish(bench: Bench, count: int, qos: int = 1, topic: str = "t/1", first: int = 0) -> None:
    for number in range(first, first + count):
        bench.publish(topic, str(number).encode(), qos)


def got(line: Line) -> list[int]:
    return [int(packet.payload) for packet in publishes(line.read())]


def acknowledge(bench: Bench, line: Line, packets: list[Publish]) -> None:
    line.send(*[Puback(packet.packet_id) for packet in packets])
    bench.commit()


# -- who gets a message ----------------------------------------------------------------


def test_round_robin_takes_turns() -> None:
    bench = Bench()
    lines = [member(bench, f"m{number}") for number in range(3)]
    publish(bench, 6)
    assert [got(line) for line in lines] == [[0, 3], [1, 4], [2, 5]]


def test_each_group_and_each_ordinary_subscription_gets_its_own() -> None:
    """v5 §4.8.2: groups are known by name and filter, and a session may be in several."""
    bench = Bench()
    line = bench.join("c")
    filters = [SHARED, "$share/h/t/+", "$share/g/t/#", "t/1"]
    line.send(Subscribe(1, [Subscription(name, 1) for name in filters]))
    publish(bench, 1)
    assert got(line) == [0, 0, 0, 0]
    line.send(Unsubscribe(2, [SHARED]))
    bench.commit()
    line.read()
    publish(bench, 1, first=1)
    assert got(line) == [1, 1, 1]


def test_random_is_repeatable_and_reaches_all() -> None:
    def shares(seed: int) -> list[list[int]]:
        bench = Bench(sharing=SharingOptions(strategy="random", seed=seed))
        lines = [member(bench, f"m{number}") for number in range(3)]
        publish(bench, 30)
        return [got(line) for line in lines]

    assert shares(7) == shares(7) != shares(8)
    assert all(shares(7))


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 5])
def test_the_dice_are_fair(seed: int) -> None:
    dice = Dice(seed)
    counts: Counter[int] = Counter()
    for _ in range(10_000):
        counts[dice.below(5)] += 1
        dice.throw()
    assert set(counts) == set(range(5))
    assert all(1800 < count < 2200 for count in counts.values())


def test_sticky_stays_with_one_until_it_is_full_or_gone() -> None:
    bench = Bench(EngineLimits(max_mqueue_len=2), sharing=SharingOptions(strategy="sticky"))
    first, second = member(bench, "m1", window=1), member(bench, "m2")
    publish(bench, 5)
    assert got(first) == [0]  # 1 and 2 wait
    assert got(second) == [3, 4]
    second.cut()
    bench.commit()
    assert second.session.window_length == 2  # nobody has room


def test_least_inflight_goes_where_least_waits() -> None:
    bench = Bench(sharing=SharingOptions(strategy="least_inflight"))
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 4)
    taken = publishes(first.read())
    assert len(taken) == len(publishes(second.read())) == 2
    acknowledge(bench, first, taken)
    publish(bench, 2, first=4)
    assert (got(first), got(second)) == ([4, 5], [])


@pytest.mark.parametrize("strategy", ["hash_client", "hash_topic"])
def test_a_hash_keeps_a_publisher_or_a_topic_at_one_member(strategy: str) -> None:
    bench = Bench(sharing=SharingOptions(strategy=strategy))
    lines = [member(bench, f"m{number}") for number in range(3)]
    source = bench.join("source")
    for number in range(20):
        topic = f"t/{number % 5}" if strategy == "hash_topic" else f"t/{number}"
        source.send(Publish(topic, str(number % 5).encode(), 0))
    bench.commit()
    shares = [set(got(line)) for line in lines]
    assert sum(len(share) for share in shares) == 5
    busy = [share for share in shares if share]
    assert len(busy) > 1 if strategy == "hash_topic" else len(busy) == 1


def test_a_group_may_have_its_own_strategy() -> None:
    bench = Bench(sharing=SharingOptions(by_group={"g": "sticky"}))
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 4)
    assert (got(first), got(second)) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_connected_members_come_first_then_those_with_room(strategy: str) -> None:
    limits = EngineLimits(max_mqueue_len=1)
    bench = Bench(limits, sharing=SharingOptions(strategy=strategy))
    away, online = member(bench, "m1"), member(bench, "m2", window=1)
    away.cut()
    publish(bench, 2)
    assert away.session.queue_length == 0
    assert (online.session.window_length, online.session.queue_length) == (1, 1)
    publish(bench, 1, first=2)
    assert away.session.queue_length == 1  # the other is full
    assert sum(bench.server.drops.counts) == 0
    publish(bench, 1, first=3)
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_connected(strategy: str) -> None:
    """It waits at one member, and whoever comes back first gets it."""
    bench = Bench(sharing=SharingOptions(strategy=strategy))
    members = [member(bench, f"m{number}") for number in range(3)]
    for line in members:
        line.cut()
    publish(bench, 9)
    assert sum(line.session.queue_length for line in members) == 9
    back = bench.join("m1", durable=True)
    bench.commit()
    assert sorted(got(back)) == list(range(9))


def test_qos_is_that_of_the_member_that_gets_it() -> None:
    """[MQTT-4.8.2-3]: also when the message comes from one with another QoS."""
    bench = Bench()
    low, high = member(bench, "low", 1), member(bench, "high", 2)
    publish(bench, 2, qos=2)
    assert [packet.qos for packet in publishes(low.read())] == [1]
    assert [packet.qos for packet in publishes(high.read())] == [2]
    low.cut()
    bench.commit()
    (packet,) = publishes(high.read())
    assert (packet.payload, packet.qos, packet.dup) == (b"0", 2, False)


def test_options_are_those_of_the_member_that_gets_it() -> None:
    """Subscription identifier and retain as published, also after a restart."""
    bench = Bench()
    first = bench.join("m1", durable=True)
    first.send(Subscribe(1, [Subscription(SHARED, 1)], Properties(subscription_identifiers=[7])))
    bench.commit()
    first.cut()
    bench.commit()
    bench.publish("t/1", b"0", 1, retain=True)
    bench.restart()
    second = bench.join("m2", durable=True)
    second.send(
        Subscribe(
            1,
            [Subscription(SHARED, 1, retain_as_published=True)],
            Properties(subscription_identifiers=[9]),
        )
    )
    bench.commit()
    (packet,) = publishes(second.read())
    assert packet.retain
    assert packet.properties == Properties(subscription_identifiers=[9])


# -- subscribing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic_filter", "code"),
    [
        ("$share/g/t", 1),
        ("$share/g//", 1),
        ("$share/g/#", 1),
        ("$share/g h/+/t", 1),
        ("$share/g/$SYS/#", 1),
        ("$share/g/", 0x8F),
        ("$share/g", 0x8F),
        ("$share//t", 0x8F),
        ("$share/", 0x8F),
        ("$share/a+/t", 0x8F),
        ("$share/#/t", 0x8F),
        ("$share/g/t/#/u", 0x8F),
        ("$share/g/t+", 0x8F),
    ],
)
def test_the_form_of_a_shared_filter(topic_filter: str, code: int) -> None:
    """[MQTT-4.8.2-1] [MQTT-4.8.2-2]"""
    bench = Bench()
    line = bench.join("c")
    line.send(Subscribe(1, [Subscription(topic_filter, 1)]))
    bench.commit()
    assert line.read() == [Suback(1, [code])]


def test_shared_subscriptions_can_be_turned_off() -> None:
    bench = Bench(sharing=SharingOptions(enabled=False))
    wish = Properties(request_problem_information=0)
    line, connack = bench.connect(Connect("c", 5, properties=wish))
    assert connack.properties is not None
    assert connack.properties.shared_subscription_available == 0
    line.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert line.read() == [Suback(1, [0x9E])]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("allowed", [True, False])
def test_older_versions_where_allowed(version: int, allowed: bool) -> None:
    bench = Bench(sharing=SharingOptions(before_v5=allowed))
    line = bench.join("c", version)
    line.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert line.read() == [Suback(1, [1 if allowed else 0x80])]


def test_retained_messages_do_not_come_with_a_shared_subscription() -> None:
    """v5 §4.8.2"""
    bench = Bench()
    bench.publish("t/1", b"0", 1, retain=True)
    assert got(member(bench, "m")) == []


def test_a_shared_subscription_survives_a_restart() -> None:
    bench = Bench()
    member(bench, "m1")
    member(bench, "m2")
    bench.restart()
    lines = [bench.join(name, durable=True) for name in ("m1", "m2")]
    publish(bench, 4)
    assert [got(line) for line in lines] == [[0, 2], [1, 3]]


def test_subscribing_again_changes_the_options() -> None:
    bench = Bench()
    line = member(bench, "m", 2)
    line.send(Subscribe(2, [Subscription(SHARED, 0)]))
    bench.commit()
    line.read()
    publish(bench, 1)
    assert [packet.qos for packet in publishes(line.read())] == [0]
    (group,) = bench.server.router.sharing.groups.values()
    assert len(group.members) == 1


# -- members that die --------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("stays", [True, False])
def test_a_lost_connection_returns_what_waits_and_what_is_unacknowledged(
    durable: bool, stays: bool
) -> None:
    """To a member that is connected, at once, whether the session ends or not."""
    bench = Bench()
    first = member(bench, "m1", durable=stays, window=2)
    second = member(bench, "m2", durable=durable)
    publish(bench, 10)
    taken = publishes(first.read())
    assert [packet.payload for packet in taken] == [b"0", b"2"]  # 4, 6 and 8 wait
    acknowledge(bench, first, taken[:1])
    assert got(second) == [1, 3, 5, 7, 9]
    first.cut()
    bench.commit()
    assert got(second) == [2, 4, 6, 8]
    assert sum(bench.server.drops.counts) == 0
    if stays:
        assert got(bench.join("m1", durable=True)) == []


def test_the_others_wait_until_one_has_room() -> None:
    """What no connected member can take stays, and is taken when there is room."""
    bench = Bench(EngineLimits(max_mqueue_len=5))
    first, second = member(bench, "m1", window=5), member(bench, "m2", window=1)
    publish(bench, 10)
    (packet,) = publishes(second.read())
    assert (second.session.window_length, second.session.queue_length) == (1, 4)
    first.cut()
    bench.commit()
    assert (second.session.queue_length, first.session.window_length) == (5, 4)
    seen = [int(packet.payload)]
    for _ in range(9):
        acknowledge(bench, second, [packet])
        (packet,) = publishes(second.read())
        seen.append(int(packet.payload))
    assert sorted(seen) == list(range(10))
    assert first.session.window_length == 0
    assert sum(bench.server.drops.counts) == 0


def test_a_member_that_is_back_first_keeps_what_it_had() -> None:
    bench = Bench()
    first = member(bench, "m1")
    second = member(bench, "m2")
    second.cut()
    bench.commit()
    publish(bench, 2)
    first.cut()
    bench.commit()
    back = bench.join("m1", durable=True)
    packets = publishes(back.read())
    assert [(packet.payload, packet.dup) for packet in packets] == [(b"0", True), (b"1", True)]


def test_what_has_not_reached_the_wire_is_returned_in_its_own_commit() -> None:
    """Published, given to a member and taken from it before anything was sealed."""
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    source = bench.join("p")
    source.send(Publish("t/1", b"0", 1, packet_id=1))
    first.cut()
    commit = bench.seal()
    assert [len(progress.in_flight()) for progress in commit.progress] == [0, 1]
    bench.finish(commit)
    assert got(second) == [0]


def test_a_returned_message_is_stored_where_it_went() -> None:
    """One commit takes it from one and gives it to the other; a crash finds it once."""
    bench = Bench()
    first = member(bench, "m1", window=1)
    publish(bench, 4)
    second = member(bench, "m2", window=1)
    first.cut()
    bench.commit()
    assert got(second) == [0]
    bench.restart()
    assert [line.session.window_length for line in (first, second)] == [0, 1]
    assert [line.session.queue_length for line in (first, second)] == [0, 3]
    back = bench.join("m2", durable=True)
    assert got(back) == [0, 1, 2, 3]
    assert got(bench.join("m1", durable=True)) == []


def test_after_a_crash_whoever_is_back_first_gets_what_the_others_had() -> None:
    bench = Bench()
    member(bench, "m1", window=1)
    publish(bench, 4)
    member(bench, "m2")
    bench.restart()
    assert sorted(got(bench.join("m2", durable=True))) == [0, 1, 2, 3]
    bench.restart()
    assert sorted(got(bench.join("m1", durable=True))) == [0, 1, 2, 3]
    assert got(bench.join("m2", durable=True)) == []


def test_retention_hears_of_what_changes_hands_with_its_body() -> None:
    """Who had it was not asked yet what it needs, who gets it was: the log must keep it."""
    bench = Bench()
    first = member(bench, "m1")
    publish(bench, 1)
    second = member(bench, "m2")
    effects = bench.server.effects
    offset = effects.next_offset - 1
    effects.lowest_adopted = effects.next_offset
    first.cut()
    assert second.session.window_length == 1
    assert effects.lowest_adopted == offset


def test_retention_keeps_what_a_stored_member_may_take_over_from_one_that_is_not() -> None:
    """That one has it in memory, and needs nothing of the log; the next gets its offset only."""
    bench = Bench(streams=())
    member(bench, "stored").cut()
    bench.commit()
    other = member(bench, "other", durable=False, window=1)
    publish(bench, 1, qos=2)
    (taken,) = publishes(other.read())
    other.send(Pubrec(taken.packet_id))  # and no PUBCOMP: the window needs nothing of the log
    publish(bench, 5, first=1)
    assert other.session.queue_length == 5
    needed_from = bench.server.needed_from(bench.server.effects.next_offset)
    bench.store.retain(bench.now.wall_us + 1, 2**62, needed_from)
    other.cut()
    bench.commit()
    assert got(bench.join("stored", durable=True)) == [1, 2, 3, 4, 5]
    assert sum(bench.server.drops.counts) == 0
    bench.commit()
    end = bench.server.effects.next_offset
    line = bench.join("stored", durable=True)
    acknowledge(bench, line, publishes(line.read()))
    assert bench.server.needed_from(end) == end


def test_other_messages_of_the_queue_keep_their_place() -> None:
    """Shared messages leave from the middle of a stored queue; the rest survives a crash."""
    bench = Bench()
    first = member(bench, "m1", window=1)
    first.send(Subscribe(2, [Subscription("own", 1)]))
    bench.commit()
    first.read()
    for number in range(9):
        bench.publish("own" if number % 3 else "t/1", str(number).encode())
    second = member(bench, "m2")
    first.cut()
    bench.commit()
    taken = publishes(second.read())
    assert sorted(packet.payload for packet in taken) == [b"0", b"3", b"6"]
    acknowledge(bench, second, taken)
    publish(bench, 1, topic="own", first=9)
    bench.restart()
    assert got(bench.join("m1", durable=True)) == [1, 2, 4, 5, 7, 8, 9]


def test_a_message_that_is_nowhere_stored_is_stored_when_it_must_be() -> None:
    """From a member whose session ends to one whose session is kept."""
    bench = Bench(streams=())
    first = member(bench, "m1", durable=False)
    publish(bench, 2)
    assert bench.server.effects.next_offset == 0
    second = member(bench, "m2")
    second.cut()
    first.cut()
    bench.commit()
    bench.restart()
    assert got(bench.join("m2", durable=True)) == [0, 1]


def test_an_expired_message_is_not_returned() -> None:
    bench = Bench()
    first = member(bench, "m1")
    source = bench.join("p")
    properties = Properties(message_expiry_interval=5)
    source.send(Publish("t/1", b"0", 1, packet_id=1, properties=properties))
    bench.commit()
    second = member(bench, "m2")
    bench.pass_s(6)
    first.cut()
    bench.commit()
    assert got(second) == []
    assert bench.server.drops.counts[drop_counts.EXPIRED] == 1


def test_the_session_of_the_last_member_ends() -> None:
    bench = Bench()
    line = member(bench, "m", durable=False)
    publish(bench, 3)
    line.cut()
    bench.commit()
    assert bench.server.drops.counts[drop_counts.SESSION_ENDED] == 3
    assert bench.server.router.sharing.groups == {}
    assert bench.server.router.trie.match("t/1").groups == []


def test_an_ended_session_gives_to_members_that_are_away_too() -> None:
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 4)
    second.cut()
    first.send(Disconnect(0, Properties(session_expiry_interval=0)))
    bench.commit()
    assert sorted(got(bench.join("m2", durable=True))) == [0, 1, 2, 3]
    assert sum(bench.server.drops.counts) == 0


def test_a_clean_start_returns_what_the_old_session_had() -> None:
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 4)
    first.cut()
    second.cut()
    bench.join("m1", durable=True, clean=True)
    assert sorted(got(bench.join("m2", durable=True))) == [0, 1, 2, 3]


def test_an_expired_session_returns_what_it_had() -> None:
    bench = Bench()
    first = bench.join("m1", durable=True, expiry_s=10)
    first.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    second = member(bench, "m2")
    publish(bench, 4)
    second.cut()
    first.cut()
    bench.pass_s(11)
    bench.commit()
    assert sorted(got(bench.join("m2", durable=True))) == [0, 1, 2, 3]


def test_unsubscribing_returns_what_waits_and_completes_what_is_in_flight() -> None:
    bench = Bench()
    first, second = member(bench, "m1", window=1), member(bench, "m2")
    publish(bench, 6)
    taken = publishes(first.read())
    assert len(taken) == 1
    first.send(Unsubscribe(2, [SHARED]))
    bench.commit()
    assert sorted(got(second)) == [1, 2, 3, 4, 5]
    acknowledge(bench, first, taken)
    assert got(first) == []
    assert first.session.window_length == 0


def test_unsubscribing_from_many_groups_asks_the_queue_once() -> None:
    """It took seconds: the whole queue was listed for each filter."""
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=())
    holder = bench.subscriber("s", "$share/g/t", 1)
    others = [f"$share/g{number}/u" for number in range(400)]
    holder.send(Subscribe(2, [Subscription(name, 1) for name in others]))
    bench.commit()
    for _ in range(500):
        bench.server.router.publish(Message("t", b"x", 1, False, "p", 1), None, bench.now)
    bench.commit()
    counters = bench.server.effects.counters
    before = counters.shared_looked_at
    holder.send(Unsubscribe(3, others))
    assert counters.shared_looked_at - before <= 500
    assert len(bench.server.router.sharing.groups) == 1


def test_who_leaves_does_not_change_whose_turn_it_is() -> None:
    bench = Bench()
    lines = [member(bench, f"m{number}") for number in range(4)]
    publish(bench, 2)
    lines[0].send(Unsubscribe(2, [SHARED]))
    publish(bench, 2, first=2)
    assert [got(line) for line in lines] == [[0], [1], [2], [3]]


def test_who_gave_all_away_is_not_asked_again() -> None:
    """Whoever holds nothing shared any more leaves without a look through the queue."""
    bench = Bench()
    holder = member(bench, "m1")
    holder.send(Subscribe(2, [Subscription("own", 1)]))
    publish(bench, 3)
    holder.cut()
    assert member(bench, "m2").session.window_length == 3
    for _ in range(2):  # finds that there is nothing; knows it
        bench.join("m1", durable=True, receive_maximum=1).cut()
    publish(bench, 5, topic="own")
    before = bench.server.effects.counters.shared_looked_at
    bench.join("m1", durable=True, receive_maximum=1).cut()
    assert bench.server.effects.counters.shared_looked_at == before


def test_unsubscribing_and_leaving_returns_what_was_in_flight() -> None:
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 2)
    first.send(Unsubscribe(2, [SHARED]))
    first.cut()
    bench.commit()
    assert sorted(got(second)) == [0, 1]


def test_qos_0_is_returned_too() -> None:
    bench = Bench()
    first = member(bench, "m1")
    first.cut()
    publish(bench, 3, qos=0)
    second = bench.join("m2")
    second.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert got(second) == [0, 1, 2]


# -- QoS 2 -----------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [True, False])
@pytest.mark.parametrize("received", [True, False])
def test_qos_2_on_its_way_is_completed_with_the_same_member(crash: bool, received: bool) -> None:
    """[MQTT-4.8.2-4]: nobody else gets it, and its member gets it when it is back."""
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 1, qos=2)
    (packet,) = publishes(first.read())
    if received:
        first.send(Pubrec(packet.packet_id))
        bench.commit()
    first.cut()
    bench.pass_s(1)
    bench.commit()
    if crash:
        bench.restart()
        second = bench.join("m2", durable=True)
    assert got(second) == []
    back = bench.join("m1", durable=True)
    answer = back.read()
    if received:
        assert answer == [Pubrel(packet.packet_id)]
    else:
        (again,) = publishes(answer)
        assert (again.dup, again.packet_id, again.payload) == (True, packet.packet_id, b"0")
        back.send(Pubrec(packet.packet_id))
    back.send(Pubcomp(packet.packet_id))
    bench.commit()
    assert back.session.window_length == 0


def test_qos_2_on_its_way_ends_with_the_session() -> None:
    """[MQTT-4.8.2-5]: what only waited goes to another, what was sent does not."""
    bench = Bench()
    first, second = member(bench, "m1", window=1), member(bench, "m2")
    publish(bench, 4, qos=2)
    first.send(Disconnect(4, Properties(session_expiry_interval=0)))
    bench.commit()
    assert sorted(got(second)) == [1, 2, 3]
    assert bench.server.drops.counts[drop_counts.SESSION_ENDED] == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refusal_ends_the_message_for_the_group(qos: int) -> None:
    """[MQTT-4.8.2-6]"""
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 1, qos=qos)
    (packet,) = publishes(first.read())
    answer = Puback(packet.packet_id, 0x83) if qos == 1 else Pubrec(packet.packet_id, 0x83)
    first.send(answer)
    bench.commit()
    first.cut()
    bench.pass_s(1)
    bench.commit()
    assert got(second) == []
    assert bench.server.drops.counts[drop_counts.REJECTED] == 1


def test_what_waited_in_memory_is_in_the_log_for_the_member_that_takes_it_over() -> None:
    """Another group's member had it in the log meanwhile, and retention took it from there."""
    bench = Bench(streams=())
    other = "$share/h/t/+"
    holder = member(bench, "holder", 0)
    holder.send(Subscribe(1, [Subscription(other, 0)]))
    bench.commit()
    holder.cut()
    publish(bench, 1)
    first, second = bench.join("first", durable=True), bench.join("second", durable=True)
    first.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    acknowledge(bench, first, publishes(first.read()))
    server = bench.server
    end = server.effects.next_offset
    assert bench.store.retain(bench.now.wall_us + 1, 0, server.needed_from(end)) == end == 1
    second.send(Subscribe(1, [Subscription(other, 1)]))
    bench.commit()
    assert got(second) == [0]
    bench.restart()
    assert got(bench.join("second", durable=True)) == [0]
