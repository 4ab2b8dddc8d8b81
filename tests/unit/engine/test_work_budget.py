"""Turns: what a connection may do in one, and what it leaves for the next."""

import itertools

import pytest

from penstock.engine.routing.router import LOOKS_PER_UNIT
from penstock.engine.values.limits import EngineLimits
from penstock.engine.work_budget import (
    BURST,
    BYTES_PER_UNIT,
    PACKETS_PER_TURN_MAX,
    SENT_BYTES_PER_UNIT,
    SHARE_MIN,
    SLICE_S,
    WORK_PER_PACKET,
    WORK_PER_TURN_MAX,
    WORK_PER_TURN_MIN,
    WorkBudget,
)
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.properties import USER_PROPERTIES_MAX, Properties
from tests.unit.engine.bench import Bench, arrive, publishes

# -- a turn's share ------------------------------------------------------------------------


def test_a_turn_handles_a_bounded_number_of_packets() -> None:
    bench = Bench()
    line = bench.join("c", 4)
    count = 3 * PACKETS_PER_TURN_MAX
    arrive(line, *[Pingreq()] * count)
    connection = line.connection
    for_bytes = 2 * count // BYTES_PER_UNIT // WORK_PER_PACKET
    assert (len(line.read()), connection.is_reading_paused) == (
        PACKETS_PER_TURN_MAX - for_bytes,
        True,
    )
    bench.server.resume(bench.now)
    assert (len(line.read()), connection.is_reading_paused) == (PACKETS_PER_TURN_MAX, True)
    bench.turns()
    assert (len(line.read()), connection.is_reading_paused) == (
        PACKETS_PER_TURN_MAX + for_bytes,
        False,
    )


def test_a_message_for_many_counts_as_many() -> None:
    bench = Bench()
    for number in range(200):
        bench.subscriber(f"s{number}", "t", 0, 4)
    line = bench.join("p", 4)
    arrive(line, *[Publish("t", b"x")] * 100)
    assert line.connection.is_reading_paused
    assert line.connection.work < WORK_PER_TURN_MAX + 2 * 200
    bench.turns()
    assert not line.connection.is_reading_paused


def test_connections_that_use_up_their_shares_divide_what_there_is() -> None:
    """However many they are, a turn of theirs is no longer; and one alone has all of it."""
    bench = Bench()
    greedy = [bench.join(f"c{number}", 4) for number in range(10)]
    for line in greedy:
        arrive(line, *[Pingreq()] * (2 * PACKETS_PER_TURN_MAX))
        line.read()
    bench.server.resume(bench.now)
    answered = [len(line.read()) for line in greedy]
    assert answered == [PACKETS_PER_TURN_MAX // 10] * 10
    bench.turns()
    assert not any(line.connection.is_reading_paused for line in greedy)
    arrive(greedy[0], *[Pingreq()] * (2 * PACKETS_PER_TURN_MAX))
    bench.server.resume(bench.now)
    assert bench.server.context.turn.work_budget.work_max == WORK_PER_TURN_MAX


def test_many_who_begin_in_one_turn_have_little_each() -> None:
    """In the turn before nobody had to stop, so that it told nothing of how many they are."""
    bench = Bench()
    greedy = [bench.join(f"c{number}", 4) for number in range(50)]
    work_budget = bench.server.context.turn.work_budget
    work_budget.adapt_to_turn(0.0)
    before = work_budget.work_done
    for line in greedy:
        arrive(line, *[Pingreq()] * (2 * PACKETS_PER_TURN_MAX))
    assert work_budget.work_done - before < (BURST + 1) * WORK_PER_TURN_MAX + 50 * 2 * SHARE_MIN
    answered = [len(line.read()) for line in greedy]
    assert min(answered) > 0
    work_budget.adapt_to_turn(0.0)
    late = bench.join("late", 4)
    arrive(late, *[Pingreq()] * (SHARE_MIN // WORK_PER_PACKET))
    assert not late.connection.is_reading_paused


def test_many_who_subscribe_in_one_turn_have_little_each() -> None:
    """One SUBSCRIBE may have more filters than a share of a turn pays for."""
    bench = Bench()
    greedy = [bench.join(f"c{number}", 4) for number in range(50)]
    filters = [Subscription(f"t/{number}", 0) for number in range(1000)]
    work_budget = bench.server.context.turn.work_budget
    work_budget.adapt_to_turn(0.0)
    before = work_budget.work_done
    for line in greedy:
        arrive(line, Subscribe(1, filters))
    assert work_budget.work_done - before < (BURST + 1) * WORK_PER_TURN_MAX + 50 * 5 * SHARE_MIN
    bench.turns()
    bench.commit()
    assert all(isinstance(line.read()[-1], Suback) for line in greedy)


def test_a_sent_message_counts_by_its_bytes() -> None:
    bench = Bench()
    for number in range(10):
        bench.subscriber(f"s{number}", "t", 0, 4)
    line = bench.join("p", 4)
    before = bench.server.context.turn.work_budget.work_done
    arrive(line, Publish("t", bytes(10 * SENT_BYTES_PER_UNIT)))
    received = 10 * SENT_BYTES_PER_UNIT // BYTES_PER_UNIT + WORK_PER_PACKET
    assert bench.server.context.turn.work_budget.work_done - before >= received + 10 * 11


def test_a_share_follows_how_long_it_took() -> None:
    work_budget = WorkBudget()
    for _ in range(20):
        work_budget.adapt_to_turn(2 * SLICE_S)
    work_budget.begin_turn()
    assert work_budget.work_max == WORK_PER_TURN_MAX  # nobody had to stop: it was not their work
    for _ in range(20):
        work_budget.exhausted_shares = 1
        work_budget.adapt_to_turn(2 * SLICE_S)
        work_budget.begin_turn()
    assert work_budget.work_max == WORK_PER_TURN_MIN
    for _ in range(50):
        work_budget.exhausted_shares = 1
        work_budget.adapt_to_turn(SLICE_S / 2)
        work_budget.begin_turn()
    assert work_budget.work_max == WORK_PER_TURN_MAX
    work_budget.exhausted_shares = 1_000_000
    work_budget.begin_turn()
    assert work_budget.work_max == SHARE_MIN


def test_bytes_count_and_not_only_packets() -> None:
    bench = Bench()
    line = bench.join("p", 4)
    payload = bytes(WORK_PER_TURN_MAX * BYTES_PER_UNIT // 2)
    arrive(line, *[Publish("t", payload)] * 4)
    connection = line.connection
    assert (connection.link.counters.publish_received, connection.is_reading_paused) == (1, True)
    bench.turns()
    assert (connection.link.counters.publish_received, connection.is_reading_paused) == (4, False)
    assert connection.work < WORK_PER_TURN_MAX + WORK_PER_PACKET


def test_user_properties_count_and_a_packet_of_too_many_is_refused() -> None:
    bench = Bench()
    line = bench.join("p", 5)
    allowed = [("", "")] * USER_PROPERTIES_MAX
    arrive(line, *[Publish("t", b"", properties=Properties(user_properties=allowed))] * 3)
    assert (line.connection.link.counters.publish_received, line.connection.is_reading_paused) == (
        1,
        True,
    )
    bench.turns()
    assert line.connection.link.counters.publish_received == 3
    too_many = [*allowed, ("", "")]
    arrive(line, Publish("t", b"", properties=Properties(user_properties=too_many)))
    (farewell,) = line.read()
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.QUOTA_EXCEEDED


def test_a_walk_of_the_trie_counts_as_what_it_visits() -> None:
    """One session reached, thousands of nodes looked at: that is no cheap message."""
    bench = Bench()
    subscriber = bench.join("s", 4)
    for levels in itertools.product("a+", repeat=11):
        subscriber.send(Subscribe(1, [Subscription("/".join(levels) + "/#", 0)]))
    subscriber.read()
    line = bench.join("p", 4)
    topic = "/".join("a" * 11)
    arrive(line, *[Publish(f"{topic}/{number}", b"x") for number in range(20)])
    assert line.connection.is_reading_paused
    assert line.connection.work < WORK_PER_TURN_MAX + 2 * 2**12
    assert 0 < len(publishes(subscriber.read())) < 5
    bench.turns()
    assert not line.connection.is_reading_paused


def test_a_message_retained_counts_its_levels() -> None:
    bench = Bench()
    line = bench.join("p", 4)
    arrive(line, *[Publish("/".join(["a"] * 100), b"x", retain=True)] * 100)
    assert line.connection.is_reading_paused
    bench.turns()
    assert not line.connection.is_reading_paused


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_state_of_a_bridge_counts_whom_it_reaches(qos: int) -> None:
    """A client may publish it as any message, so it pays as for any."""
    bench = Bench()
    for number in range(50):
        listener = bench.join(f"listener {number}")
        listener.send(Subscribe(1, [Subscription("$SYS/broker/connection/#", 0)]))
    bridge = bench.join("bridge", 4)
    bridge.send(Publish("$SYS/broker/connection/b/state", b"0"))  # now it is known whom it reaches
    bridge.send(Publish("$SYS/broker/connection/b/state", b"1", qos, packet_id=7 * (qos > 0)))
    assert bridge.connection.work >= 50 + WORK_PER_PACKET


@pytest.mark.parametrize("version", [4, 5])
def test_a_refused_message_counts_the_queues_that_were_asked(version: int) -> None:
    """Nobody gets it, and yet all whom it is for are looked at, each time it is tried."""
    bench = Bench(EngineLimits(max_mqueue_len=1, mqueue_overflow="reject"))
    for number in range(50 * LOOKS_PER_UNIT):
        listener = bench.join(f"listener {number}")
        listener.send(Subscribe(1, [Subscription("t", 1)]))
    bench.subscriber("away", "t", 1).cut()
    bench.publish("t", b"fills the queue")
    line = bench.join("p", version)
    arrive(line, Publish("t", b"refused", 1, packet_id=1))
    assert line.connection.work >= 50 + WORK_PER_PACKET


def test_others_have_their_turn_in_between() -> None:
    bench = Bench()
    greedy, modest = bench.join("a", 4), bench.join("b", 4)
    arrive(greedy, *[Pingreq()] * (2 * PACKETS_PER_TURN_MAX))
    arrive(modest, Pingreq())
    assert modest.read() == [Pingresp()]
    assert greedy.connection.is_reading_paused


def test_packets_that_came_before_the_socket_ended_still_count() -> None:
    """A publisher of QoS 0 that says goodbye and closes loses nothing by our taking turns."""
    bench = Bench()
    subscriber = bench.subscriber("s", "t", 0, 4)
    line = bench.join("p", 4, will=Will("t", b"will"))
    arrive(line, *[Publish("t", b"x")] * (3 * PACKETS_PER_TURN_MAX), Disconnect())
    line.cut()
    bench.commit()
    assert [m.payload for m in publishes(subscriber.read())] == [b"x"] * 3 * PACKETS_PER_TURN_MAX
    assert line.connection.close_reason == "client disconnected"


def test_a_mistake_in_a_later_turn_is_answered() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    arrive(line, *[Pingreq()] * PACKETS_PER_TURN_MAX, Pingreq(), Publish("a/+", b""))
    bench.turns()
    *pings, last = line.read()
    assert len(pings) == PACKETS_PER_TURN_MAX + 1
    assert isinstance(last, Disconnect)
