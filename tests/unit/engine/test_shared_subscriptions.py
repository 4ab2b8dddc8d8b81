"""Shared subscriptions: who gets a message, and what happens to it when that one dies."""

from __future__ import annotations

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import SharingOptions
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
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.group import SHARED, acknowledge, got, member, publish, queued

VERSIONS = (3, 4, 5)


# -- who gets a message ----------------------------------------------------------------


def test_a_member_whose_link_was_full_goes_on_when_it_is_empty_and_in_order() -> None:
    bench = Bench()
    line = member(bench, "m")
    source = bench.join("source")
    source.send(*[Publish("t/1", bytes([n]) * 65_536, 1, packet_id=1 + n) for n in range(24)])
    assert queued(bench) > 0, "1 MiB is written before the commit"
    bench.commit()
    bench.turns()
    source.send(Publish("t/1", b"\x18", 1, packet_id=99))
    bench.commit()
    bench.commit()
    assert [packet.payload[0] for packet in publishes(line.read())] == list(range(25))


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
    assert len(group.members.by_session) == 1


# -- members that die --------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("stays", [True, False])
def test_a_lost_connection_returns_what_is_unacknowledged(durable: bool, stays: bool) -> None:
    """To a member that is connected, at once, whether the session ends or not."""
    bench = Bench()
    first = member(bench, "m1", durable=stays, window=2)
    second = member(bench, "m2", durable=durable)
    publish(bench, 10)
    taken = publishes(first.read())
    assert [packet.payload for packet in taken] == [b"0", b"2"]
    acknowledge(bench, first, taken[:1])
    assert got(second) == [1, 3, 4, 5, 6, 7, 8, 9]
    first.cut()
    bench.commit()
    assert got(second) == [2]
    assert sum(bench.server.drops.counts) == 0
    if stays:
        assert got(bench.join("m1", durable=True)) == []


def test_the_others_wait_until_one_has_room() -> None:
    """What no connected member can take waits in front, and is taken when there is room."""
    bench = Bench(EngineLimits(max_mqueue_len=5))
    first, second = member(bench, "m1", window=5), member(bench, "m2", window=1)
    publish(bench, 10)
    (packet,) = publishes(second.read())
    assert (second.session.window_length, queued(bench)) == (1, 4)
    first.cut()
    bench.commit()
    assert (first.session.window_length, queued(bench)) == (0, 9)
    seen = [int(packet.payload)]
    for _ in range(9):
        acknowledge(bench, second, [packet])
        (packet,) = publishes(second.read())
        seen.append(int(packet.payload))
    assert seen == [1, 0, 2, 3, 4, 5, 6, 7, 8, 9]
    assert first.session.window_length == 0
    assert sum(bench.server.drops.counts) == 0


def test_a_member_that_is_back_first_takes_what_it_had_from_the_front() -> None:
    """The session has no copy any more: it is another packet, without DUP."""
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
    assert [(packet.payload, packet.dup) for packet in packets] == [(b"0", False), (b"1", False)]


def test_a_message_that_has_not_reached_the_wire_is_returned_in_its_own_commit() -> None:
    """Published, given to a member and taken from it before anything was sealed."""
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    source = bench.join("p")
    source.send(Publish("t/1", b"0", 1, packet_id=1))
    first.cut()
    commit = bench.seal()
    assert sorted(len(progress.in_flight()) for progress in commit.progress) == [0, 0, 1]
    assert all(not progress.segments for progress in commit.progress)
    bench.finish(commit)
    assert got(second) == [0]


def test_a_returned_message_is_stored_where_it_went() -> None:
    """One commit takes it from one and gives it to the other; a crash finds it once."""
    bench = Bench()
    first = member(bench, "m1", window=1)
    publish(bench, 4)
    second = member(bench, "m2", window=1)
    assert (second.session.window_length, queued(bench)) == (1, 2)
    first.cut()
    bench.commit()
    assert queued(bench) == 3
    bench.restart()
    assert [line.session.window_length for line in (first, second)] == [0, 0]
    assert queued(bench) == 4
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
    context = bench.server.context
    offset = context.batch.next_offset - 1
    context.batch.lowest_moved_offset = context.batch.next_offset
    first.cut()
    assert second.session.window_length == 1
    assert context.batch.lowest_moved_offset == offset


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
    assert queued(bench) == 5
    lowest_needed_offset = bench.server.lowest_needed_offset(bench.server.context.batch.next_offset)
    bench.store.trim_log(bench.now.wall_us + 1, 2**62, lowest_needed_offset)
    other.cut()
    bench.commit()
    assert got(bench.join("stored", durable=True)) == [1, 2, 3, 4, 5]
    assert sum(bench.server.drops.counts) == 0
    bench.commit()
    end = bench.server.context.batch.next_offset
    line = bench.join("stored", durable=True)
    acknowledge(bench, line, publishes(line.read()))
    assert bench.server.lowest_needed_offset(end) == end


def test_own_messages_and_those_of_groups_have_their_turns() -> None:
    bench = Bench()
    line = member(bench, "m1", window=2)
    line.send(Subscribe(2, [Subscription("own", 1), Subscription("$share/h/other", 1)]))
    bench.commit()
    line.read()
    line.cut()
    topics = ("own", "t/1", "other", "own", "other", "t/1")
    for number in range(18):
        bench.publish(topics[number % 6], str(number).encode())
    for _ in range(2):
        back = bench.join("m1", durable=True, receive_maximum=2)
        bench.commit()
        bench.restart()
    back = bench.join("m1", durable=True, receive_maximum=2)
    bench.commit()
    seen: list[int] = []
    while packets := publishes(back.read()):
        seen.extend(int(packet.payload) for packet in packets)
        acknowledge(bench, back, packets)
    assert sorted(seen) == list(range(18))
    for topic in ("own", "t/1", "other"):
        part = [number for number in seen if topics[number % 6] == topic]
        assert part == sorted(part)
    assert {topics[number % 6] for number in seen[:6]} == {"own", "t/1", "other"}


def test_a_message_that_is_nowhere_stored_is_stored_when_it_must_be() -> None:
    """From a member whose session ends to one whose session is kept."""
    bench = Bench(streams=())
    first = member(bench, "m1", durable=False)
    publish(bench, 2)
    assert bench.server.context.batch.next_offset == 0
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
    assert bench.server.drops.counts[drop_reasons.EXPIRED] == 1


def test_the_session_of_the_last_member_ends() -> None:
    bench = Bench()
    line = member(bench, "m", durable=False)
    publish(bench, 3)
    line.cut()
    bench.commit()
    assert bench.server.drops.counts[drop_reasons.SESSION_ENDED] == 3
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


def test_unsubscribing_completes_what_is_in_flight() -> None:
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


def test_a_group_of_clean_sessions_ends_with_a_crash() -> None:
    """Also where a member with a stored session was in it once."""
    bench = Bench()
    stored, clean = member(bench, "m1"), member(bench, "m2", durable=False, window=1)
    stored.cut()
    publish(bench, 3)
    back = bench.join("m1", durable=True)
    bench.commit()
    back.read()
    back.send(Disconnect(0, Properties(session_expiry_interval=0)))
    bench.commit()
    assert queued(bench) == 2
    assert got(clean) == [0]
    bench.restart()
    assert bench.server.router.sharing.groups == {}
    assert bench.server.drops.counts[drop_reasons.SESSION_ENDED] == 2
    bench.commit()
    bench.restart()
    assert sum(bench.server.drops.counts) == 0


def test_unsubscribing_and_leaving_returns_what_was_in_flight() -> None:
    bench = Bench()
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 2)
    first.send(Unsubscribe(2, [SHARED]))
    first.cut()
    bench.commit()
    assert sorted(got(second)) == [0, 1]


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
    assert bench.server.drops.counts[drop_reasons.SESSION_ENDED] == 1


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
    assert bench.server.drops.counts[drop_reasons.REJECTED] == 1
