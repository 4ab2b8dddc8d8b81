"""A client's PUBLISH: refused, kept waiting for room, acknowledged, released."""

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Permissions
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.engine.values.options import Offers
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
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
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, farewell, publishes
from tests.unit.engine.pair import payloads

VERSIONS = (3, 4, 5)
MAXIMUM = 3


class NoPermissions(Permissions):
    """Nothing may be published."""

    def may_publish(self, topic: str) -> bool:
        return topic == ""


FULL = EngineLimits(max_mqueue_len=2, max_inflight=1, mqueue_overflow=REJECT)


def message(number: int, qos: int = 1, topic: str = "t") -> Publish:
    return Publish(topic, b"%d" % number, qos, packet_id=number if qos else 0)


def full(version: int, watcher: bool = True) -> tuple[Bench, Line, Line, Line | None]:
    """A subscriber that is away with a full queue, one that watches, a publisher."""
    bench = Bench(FULL)
    away = bench.subscriber("s", "t", 2)
    away.cut()
    other = bench.subscriber("w", "t", 0) if watcher else None
    publisher = bench.join("p", version)
    publisher.send(message(1), message(2))
    bench.commit()
    assert len(publisher.read()) == 2
    if other is not None:
        assert payloads(other) == [b"1", b"2"]
    return bench, away, publisher, other


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_reaches_nobody(qos: int) -> None:
    """MQTT 5: 0x97, and neither the watcher, nor the log, nor a retained message has it."""
    bench, _, publisher, watcher = full(5)
    assert watcher is not None
    end = bench.server.context.batch.next_offset
    refused = message(3, qos)
    refused.retain = True
    publisher.send(refused)
    bench.commit()
    code = reasons.QUOTA_EXCEEDED
    assert publisher.read() == [Puback(3, code) if qos == 1 else Pubrec(3, code)]
    assert payloads(watcher) == []
    assert bench.server.context.batch.next_offset == end
    assert len(bench.server.router.retained) == 0
    assert publisher.session.inbound.count_on_this_connection == 0
    back = bench.join("s", durable=True)
    bench.commit()
    (first,) = publishes(back.read())
    back.send(Puback(first.packet_id))
    bench.commit()
    publisher.send(message(3, qos))
    bench.commit()
    assert publisher.read()[0] in (Puback(3), Pubrec(3))
    assert payloads(watcher) == [b"3"]


@pytest.mark.parametrize("qos", [1, 2])
def test_before_mqtt_5_a_publisher_waits_until_there_is_room(qos: int) -> None:
    """No acknowledgement, nobody gets it; what follows keeps its order, also QoS 0."""
    bench, _, publisher, watcher = full(4)
    assert watcher is not None
    publisher.send(message(3, qos), message(4, 0), message(5, qos))
    bench.commit()
    assert publisher.read() == []
    assert payloads(watcher) == []
    back = bench.join("s", durable=True)
    received: list[bytes] = []
    while found := publishes(back.read()):
        for one in found:
            received.append(one.payload)
            if one.qos == 1:
                back.send(Puback(one.packet_id))
            elif one.qos == 2:
                back.send(Pubrec(one.packet_id), Pubcomp(one.packet_id))
        bench.commit()
    received.remove(b"4")  # QoS 0 does not wait for the window
    assert received == [b"1", b"2", b"3", b"5"]
    answered = [packet for packet in publisher.read() if isinstance(packet, Puback | Pubrec)]
    assert [packet.packet_id for packet in answered] == [3, 5]
    assert payloads(watcher) == [b"3", b"4", b"5"]
    assert sum(bench.server.drops.counts) == 0


def test_a_publisher_goes_on_when_the_session_it_waits_for_ends() -> None:
    bench = Bench(FULL)
    line = bench.join("s")
    line.send(Subscribe(1, [Subscription("t", 1)]))
    publisher = bench.join("p", 4)
    publisher.send(*[message(number) for number in range(1, 5)])
    bench.commit()
    assert publisher.read() == [Puback(number) for number in range(1, 4)]
    line.cut()
    bench.commit()
    assert publisher.read() == [Puback(4)]


def test_a_publisher_that_waits_is_still_heard() -> None:
    """Its own acknowledgements make room: two clients that fill each other do not deadlock."""
    bench = Bench(FULL)
    line = bench.join("self", 4, durable=True)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.read()
    line.send(*[message(number) for number in range(1, 9)])
    received: list[bytes] = []
    acknowledged: list[int] = []
    for _ in range(20):
        bench.commit()
        for packet in line.read():
            if isinstance(packet, Publish):
                received.append(packet.payload)
                line.send(Puback(packet.packet_id))
            elif isinstance(packet, Puback):
                acknowledged.append(packet.packet_id)
    assert received == [b"%d" % number for number in range(1, 9)]
    assert acknowledged == list(range(1, 9))


def test_publishers_that_wait_do_not_wake_each_other() -> None:
    """Only a place that a queue or window gave up does; else the loop would never rest."""
    bench = Bench(FULL)
    bench.subscriber("s", "t", 1).cut()
    publishers = [bench.join(name, 4) for name in ("p", "q")]
    for publisher in publishers:
        publisher.send(*[message(number) for number in range(1, 5)])
        bench.commit()
    bench.pass_s(0.25)
    bench.commit()
    assert bench.server.resume(bench.now) == []
    session = bench.server.registry.sessions["s"]
    assert bench.server.context.blocked_publishers.count_blocked_by(session) == 2
    back = bench.join("s", durable=True)
    received: list[bytes] = []
    while found := publishes(back.read()):
        for one in found:
            received.append(one.payload)
            back.send(Puback(one.packet_id))
        bench.commit()
    assert sorted(received) == sorted(2 * [b"1", b"2", b"3", b"4"])


@pytest.mark.parametrize("version", [3, 4])
def test_a_message_sent_again_while_it_waits_is_published_once(version: int) -> None:
    """MQTT 3.1 sends again by time: what is held back comes twice, and its PUBREL once."""
    bench = Bench(EngineLimits(max_awaiting_rel=1))
    watcher = bench.subscriber("w", "t", 0)
    line = bench.join("p", version)
    line.send(message(9, 2), message(1, 2), message(2, 2))
    bench.commit()
    for number in (9, 1, 2):
        again = message(number, 2)
        again.dup = True
        line.send(again)
    bench.commit()
    answered: list[int] = []
    for _ in range(8):
        for packet in line.read():
            if isinstance(packet, Pubrec):
                answered.append(packet.packet_id)
                line.send(Pubrel(packet.packet_id))
        bench.commit()
    assert answered == [9, 9, 1, 2]
    assert payloads(watcher) == [b"9", b"1", b"2"]


@pytest.mark.parametrize("size_bytes", [1, 102_400])
def test_a_pubrel_behind_what_waits_for_it_is_read(size_bytes: int) -> None:
    """However much of the client is held back: else both would wait for each other for ever."""
    bench = Bench(EngineLimits(max_awaiting_rel=5, receive_maximum=10))
    line = bench.join("p", 4)
    for number in range(1, 21):
        line.send(Publish("t", b"x" * size_bytes, 2, packet_id=number))
    answered: list[int] = []
    for _ in range(30):
        bench.commit()
        for packet in line.read():
            if isinstance(packet, Pubrec):
                answered.append(packet.packet_id)
                line.send(Pubrel(packet.packet_id))
    assert answered == list(range(1, 21))
    assert not line.connection.is_reading_paused


def test_a_client_that_fills_its_own_queue_is_read() -> None:
    """The PUBACKs that make room come behind more messages than its receive maximum."""
    limits = EngineLimits(
        max_mqueue_len=10, max_inflight=4, receive_maximum=10, mqueue_overflow=REJECT
    )
    bench = Bench(limits)
    line = bench.join("echo", 4)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.read()
    for number in range(1, 41):
        line.send(message(number))
        bench.commit()
    acknowledged: list[int] = []
    for _ in range(60):
        for packet in line.read():
            if isinstance(packet, Publish):
                line.send(Puback(packet.packet_id))
            elif isinstance(packet, Puback):
                acknowledged.append(packet.packet_id)
        bench.commit()
    assert acknowledged == list(range(1, 41))


def test_a_publisher_with_more_held_back_than_may_be_in_flight_is_closed() -> None:
    """And QoS 0, which no window of the client bounds, is a counted drop."""
    bench = Bench(
        EngineLimits(max_awaiting_rel=1, receive_maximum=4, max_packet_size_bytes=400_000)
    )
    line = bench.join("p", 4)
    line.send(*[message(number, 2) for number in range(1, 6)])
    line.send(message(0, 0))
    bench.commit()
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 1
    for number in range(10, 15):
        line.send(Publish("t", b"x" * 390_000, 2, packet_id=number))
        assert not line.connection.link.is_closed
    line.send(Publish("t", b"x" * 390_000, 2, packet_id=15))
    assert line.connection.link.is_closed
    assert "wait for room" in line.connection.close_reason


def test_refusals_keep_their_place_behind_what_waits() -> None:
    """[MQTT3-4.6.0-2] PUBACKs leave in the order of the messages."""
    bench, _, publisher, _ = full(4)
    publisher.send(message(3), message(4, 1, "$SYS/x"), message(5))
    bench.commit()
    assert publisher.read() == []
    back = bench.join("s", durable=True)
    answered: list[int] = []
    for _ in range(8):
        for one in publishes(back.read()):
            back.send(Puback(one.packet_id))
        bench.commit()
        answered.extend(
            packet.packet_id for packet in publisher.read() if isinstance(packet, Puback)
        )
    assert answered == [3, 4, 5]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


def test_a_message_that_waits_is_published_only_if_it_still_may() -> None:
    bench, _, publisher, watcher = full(4)
    assert watcher is not None
    publisher.send(message(3))
    bench.commit()
    publisher.session.set_user(None, NoPermissions())
    back = bench.join("s", durable=True)
    for _ in range(8):
        for one in publishes(back.read()):
            back.send(Puback(one.packet_id))
        bench.commit()
    assert publisher.read() == [Puback(3)]
    assert payloads(watcher) == []
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


def test_topics_count_among_the_bytes_that_wait() -> None:
    limits = EngineLimits(
        max_mqueue_len=1, mqueue_overflow=REJECT, write_buffer_bytes_max=1_000_000
    )
    bench = Bench(limits, streams=())
    bench.subscriber("s", "#", 1).cut()
    publisher = bench.join("p", 4)
    for number in range(1, 22):
        publisher.send(message(number, 1, f"{number}/" + "x" * 60_000))
    assert publisher.connection.is_reading_paused


def test_messages_that_waited_are_published_in_portions() -> None:
    """A turn's share, as when it comes from the socket."""
    limits = EngineLimits(max_mqueue_len=1, max_inflight=65535, mqueue_overflow=REJECT)
    bench = Bench(limits, streams=())
    for number in range(100):
        line = bench.join(f"n{number}", 4)
        line.send(Subscribe(1, [Subscription("t", 0)]))
    bench.subscriber("s", "t", 1).cut()
    publisher = bench.join("p", 4)
    publisher.send(*[message(number) for number in range(1, 402)])
    bench.commit()
    line = bench.line()
    session = Properties(session_expiry_interval=3600)
    connect = Connect("s", 5, False, 0, properties=session)
    line.connection.receive(encode(connect, 5), bench.now)
    pending = publisher.connection.pending_publish_count
    assert pending == 400
    bench.finish(bench.seal())  # what waits in the log is read
    bench.server.resume(bench.now)
    assert 200 < publisher.connection.pending_publish_count < pending
    bench.commit()
    assert publisher.connection.pending_publish_count == 0


def test_messages_that_a_publisher_left_waiting_were_never_acknowledged() -> None:
    bench, _, publisher, watcher = full(4)
    assert watcher is not None
    publisher.send(message(3), message(4, 0))
    bench.commit()
    publisher.cut()
    bench.commit()
    assert payloads(watcher) == []
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 1, "the QoS 0 message"


def test_a_publisher_is_not_read_while_too_much_of_it_waits() -> None:
    limits = EngineLimits(
        max_mqueue_len=2, max_inflight=1, mqueue_overflow=REJECT, receive_maximum=5
    )
    bench = Bench(limits)
    bench.subscriber("s", "t", 1).cut()
    publisher = bench.join("p", 4)
    for number in range(1, 12):
        publisher.send(message(number))
        bench.commit()
    assert publisher.connection.is_reading_paused
    back = bench.join("s", durable=True)
    received: list[bytes] = []
    for _ in range(30):
        bench.commit()
        for one in publishes(back.read()):
            received.append(one.payload)
            back.send(Puback(one.packet_id))
    assert received == [b"%d" % number for number in range(1, 12)]
    assert not publisher.connection.is_reading_paused


def test_qos_0_for_a_full_queue_that_rejects_is_a_counted_drop() -> None:
    bench, _, publisher, watcher = full(5)
    assert watcher is not None
    publisher.send(message(3, 0))
    bench.commit()
    assert payloads(watcher) == [b"3"]
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 1


# -- QoS 2 that is not released --------------------------------------------------------------


def test_too_many_that_wait_for_pubrel_are_refused() -> None:
    """``max_awaiting_rel``: 0x97 in PUBREC, also for those of an earlier connection."""
    bench = Bench(EngineLimits(max_awaiting_rel=2))
    line = bench.join("p", durable=True)
    line.send(message(1, 2), message(2, 2))
    bench.commit()
    line.cut()
    line = bench.join("p", durable=True)
    line.send(message(3, 2))
    bench.commit()
    assert line.read() == [Pubrec(3, reasons.QUOTA_EXCEEDED)]
    line.send(Pubrel(1), message(3, 2))
    bench.commit()
    assert line.read() == [Pubcomp(1), Pubrec(3)]
    assert line.session.inbound.awaits_release(3)


def test_before_mqtt_5_the_next_waits_for_a_pubrel() -> None:
    bench = Bench(EngineLimits(max_awaiting_rel=2))
    line = bench.join("p", 4, durable=True)
    line.send(message(1, 2), message(2, 2), message(3, 2))
    bench.commit()
    assert line.read() == [Pubrec(1), Pubrec(2)]
    line.send(Pubrel(1))
    bench.commit()
    assert line.read() == [Pubcomp(1), Pubrec(3)]


def test_the_next_goes_on_when_one_is_not_released_in_time() -> None:
    limits = EngineLimits(max_awaiting_rel=1, await_rel_timeout_s=300)
    bench = Bench(limits)
    line = bench.join("p", 4, durable=True)
    line.send(message(1, 2), message(2, 2))
    bench.commit()
    assert line.read() == [Pubrec(1)]
    bench.pass_s(300)
    bench.commit()
    assert line.read() == [Pubrec(2)]


def test_a_message_not_released_in_time_is_forgotten() -> None:
    """``await_rel_timeout_s`` of connected time; the next with this identifier is a new one."""
    bench = Bench(EngineLimits(await_rel_timeout_s=300))
    watcher = bench.subscriber("w", "t", 1)
    line = bench.join("p", durable=True)
    line.send(message(1, 2))
    bench.commit()
    bench.pass_s(200)
    line.cut()
    bench.commit()
    bench.pass_s(1000)
    line = bench.join("p", durable=True)
    bench.pass_s(299)
    assert line.session.inbound.awaits_release(1)
    bench.pass_s(1)
    assert not line.session.inbound.awaits_release(1)
    assert bench.server.drops.counts[drop_reasons.NOT_RELEASED] == 1
    bench.commit()
    line.send(message(1, 2))
    bench.commit()
    assert payloads(watcher) == [b"1", b"1"]
    bench.restart()
    line = bench.join("p", durable=True)
    assert line.session.inbound.awaits_release(1)


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


# -- PUBLISH -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_qos_2_flow(version: int) -> None:
    """[MQTT-4.3.3-10] [MQTT-4.3.3-11]: one message, however often PUBLISH and PUBREL come."""
    bench = Bench()
    line = bench.join("p", version, durable=True)
    for dup in (False, True):
        line.send(Publish("t", b"x", 2, dup=dup, packet_id=9))
        bench.commit()
        assert line.read() == [Pubrec(9)]
    line.send(Pubrel(9))
    line.send(Pubrel(9))
    bench.commit()
    missing = reasons.PACKET_IDENTIFIER_NOT_FOUND if version == 5 else 0
    assert line.read() == [Pubcomp(9), Pubcomp(9, missing)]
    rows = bench.store.read(range(bench.server.context.batch.next_offset))
    assert [row.internal for row in rows.values()].count(False) == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_nobody_to_deliver_to(qos: int) -> None:
    """MQTT 5 may be told (§3.4.2.1); a message that the log has is not for nobody."""
    bench = Bench(streams=("kept",))
    line = bench.join("p", 5)
    for topic, code in (("kept", reasons.SUCCESS), ("t", reasons.NO_MATCHING_SUBSCRIBERS)):
        line.send(Publish(topic, b"", qos, packet_id=1 if topic == "t" else 2))
        bench.commit()
        (answer,) = line.read()
        assert isinstance(answer, Puback | Pubrec)
        assert answer.reason_code == code


@pytest.mark.parametrize("topic", ["$SYS/x", "$SYS", "$penstock/x", "$penstock"])
@pytest.mark.parametrize("version", VERSIONS)
def test_system_topics_are_the_brokers(version: int, topic: str) -> None:
    """Also the parent, which "$SYS/#" matches too (MQTT 5 §4.7.1.2)."""
    bench = Bench(streams=("$SYS/#", "$penstock/#"))
    line = bench.join("p", version)
    line.send(Publish(topic, b""), Publish(topic, b"", 1, packet_id=1))
    line.send(Publish(topic, b"", 2, packet_id=2))
    bench.commit()
    code = reasons.NOT_AUTHORIZED if version == 5 else 0
    assert line.read() == [Puback(1, code), Pubrec(2, code)]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 3
    assert bench.server.context.batch.next_offset == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_too_deep_is_a_protocol_error(version: int) -> None:
    bench = Bench(EngineLimits(topic_levels_max=3))
    line = bench.join("p", version)
    line.send(Publish("a/b/c/d", b""))
    assert line.connection.link.is_closed
    if version == 5:
        assert farewell(line) == reasons.TOPIC_NAME_INVALID


@pytest.mark.parametrize("character", ["\n", "\x7f", "\x85"])
def test_control_characters_in_topics_are_refused_where_they_are_not_wanted(character: str) -> None:
    topic = f"a{character}b"
    accepts = Bench()
    line = accepts.join("p")
    line.send(Publish(topic, b"", 1, packet_id=1), Subscribe(2, [Subscription(topic, 0)]))
    accepts.commit()
    assert line.read() == [Puback(1, 0), Suback(2, [0])]
    refuses = Bench(EngineLimits(control_characters_in_topics=False))
    line = refuses.join("p")
    shared = Subscription(f"$share/{topic}/t", 0)
    line.send(Subscribe(2, [Subscription(topic, 0), shared, Subscription("a\u00a0b", 0)]))
    refuses.commit()
    invalid = reasons.TOPIC_FILTER_INVALID
    assert line.read() == [Suback(2, [invalid, invalid, 0])]
    line.send(Publish(topic, b""))
    assert farewell(line) == reasons.TOPIC_NAME_INVALID
    _, connack = refuses.connect(Connect("w", 5, True, 0, Will(topic, b"")))
    assert connack.reason_code == reasons.TOPIC_NAME_INVALID


def alias(topic: str, number: int) -> Publish:
    return Publish(topic, b"", properties=Properties(topic_alias=number))


def test_topic_aliases() -> None:
    """[MQTT-3.3.2-12] [MQTT-3.3.2-7]: defined, used, defined anew; gone with the connection."""
    bench = Bench()
    line = bench.join("p", 5)
    line.send(alias("a", 1), alias("", 1), alias("b", 1), alias("", 1))
    bench.commit()
    assert [bench.store.read([n])[n].topic for n in range(4)] == ["a", "a", "b", "b"]
    assert bench.store.read([1])[1].properties == b"", "an alias is not forwarded"
    again = bench.join("p", 5)
    again.send(alias("", 1))
    assert farewell(again) == reasons.PROTOCOL_ERROR


def test_topic_aliases_have_a_maximum() -> None:
    """[MQTT-3.3.2-9]"""
    bench = Bench(EngineLimits(topic_alias_maximum=2))
    line = bench.join("p", 5)
    line.send(alias("a", 2))
    assert not line.connection.link.is_closed
    line.send(alias("a", 3))
    assert farewell(line) == reasons.TOPIC_ALIAS_INVALID


def receive_maximum_bench(version: int = 5) -> tuple[Bench, Line]:
    bench = Bench(EngineLimits(receive_maximum=2))
    return bench, bench.join("p", version, durable=True)


# -- Receive Maximum -----------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_more_than_the_receive_maximum_is_a_protocol_error(qos: int) -> None:
    """[MQTT-3.3.4-7]"""
    _, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", qos, packet_id=n) for n in (1, 2)])
    assert not line.connection.link.is_closed
    line.send(Publish("t", b"", 0), Publish("t", b"", qos, packet_id=3))
    assert farewell(line) == reasons.RECEIVE_MAXIMUM_EXCEEDED


def test_a_released_acknowledgement_makes_room() -> None:
    bench, line = receive_maximum_bench()
    for number in range(1, 20):
        line.send(Publish("t", b"", 1, packet_id=number))
        bench.commit()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    bench.commit()
    line.send(Pubrel(1), Pubrel(2))
    bench.commit()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (3, 4)])
    assert not line.connection.link.is_closed


def test_pubrec_makes_no_room() -> None:
    bench, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    bench.commit()
    line.send(Publish("t", b"", 2, packet_id=3))
    assert farewell(line) == reasons.RECEIVE_MAXIMUM_EXCEEDED


def test_a_repeated_message_takes_no_room() -> None:
    bench, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    line.cut()
    line = bench.join("p", 5, durable=True)
    line.send(*[Publish("t", b"", 2, dup=True, packet_id=n) for n in (1, 2)])
    assert not line.connection.link.is_closed


@pytest.mark.parametrize("known", [True, False])
def test_the_count_starts_anew_with_a_connection(known: bool) -> None:
    """MQTT 5 §4.9: a PUBREL sent again takes nothing of the quota, its PUBCOMP adds to it.

    ``known``: whether PUBREL was already heard on the connection before.
    """
    bench, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    bench.commit()
    if not known:
        line.send(Pubrel(1), Pubrel(2))
        bench.commit()
    line.cut()
    line = bench.join("p", 5, durable=True)
    line.send(Pubrel(1), Pubrel(2))
    line.send(*[Publish("t", b"", 1, packet_id=n) for n in (3, 4)])
    bench.commit()
    assert not line.connection.link.is_closed


@pytest.mark.parametrize("version", [3, 4])
def test_older_clients_are_slowed_down_instead(version: int) -> None:
    bench, line = receive_maximum_bench(version)
    line.send(*[Publish("t", b"", 1, packet_id=n) for n in range(1, 10)])
    before = line.connection.is_saturated
    bench.commit()
    assert (before, line.connection.is_saturated) == (True, False)
    assert not line.connection.link.is_closed
    assert len(line.read()) == 9


@pytest.mark.parametrize(
    ("offers", "qos", "retain", "code"),
    [
        (Offers(qos_max=1), 2, False, reasons.QOS_NOT_SUPPORTED),
        (Offers(qos_max=0), 1, False, reasons.QOS_NOT_SUPPORTED),
        (Offers(retain_available=False), 0, True, reasons.RETAIN_NOT_SUPPORTED),
        (Offers(retain_available=False), 1, True, reasons.RETAIN_NOT_SUPPORTED),
        (Offers(qos_max=1), 1, True, reasons.SUCCESS),
        (Offers(retain_available=False), 2, False, reasons.SUCCESS),
    ],
)
def test_a_feature_that_a_listener_does_not_offer_ends_the_connection(
    offers: Offers, qos: int, retain: bool, code: int
) -> None:
    """[MQTT-3.2.2-11] [MQTT-3.2.2-14]: to publish it is an error, and to ask for it by a will."""
    limits = EngineLimits()
    limits.offers = offers
    line = Bench(limits).join("c")
    line.send(Publish("t", b"x", qos, retain, packet_id=1 if qos else 0))
    if code != reasons.SUCCESS:
        assert farewell(line) == code
    assert line.connection.link.is_closed is (code != reasons.SUCCESS)
    _, answer = Bench(limits).connect(Connect("c", will=Will("w", b"", qos, retain)))
    assert answer.reason_code == code
