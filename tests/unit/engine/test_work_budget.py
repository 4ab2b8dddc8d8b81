"""Turns: what a connection may do in one, what it leaves for the next, and what it waits for."""

import itertools

import pytest

from penstock.engine.routing.router import LOOKS_PER_UNIT
from penstock.engine.server.subscribe_handler import FILTER_WORK
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.states import CONNECTED
from penstock.engine.work_budget import (
    BURST,
    BYTES_PER_UNIT,
    HEAVY_FOR_BATCHES,
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
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import USER_PROPERTIES_MAX, Properties
from tests.unit.engine.bench import Bench, arrive, publishes

MAXIMUM = 3


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


# -- bounded memory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packet",
    [
        Pingreq(),
        Publish("t", b"x", 1, packet_id=1),
        Subscribe(1, [Subscription("t", 1)]),
        Pubrec(7),
    ],
    ids=lambda packet: type(packet).__name__,
)
@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_never_reads_is_not_answered_for_ever(packet: Packet, version: int) -> None:
    """Its socket is full: a bounded number of its packets is taken, then none."""
    limit = 10_000
    bench = Bench(EngineLimits(write_buffer_bytes_max=limit))
    line = bench.join("c", version)
    link = line.connection.link
    link.mark_socket_full()
    for _ in range(100):
        if not line.connection.is_reading_paused:
            line.send(*[packet] * 500)
        bench.commit()
        bench.take_ready(line)
    assert line.connection.is_reading_paused
    assert limit <= link.pending_bytes + link.congested_bytes < limit + 100
    line.connection.writable(bench.now)
    bench.turns()
    assert link.congested_bytes < limit
    for _ in range(100):
        bench.commit()
        bench.take_ready(line)
    assert not line.connection.is_reading_paused


def test_every_packet_is_answered_once_the_client_reads() -> None:
    bench = Bench(EngineLimits(write_buffer_bytes_max=1000))
    line = bench.join("c", 4)
    line.connection.link.mark_socket_full()
    line.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, 2001)])
    answers: list[Packet] = []
    for _ in range(100):
        bench.commit()
        answers += line.read()
        if line.connection.link.is_full():
            line.connection.writable(bench.now)
    assert answers == [Puback(n) for n in range(1, 2001)]


def test_a_link_without_room_leaves_messages_in_the_queue() -> None:
    """Also before the socket says so: what waits for a commit takes memory too."""
    bench = Bench(EngineLimits(write_buffer_bytes_max=10_000))
    line = bench.subscriber("s", "t", 1, 4)
    publisher = bench.join("p", 4)
    publisher.send(*[Publish("t", bytes(4000), 1, packet_id=n) for n in range(1, 11)])
    assert line.connection.link.pending_bytes < 14_000
    assert line.session.window_length == 3
    bench.commit()
    for _ in range(10):
        bench.take_ready(line)
        bench.commit()
    assert line.session.window_length == 10


def test_a_resumed_session_is_sent_again_in_portions() -> None:
    bench = Bench(EngineLimits(write_buffer_bytes_max=10_000))
    line = bench.subscriber("s", "t", 1, 4)
    for _ in range(10):
        bench.publish("t", bytes(4000))
        bench.commit()
    assert len(publishes(line.read())) == 10
    line.cut()
    line = bench.join("s", 4, durable=True)
    assert line.connection.link.pending_bytes < 14_000
    bench.commit()
    again = publishes(line.read())
    assert len(again) == 10
    assert all(message.dup for message in again)


def test_reading_pauses_while_much_waits_for_a_commit() -> None:
    """Whether it is in the log or held for somebody."""
    bench = Bench(streams=())
    bench.server.context.store_health.waiting_bytes_max = 100_000
    bench.join("s", 4).send(Subscribe(1, [Subscription("t", 1)]))
    publisher = bench.join("p", 5)
    publisher.send(*[Publish("t", bytes(10_000), 0) for _ in range(100)])
    context = bench.server.context
    assert publisher.connection.is_reading_paused is True
    assert 100_000 <= context.batch.size_bytes + context.turn.unsent_bytes < 111_000
    bench.commit()
    assert (publisher.connection.is_reading_paused, context.turn.unsent_bytes) == (False, 0)


def test_nothing_stays_counted_when_connections_end() -> None:
    bench = Bench()
    line = bench.subscriber("s", "t", 2, 4)
    publisher = bench.join("p", 4)
    for qos in (0, 1, 2):
        publisher.send(Publish("t", b"x", qos, packet_id=1 if qos else 0))
    line.cut()
    publisher.send(Disconnect())
    bench.commit()
    assert bench.server.context.turn.unsent_bytes == 0


# -- back-pressure instead of receive maximum ------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("qos", [1, 2])
def test_decoding_stops_in_the_middle_of_a_read(version: int, qos: int) -> None:
    """Before MQTT 5: as many as the receive maximum are taken, the rest after the commit."""
    bench = Bench(EngineLimits(receive_maximum=MAXIMUM))
    line = bench.join("c", version)
    line.send(*[Publish("t", b"x", qos, packet_id=n) for n in range(1, 100)])
    assert line.connection.is_reading_paused
    bench.finish(bench.seal())
    assert len(line.read()) == MAXIMUM


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("qos", [1, 2])
def test_and_goes_on_after_each_commit(version: int, qos: int) -> None:
    bench = Bench(EngineLimits(receive_maximum=MAXIMUM))
    line = bench.join("c", version)
    line.send(*[Publish("t", b"x", qos, packet_id=n) for n in range(1, 100)])
    bench.commit()
    answer = Puback if qos == 1 else Pubrec
    assert line.read() == [answer(n) for n in range(1, 100)]
    if qos == 2:
        line.send(*[Pubrel(n) for n in range(1, 100)])
        assert line.connection.is_reading_paused
        bench.commit()
        assert line.read() == [Pubcomp(n) for n in range(1, 100)]


def test_mqtt_5_is_told_when_it_truly_exceeds_the_receive_maximum() -> None:
    """[MQTT-3.3.4-7]: as many as it may are no reason to pause it, and one more is an error."""
    bench = Bench(EngineLimits(receive_maximum=MAXIMUM))
    line = bench.join("c", 5)
    line.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, MAXIMUM + 1)], Pingreq())
    assert not line.connection.is_reading_paused
    assert line.read() == [Pingresp()]
    line.send(Publish("t", b"x", 1, packet_id=9))
    assert line.connection.link.is_closed


# -- keep alive while paused -----------------------------------------------------------------


def test_our_pause_is_not_the_clients_silence() -> None:
    """[MQTT-3.1.2-22]: keep alive strikes silence, not what we do not read."""
    bench = Bench(EngineLimits(receive_maximum=MAXIMUM))
    line = bench.join("c", 4, keep_alive_s=10)
    line.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, 10)])
    assert line.connection.is_reading_paused
    for _ in range(10):
        bench.pass_s(14.0)
        line.connection.tick(bench.now)
    assert not line.connection.link.is_closed
    bench.commit()
    assert (line.connection.is_reading_paused, line.connection.state) == (False, CONNECTED)
    bench.pass_s(14.0)
    line.connection.tick(bench.now)
    assert line.connection.state == CONNECTED, "it had no time to be heard"
    bench.pass_s(2.0)
    line.connection.tick(bench.now)
    assert line.connection.close_reason == "nothing heard for 1.5 x keep alive"


# -- QoS 0 behind what waits -----------------------------------------------------------------


def test_a_steady_stream_of_qos_0_does_not_wait_for_commits_for_ever() -> None:
    """One message had to wait; those behind it go with it, and those after that at once."""
    bench = Bench()
    line = bench.subscriber("s", "t", 0, 4)
    publisher = bench.join("p", 4)
    publisher.send(Publish("t", b"held", 1, packet_id=1))
    under_way = bench.seal()
    for number in range(3):
        publisher.send(Publish("t", b"%d" % number))
    assert publishes(line.read()) == []
    bench.finish(under_way)
    assert [m.payload for m in publishes(line.read())] == [b"held", b"0", b"1", b"2"]
    under_way = bench.seal()
    publisher.send(Publish("t", b"3"))
    assert [m.payload for m in publishes(line.read())] == [b"3"]
    bench.finish(under_way)


def test_a_message_that_must_wait_keeps_its_place_behind_earlier_ones() -> None:
    bench = Bench()
    line = bench.subscriber("s", "t", 0, 4)
    publisher = bench.join("p", 4)
    publisher.send(Publish("t", b"0", 1, packet_id=1))
    under_way = bench.seal()
    publisher.send(Publish("t", b"1"), Publish("t", b"2", 1, packet_id=2), Publish("t", b"3"))
    bench.finish(under_way)
    assert [m.payload for m in publishes(line.read())] == [b"0"]
    bench.commit()
    assert [m.payload for m in publishes(line.read())] == [b"1", b"2", b"3"]


def test_nobody_is_decoded_once_a_turn_made_as_much_as_it_may() -> None:
    """One packet of each of many publishers would be no bound of what one client is sent."""
    bench = Bench()
    subscriber = bench.join("s")
    subscriber.send(Subscribe(1, [Subscription("t", 0)]))
    publishers = [bench.join(f"p{number}") for number in range(20)]
    bench.commit()
    context = bench.server.context
    context.store_health.waiting_bytes_max = (
        context.batch.size_bytes + context.turn.unsent_bytes + 50_000
    )
    data = encode(Publish("t", bytes(20_000)), 5)
    for publisher in publishers:
        publisher.connection.receive(data, bench.now)
    assert subscriber.connection.link.pending_bytes < 50_000 + len(data) + 1000
    assert sum(publisher.connection.is_reading_paused for publisher in publishers) >= 17
    bench.commit()
    assert len(publishes(subscriber.read())) == 20


# -- a batch that should get no larger -----------------------------------------------------


def logged_by(bench: Bench) -> list[str]:
    """Who is in the batch that is sealed now, in order."""
    commit = bench.seal()
    found = [message.client_id for message in commit.messages]
    bench.finish(commit)
    return found


def test_a_publisher_of_much_of_a_full_batch_waits_and_others_go_on() -> None:
    """What comes after a large batch waits for its commit: others waited for seconds."""
    bench = Bench()
    bench.server.context.store_health.batch_bytes_max = 200_000
    greedy = bench.join("greedy", 5)
    small = bench.join("small", 5)
    arrive(greedy, *[Publish("t", bytes(90_000), 1, packet_id=n) for n in range(1, 10)])
    bench.turns()
    for number in range(1, 4):
        arrive(small, Publish("t", b"x", 1, packet_id=number))
    bench.turns()
    assert (greedy.connection.is_reading_paused, small.connection.is_reading_paused) == (
        True,
        False,
    )
    assert logged_by(bench) == ["greedy"] * 3 + ["small"] * 3
    bench.turns()
    assert logged_by(bench) == ["greedy"] * 3
    bench.turns()
    assert logged_by(bench) == ["greedy"] * 3
    bench.turns()
    assert not greedy.connection.is_reading_paused
    assert len([one for one in greedy.read() if isinstance(one, Puback)]) == 9


def test_connections_that_make_much_take_turns_in_what_a_batch_may_have() -> None:
    bench = Bench()
    context = bench.server.context
    context.store_health.batch_bytes_max = 100_000
    lines = [bench.join(f"c{number}", 5) for number in range(4)]
    bench.commit()
    for line in lines:
        arrive(line, *[Publish("t", bytes(100_000), 1, packet_id=n) for n in range(1, 5)])
    bench.turns()
    assert logged_by(bench) == ["c0", "c1", "c2", "c3"]  # nobody knew them
    order = []
    for _ in range(12):
        bench.turns()
        order += logged_by(bench)
    for turn in (order[:4], order[4:8], order[8:]):
        assert sorted(turn) == ["c0", "c1", "c2", "c3"]
    bench.turns()
    assert not any(line.connection.is_reading_paused for line in lines)


def test_much_is_what_a_batch_has_of_a_connection_in_however_many_reads() -> None:
    bench = Bench()
    bench.server.context.store_health.batch_bytes_max = 200_000
    line = bench.join("c", 5)
    bench.commit()
    for number in range(1, 100):
        arrive(line, Publish("t", bytes(10_000), 1, packet_id=number))
    assert line.connection.is_reading_paused
    assert 200_000 <= bench.server.context.batch.size_bytes < 220_000


def test_a_publisher_passed_over_for_long_has_its_turn_in_any_case() -> None:
    """Others' reads come before those who wait, and may fill each batch."""
    bench = Bench()
    bench.server.context.store_health.batch_bytes_max = 100_000
    patient = bench.join("patient", 5)
    others = [bench.join(f"o{number}", 5) for number in range(3)]
    bench.commit()
    arrive(patient, *[Publish("t", bytes(60_000), 1, packet_id=n) for n in range(1, 9)])
    assert logged_by(bench) == ["patient"] * 2
    waited = 0
    for number in range(2, HEAVY_FOR_BATCHES + 3):
        for other in others:
            arrive(other, Publish("t", bytes(60_000), 1, packet_id=number))
        bench.turns()
        waited += "patient" not in logged_by(bench)
    assert HEAVY_FOR_BATCHES - 1 <= waited <= HEAVY_FOR_BATCHES


def test_a_publisher_that_put_much_into_a_batch_long_ago_waits_no_more() -> None:
    bench = Bench()
    bench.server.context.store_health.batch_bytes_max = 100_000
    line, other = bench.join("c", 5), bench.join("other", 5)
    arrive(line, Publish("t", bytes(100_000), 1, packet_id=1))
    for _ in range(HEAVY_FOR_BATCHES):
        bench.commit()
    arrive(other, Publish("t", bytes(100_000), 1, packet_id=1))
    arrive(line, Publish("t", b"x", 1, packet_id=2))
    assert logged_by(bench) == ["other", "c"]


def test_in_an_outage_no_batch_is_too_large_for_what_is_not_acknowledged() -> None:
    """Nothing is sealed then, and QoS 0 goes on."""
    bench = Bench()
    context = bench.server.context
    context.store_health.batch_bytes_max = 100_000
    line = bench.join("c", 5)
    arrive(line, *[Publish("t", bytes(100_000), 1, packet_id=n) for n in (1, 2)])
    assert line.connection.is_reading_paused
    context.store_health.mark_failed("the disk is full")
    bench.turns()
    arrive(line, *[Publish("t", bytes(100_000), 0) for _ in range(3)])
    assert context.store_health.batch_bytes_max > context.batch.size_bytes


# -- a packet with thousands of filters ----------------------------------------------------

PORTION = WORK_PER_TURN_MAX // FILTER_WORK
FILTERS = [f"f/{number}" for number in range(3 * PORTION)]


def test_a_large_subscribe_is_handled_in_portions_and_answered_once() -> None:
    """What stands behind it waits: the answers come in the order of the packets."""
    bench = Bench()
    line = bench.join("c", 4)
    arrive(line, Subscribe(1, [Subscription(one, 1) for one in FILTERS]), Pingreq())
    first = len(line.session.subscriptions)
    assert PORTION - len(FILTERS) // 60 <= first < PORTION  # the bytes of the packet count too
    assert line.connection.is_reading_paused
    bench.server.resume(bench.now)
    assert len(line.session.subscriptions) == first + PORTION
    bench.turns()
    bench.commit()
    suback = next(packet for packet in line.read() if isinstance(packet, Suback))
    assert (suback.packet_id, suback.reason_codes) == (1, [1] * len(FILTERS))
    assert (len(line.session.subscriptions), line.connection.is_reading_paused) == (
        len(FILTERS),
        False,
    )


def test_a_large_unsubscribe_is_handled_in_portions() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription(one, 0) for one in FILTERS]))
    bench.commit()
    line.read()
    arrive(line, Unsubscribe(2, FILTERS))
    assert len(FILTERS) - PORTION < len(line.session.subscriptions) < len(FILTERS)
    bench.turns()
    bench.commit()
    assert line.read() == [Unsuback(2, [0] * len(FILTERS))]
    assert line.session.subscriptions == {}


def test_others_have_their_turn_while_a_subscribe_goes_on() -> None:
    bench = Bench()
    greedy, modest = bench.join("a", 4), bench.join("b", 4)
    arrive(greedy, Subscribe(1, [Subscription(one, 1) for one in FILTERS]))
    arrive(modest, Pingreq())
    assert modest.read() == [Pingresp()]


def test_retained_messages_follow_the_answer_of_a_large_subscribe() -> None:
    bench = Bench()
    publisher = bench.join("p", 4)
    publisher.send(*[Publish(one, b"x", retain=True) for one in FILTERS[::100]])
    line = bench.join("c", 4)
    line.send(Subscribe(1, [Subscription(one, 0) for one in FILTERS]))
    bench.commit()
    bench.turns()
    first, *others = line.read()
    assert isinstance(first, Suback)
    assert [one.topic for one in publishes(others)] == FILTERS[::100]


@pytest.mark.parametrize("how", ["cut", "taken over"])
def test_a_client_that_is_gone_leaves_its_large_subscribe_unfinished(how: str) -> None:
    bench = Bench()
    line = bench.join("c", 4, durable=True)
    arrive(line, Subscribe(1, [Subscription(one, 1) for one in FILTERS]))
    if how == "cut":
        line.cut()
    again = bench.join("c", 4, durable=True)
    bench.turns()
    bench.commit()
    assert 0 < len(again.session.subscriptions) < PORTION
    assert not any(isinstance(packet, Suback) for packet in [*line.read(), *again.read()])
    again.send(Pingreq())
    assert again.read() == [Pingresp()]
