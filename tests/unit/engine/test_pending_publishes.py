"""What is held back of a client: what it counts for, who is read on meanwhile, what comes twice."""

from __future__ import annotations

import pytest

from penstock.engine.publishing.pending_publishes import PendingPublishes
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Permissions
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes
from tests.unit.engine.pair import payloads


class NoPermissions(Permissions):
    """Nothing may be published."""

    def may_publish(self, topic: str) -> bool:
        return topic == ""


def message(number: int, qos: int = 1, topic: str = "t", dup: bool = False) -> Publish:
    return Publish(topic, b"%d" % number, qos, False, dup, packet_id=number if qos else 0)


def large(number: int, size_bytes: int = 390_000) -> Publish:
    return Publish("t", b"x" * size_bytes, 1, packet_id=number)


def away(bench: Bench, messages: int) -> None:
    """A client that is away, its queue full."""
    bench.subscriber("s", "t", 2).cut()
    for number in range(messages):
        bench.publish("t", b"early %d" % number, 2)


def come_back(bench: Bench) -> list[bytes]:
    """It is back and takes everything."""
    line = bench.join("s", durable=True)
    received: list[bytes] = []
    for _ in range(60):
        bench.commit()
        for packet in line.read():
            if isinstance(packet, Publish):
                received.append(packet.payload)
                if packet.qos > 0:
                    ids = packet.packet_id
                    line.send(Puback(ids) if packet.qos == 1 else Pubrec(ids))
            elif isinstance(packet, Pubrel):
                line.send(Pubcomp(packet.packet_id))
    return received


def exceeded(line: Line) -> bool:
    """Whether the client was told that it exceeded our Receive Maximum."""
    code = reasons.RECEIVE_MAXIMUM_EXCEEDED
    line.bench.commit()
    found = [packet for packet in line.read() if isinstance(packet, Disconnect)]
    return line.connection.link.is_closed and [packet.reason_code for packet in found] == [code]


# -- Receive Maximum, counted as MQTT 5 §4.9 does (seed 001: the counter logic) -----------------


def test_a_pubrel_for_nothing_does_not_raise_the_quota() -> None:
    """[MQTT-3.3.4-7] On a new session there is none that an earlier connection left."""
    bench = Bench(EngineLimits(receive_maximum=10))
    line = bench.join("p")
    line.send(*[Pubrel(1000 + number) for number in range(100)])
    bench.commit()
    line.read()
    line.send(*[message(number, 2) for number in range(1, 11)])
    bench.commit()
    assert len(line.read()) == 10
    line.send(message(11, 2))
    assert exceeded(line)


def test_releases_of_an_earlier_connection_raise_the_quota_to_twice_at_most() -> None:
    """Each PUBCOMP adds to the sender's quota, however often the same is released."""
    bench = Bench(EngineLimits(receive_maximum=3))
    bench.join("p", durable=True).cut()
    line = bench.join("p", durable=True)
    line.send(*[Pubrel(1000 + number) for number in range(100)])
    bench.commit()
    line.read()
    line.send(*[message(number, 2) for number in range(1, 7)])
    bench.commit()
    assert len(line.read()) == 6
    line.send(message(7, 2))
    assert exceeded(line)


def test_a_refusal_counts_until_it_leaves() -> None:
    """PUBREC of 0x80 and above gives the place back, and not before it is sent."""
    bench = Bench(EngineLimits(receive_maximum=2))
    line = bench.join("p")
    line.send(message(1, 2, "$SYS/a"), message(2, 2, "$SYS/a"))
    bench.commit()
    assert line.read() == [Pubrec(1, reasons.NOT_AUTHORIZED), Pubrec(2, reasons.NOT_AUTHORIZED)]
    line.send(message(3, 2), message(4, 2, "$SYS/a"))
    line.send(message(5, 1))
    assert exceeded(line)


def test_a_forgotten_message_counts_until_its_pubcomp() -> None:
    bench = Bench(EngineLimits(receive_maximum=1, await_rel_timeout_s=10))
    line = bench.join("p")
    line.send(message(1, 2))
    bench.commit()
    bench.pass_s(11)
    assert not line.session.inbound.awaits_release(1)
    line.send(Pubrel(1))
    bench.commit()
    assert line.read() == [Pubrec(1), Pubcomp(1)], "it was delivered"
    line.send(message(2, 2))
    bench.commit()
    assert line.read() == [Pubrec(2)]
    line.send(message(3, 2))
    assert exceeded(line)


def released_before(bench: Bench) -> Line:
    """An MQTT 5 client that releases what it sent as one of 3.1, and there is no room for it."""
    away(bench, 2)
    old = bench.join("p", 3, durable=True)
    old.send(message(9, 2))
    bench.commit()
    old.cut()
    line = bench.join("p", durable=True)
    line.send(Pubrel(9))
    bench.commit()
    assert line.read() == []
    return line


def test_a_message_held_back_of_mqtt_5_counts() -> None:
    """It waits behind what it released of an earlier MQTT 3.1 connection, unacknowledged."""
    limits = EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT, receive_maximum=2)
    line = released_before(Bench(limits))
    line.send(message(1), message(2))
    assert line.connection.inbound_unacknowledged == 2
    assert line.connection.is_reading_paused
    limit = line.connection.inbound_limit
    assert limit is not None
    assert limit.times == 1


def test_messages_held_back_of_mqtt_5_keep_their_order_and_their_size() -> None:
    """Topic aliases are resolved when it comes; refused payloads are answered in their turn."""
    bench = Bench(EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT))
    line = released_before(bench)
    false = Properties(payload_format_indicator=1)
    line.send(
        Publish("t", b"1", 1, packet_id=1, properties=Properties(topic_alias=1)),
        Publish("t", b"\xff", 1, packet_id=2, properties=false),
        Publish("", b"3", 1, packet_id=3, properties=Properties(topic_alias=1)),
    )
    bench.commit()
    assert line.read() == []
    assert come_back(bench)[-3:] == [b"9", b"1", b"3"]
    assert line.read() == [
        Pubcomp(9),
        Puback(1),
        Puback(2, reasons.PAYLOAD_FORMAT_INVALID),
        Puback(3),
    ]
    assert line.connection.pending_publish_count == line.connection.pending_publish_bytes == 0


def test_properties_count_among_the_bytes() -> None:
    pending = PendingPublishes(EngineLimits(write_buffer_bytes_max=10_000))
    properties = Properties(user_properties=[("key", "x" * 10_000)])
    pending.put(Publish("t", b"", 1, packet_id=1, properties=properties))
    assert pending.above_soft_limit()


# -- who is read on, and who is not -------------------------------------------------------------


def test_a_publisher_that_released_everything_is_not_read_on() -> None:
    """MQTT 3.1: its PUBRELs are here, nothing it sends makes room. It waits, and is not closed."""
    limits = EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT, receive_maximum=4)
    bench = Bench(limits)
    away(bench, 2)
    line = bench.join("p", 3)
    line.send(message(1, 2))
    bench.commit()
    line.send(Pubrel(1), *[message(number) for number in range(2, 6)], message(0, 0))
    bench.commit()
    assert line.connection.is_reading_paused
    received = come_back(bench)
    received.remove(b"0")  # QoS 0 does not wait for the window
    assert received[2:] == [b"1", b"2", b"3", b"4", b"5"]
    assert sum(bench.server.drops.counts) == 0


def test_pubrels_that_make_no_room_are_not_waited_for() -> None:
    """Without ``max_awaiting_rel`` they free nothing that a message of the client waits for."""
    limits = EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT, receive_maximum=2)
    bench = Bench(limits)
    bench.subscriber("s", "t", 2).cut()
    line = bench.join("p", 4)
    line.send(*[message(number, 2) for number in range(1, 5)], message(0, 0))
    bench.commit()
    assert line.connection.is_reading_paused
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 0


def test_a_publisher_slow_to_acknowledge_waits_and_is_not_closed() -> None:
    """A publisher that also takes commands: nobody waits for a place in its queue."""
    limits = EngineLimits(
        max_mqueue_len=2, mqueue_overflow=REJECT, receive_maximum=4, max_packet_size_bytes=400_000
    )
    bench = Bench(limits)
    line = bench.join("p", 4)
    line.send(Subscribe(1, [Subscription("commands", 1)]))
    bench.commit()
    bench.publish("commands", b"go")
    (command,) = publishes(line.read())
    away(bench, 2)
    for number in range(1, 12):
        line.send(large(number))
    assert line.connection.is_reading_paused
    assert not line.connection.link.is_closed
    assert line.connection.pending_publish_bytes < 5 * 400_000
    received = come_back(bench)
    line.send(Puback(command.packet_id))
    assert len(received) == 13
    assert line.session.window_length == 0


def test_a_held_back_client_that_is_sent_something_may_answer() -> None:
    """It was not read; nobody has to wait for the next tick until it is."""
    limits = EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT, receive_maximum=2)
    bench = Bench(limits)
    line = bench.join("p", 4)
    line.send(Subscribe(1, [Subscription("commands", 1)]))
    bench.commit()
    away(bench, 2)
    other = bench.join("other", 4)
    line.send(*[message(number) for number in range(1, 5)])
    bench.commit()
    assert line.connection.is_reading_paused
    for number in range(1, 20):
        other.send(message(number, 1, "commands"))
        bench.commit()
        (command,) = publishes(line.read())
        line.send(Puback(command.packet_id))
        bench.commit()
        assert line.session.window_length == 0


def test_a_publisher_with_all_held_back_is_read_on_once_its_own_queue_is_full() -> None:
    """Its PUBACK is among what was not read, and others may wait for it by now."""
    limits = EngineLimits(
        max_inflight=1,
        max_mqueue_len=1,
        mqueue_overflow=REJECT,
        receive_maximum=2,
        max_packet_size_bytes=500,
        write_buffer_bytes_max=1000,
    )
    bench = Bench(limits)
    line = bench.join("p", 4)
    line.send(Subscribe(1, [Subscription("own", 1)]))
    bench.publish("own", b"1")
    (own,) = publishes(line.read())
    away(bench, 1)
    for number in range(1, 3):
        line.send(Publish("t", b"x" * 400, 1, packet_id=number))
    line.send(Puback(own.packet_id))
    bench.commit()
    assert line.connection.is_reading_paused
    bench.publish("own", b"2")
    assert line.session.queue_length == 1
    bench.pass_s(0.25)
    bench.commit()
    assert payloads(line) == [b"2"]


# -- what comes twice ----------------------------------------------------------------------------


def test_a_new_message_with_the_identifier_of_a_repeated_one() -> None:
    """MQTT 3.1: the client has the PUBACK of the first; a second would be taken for the new one's.

    So the repeated one is let go of, and the new one is not believed to be the same.
    """
    for qos in (1, 2):
        bench = Bench(EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT))
        away(bench, 1)
        line = bench.join("p", 3)
        line.send(message(1), message(2), message(1, dup=True))
        bench.commit()
        assert line.read() == [Puback(1)]
        line.send(Publish("t", b"new", qos, packet_id=1))
        bench.commit()
        assert line.connection.pending_publish_count == 2
        received = come_back(bench)
        answers: list[Packet] = [Puback(2), Puback(1) if qos == 1 else Pubrec(1)]
        assert line.read() == answers
        if qos == 2:
            line.send(Pubrel(1))
            received += [b"new"]
        assert received == [b"early 0", b"1", b"2", b"new"]
        assert line.connection.pending_publish_bytes == 0


@pytest.mark.parametrize("version", [3, 4])
def test_a_refused_message_takes_a_place_like_any_other(version: int) -> None:
    """``max_awaiting_rel``: who may publish nothing could leave any number of identifiers."""
    bench = Bench(EngineLimits(max_awaiting_rel=2))
    line = bench.join("p", version)
    line.send(*[message(number, 2, "$SYS/x") for number in range(1, 6)])
    bench.commit()
    assert line.read() == [Pubrec(1), Pubrec(2)]
    assert len(line.session.inbound) == 2
    line.send(Pubrel(1))
    bench.commit()
    assert line.read() == [Pubcomp(1), Pubrec(3)]
    line.send(Pubrel(2), Pubrel(3))
    bench.commit()
    assert line.read() == [Pubcomp(2), Pubcomp(3), Pubrec(4), Pubrec(5)]
    assert line.connection.pending_publish_count == 0


def test_repeated_ones_that_are_replaced_are_not_searched_for() -> None:
    """Each was, among all that waits: a client could make the broker look at millions."""
    pending = PendingPublishes(EngineLimits())
    for number in range(1, 1001):
        assert not pending.is_repeat(message(number, dup=True))
        pending.put(message(number, dup=True))
    for number in range(1000, 0, -2):
        assert not pending.is_repeat(message(number))
        pending.put(message(number))
    assert pending.count == pending.unacknowledged_count == 1000
    left: list[int] = []
    while (packet := pending.first()) is not None:
        left.append(packet.packet_id)
        pending.pop()
    assert left == [*range(1, 1001, 2), *range(1000, 0, -2)]
    assert pending.visits <= 1500 + 1
    assert pending.count == pending.unacknowledged_count == pending.size_bytes == 0


@pytest.mark.parametrize("version", [3, 4])
def test_a_refused_message_that_is_sent_again_stays_refused(version: int) -> None:
    """Who is not told so sends PUBREL; until then the identifier is that of the same message."""
    bench = Bench()
    watcher = bench.subscriber("w", "t", 2)
    line = bench.join("p", version, durable=True)
    line.session.set_user(None, NoPermissions())
    line.send(message(1, 2))
    bench.commit()
    line.cut()
    line = bench.join("p", version, durable=True)
    line.send(message(1, 2, dup=True), Pubrel(1))
    bench.commit()
    assert line.read() == [Pubrec(1), Pubcomp(1)]
    assert payloads(watcher) == []
    line.send(message(1, 2))
    bench.commit()
    line.send(Pubrel(1))
    bench.commit()
    assert payloads(watcher) == [b"1"]
