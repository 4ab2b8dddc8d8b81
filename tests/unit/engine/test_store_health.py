"""The store cannot write, or is slow: what goes on, waits, is refused, and how much is kept."""

import pytest

from penstock.engine.values.drop_reasons import STORE_FAILED
from penstock.engine.work_budget import (
    HEAVY_FOR_BATCHES,
)
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, arrive, publishes

WHY = "the disk is full: free space"


def failing(bench: Bench) -> None:
    """From now on nothing is committed: ``bench.seal`` is not called."""
    bench.server.context.store_health.mark_failed(WHY)


def read(bench: Bench, line: Line) -> list[object]:
    """What reached the client without any commit."""
    bench.turns()
    bench.write_ready()
    return list(line.read())


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_5_publishers_are_refused_at_once_and_told_why(qos: int) -> None:
    """0x97: nothing of the message is kept, so that sending it again is no duplicate."""
    bench = Bench()
    subscriber = bench.subscriber("s", "t", 2)
    line, _ = bench.connect(Connect("p", 5))
    failing(bench)
    line.send(Publish("t", b"x", qos, packet_id=7))
    kind = Puback if qos == 1 else Pubrec
    assert read(bench, line) == [kind(7, 0x97, Properties(reason_string=WHY))]
    bench.server.context.store_recovered()
    bench.commit()
    assert subscriber.read() == []
    assert bench.server.context.batch.next_offset == 0


def test_a_refusal_does_not_overtake_an_acknowledgement_that_waits() -> None:
    """[MQTT-4.6.0-2]"""
    bench = Bench()
    line = bench.join("p")
    line.send(Publish("t", b"accepted before", 1, packet_id=1))
    commit = bench.seal()
    failing(bench)
    line.send(Publish("t", b"refused", 1, packet_id=2))
    assert read(bench, line) == []
    bench.server.context.store_recovered()
    bench.finish(commit)
    bench.commit()
    assert line.read() == [Puback(1), Puback(2, 0x97)]


def test_older_publishers_wait_and_their_message_is_taken_afterwards() -> None:
    bench = Bench()
    subscriber = bench.subscriber("s", "t", 1)
    line = bench.join("p", 4)
    failing(bench)
    line.send(Publish("t", b"x", 1, packet_id=1))
    assert read(bench, line) == []
    bench.pass_s(1.0)
    assert read(bench, line) == []
    assert bench.server.context.batch.next_offset == 0
    bench.server.context.store_recovered()
    bench.commit()
    assert line.read() == [Puback(1)]
    assert [packet.payload for packet in subscriber.read() if isinstance(packet, Publish)] == [b"x"]


def test_qos_0_and_pings_go_on() -> None:
    bench = Bench()
    subscriber = bench.join("s")
    subscriber.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    subscriber.read()
    publisher = bench.join("p")
    failing(bench)
    publisher.send(Publish("t", b"x"), Pingreq())
    assert read(bench, publisher) == [Pingresp()]
    assert read(bench, subscriber) == [Publish("t", b"x")]


def test_a_client_that_leaves_nothing_in_the_store_comes_subscribes_and_gets_what_is_retained() -> (
    None
):
    bench = Bench()
    bench.publish("t", b"retained", retain=True)
    failing(bench)
    line = bench.line(4)
    line.send(Connect("new", 4), Subscribe(1, [Subscription("t", 0)]))
    bench.publish_qos0("t", b"live")
    line.send(Unsubscribe(2, ["t"]))
    assert read(bench, line) == [
        Connack(0),
        Suback(1, [0]),
        Publish("t", b"retained", retain=True),
        Publish("t", b"live"),
        Unsuback(2, []),
    ]


@pytest.mark.parametrize(
    "connect",
    [
        Connect("known", 5),
        Connect("new", 5, properties=Properties(session_expiry_interval=60)),
        Connect("new", 5, will=Will("t", b"gone")),
        Connect("new", 4, False),
    ],
)
def test_a_client_whose_state_must_be_stored_is_refused(connect: Connect) -> None:
    """Also one that would end a stored session: that too must be durable."""
    bench = Bench()
    bench.join("known", durable=True).cut()
    bench.commit()
    failing(bench)
    line = bench.line(connect.version)
    line.send(connect)
    answer = read(bench, line)[0]
    assert isinstance(answer, Connack)
    assert answer.reason_code == 0x88
    if connect.version == 5:
        assert answer.properties == Properties(reason_string=WHY)
    assert list(bench.server.registry.sessions) == ["known"]


def test_queues_rest_and_go_on_by_themselves() -> None:
    """What would be sent would only wait for the commit, and fill the memory."""
    bench = Bench()
    subscriber = bench.subscriber("s", "t", 1)
    subscriber.cut()
    for number in range(100):
        bench.publish("t", b"%d" % number)
    again = bench.join("s", durable=True)
    sent = [packet for packet in again.read() if isinstance(packet, Publish)]
    bench.commit()
    sent += [packet for packet in again.read() if isinstance(packet, Publish)]
    failing(bench)
    again.send(*[Puback(packet.packet_id) for packet in sent])
    assert read(bench, again) == []
    assert bench.server.context.turn.unsent_bytes == 0
    bench.server.context.store_recovered()
    bench.server.context.turn.waiting.until_turn(again.connection)
    bench.commit()
    more = [packet for packet in again.read() if isinstance(packet, Publish)]
    assert [packet.payload for packet in more] == [
        b"%d" % number for number in range(len(sent), 2 * len(sent))
    ]


def test_the_memory_for_qos_0_in_streams_is_bounded_and_what_has_no_room_is_counted() -> None:
    bench = Bench()
    context = bench.server.context
    context.store_health.waiting_bytes_max = 10_000
    subscriber = bench.join("s")
    subscriber.send(Subscribe(1, [Subscription("t", 0)]))
    bench.commit()
    subscriber.read()
    publisher = bench.join("p")
    failing(bench)
    for _ in range(100):
        publisher.send(Publish("t", bytes(1000)))
        assert len(read(bench, subscriber)) == 1
    assert 10_000 <= context.batch.size_bytes < 12_000
    appended = context.batch.next_offset
    assert bench.server.drops.counts[STORE_FAILED] == 100 - appended
    context.store_recovered()
    assert context.store_health.waiting_bytes_max == 10_000
    bench.commit()
    assert bench.store.log_extent().end == appended


def test_a_batch_filled_before_the_outage_does_not_keep_qos_0_from_being_read() -> None:
    bench = Bench()
    bench.server.context.store_health.waiting_bytes_max = 10_000
    subscriber = bench.join("s")
    subscriber.send(Subscribe(1, [Subscription("live", 0)]))
    bench.commit()
    subscriber.read()
    publisher = bench.join("p")
    publisher.send(Publish("t", bytes(11_000), 1, packet_id=1), Publish("live", b"x"))
    assert publisher.connection.is_reading_paused
    failing(bench)
    assert read(bench, subscriber) == [Publish("live", b"x")]
    assert not publisher.connection.is_reading_paused


# -- QoS 0 behind what waits -----------------------------------------------------------------


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


def logged_by(bench: Bench) -> list[str]:
    """Who is in the batch that is sealed now, in order."""
    commit = bench.seal()
    found = [message.client_id for message in commit.messages]
    bench.finish(commit)
    return found


# -- a batch that should get no larger -----------------------------------------------------


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
