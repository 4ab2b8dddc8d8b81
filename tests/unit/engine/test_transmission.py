"""Messages on their way to one client: before a commit where that is safe, and again."""

from __future__ import annotations

from typing import final

import pytest

from penstock.engine.session.session import Session
from penstock.engine.session.stored_queue import StoredLane
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Authorize, Permissions
from penstock.engine.values.limits import NEVER_EXPIRES_S, REJECT, EngineLimits
from penstock.engine.values.message import Delivery
from penstock.engine.values.priorities import PRIORITY_SHIFT
from penstock.engine.values.records import AWAIT_PUBACK
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import (
    Connack,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes
from tests.unit.engine.dialled_rig import Rig
from tests.unit.engine.pair import Pair, payloads


@final
class Nothing(Permissions):
    """May receive nothing."""

    def may_receive(self, topic: str) -> bool:
        del topic
        return False


def made() -> Bench:
    """A broker whose commits take longer than a turn."""
    bench = Bench()
    bench.server.context.store_health.waits_for_disk = True
    return bench


def restarted(bench: Bench) -> None:
    """A crash: what was not committed is gone."""
    bench.restart()
    bench.lines.clear()
    bench.server.context.store_health.waits_for_disk = True


def silent(bench: Bench, receive_maximum: int, durable: bool = True) -> Line:
    """A subscriber that acknowledged nothing yet."""
    line = bench.join("s", durable=durable, receive_maximum=receive_maximum)
    line.send(Subscribe(1, [Subscription("t", 2)]))
    bench.commit()
    line.read()
    return line


def joined(bench: Bench, receive_maximum: int, durable: bool = True) -> Line:
    """A subscriber that acknowledged its first message, in the open batch."""
    line = silent(bench, receive_maximum, durable)
    published(bench, 1)
    bench.commit()
    assert arrived(line) == [(b"0", 1, False)]
    line.send(Puback(1))
    return line


def published(bench: Bench, *qos: int) -> None:
    """Messages 0, 1, … with these QoS, in one turn and not committed."""
    open_lines = [line for line in bench.lines if line.connection.client_id == "p"]
    line = open_lines[-1] if open_lines else bench.join("p")  # which commits
    for number, one in enumerate(qos):
        line.send(Publish("t", b"%d" % number, one, packet_id=number + 1))


def at_once(bench: Bench, line: Line) -> list[tuple[bytes, int, bool]]:
    """Payload, packet identifier and DUP of what leaves in this turn, without a commit."""
    bench.write_ready()
    return arrived(line)


def arrived(line: Line) -> list[tuple[bytes, int, bool]]:
    return [(one.payload, one.packet_id, one.dup) for one in publishes(line.read())]


@pytest.mark.parametrize("durable", [True, False])
def test_a_message_on_disk_leaves_as_soon_as_there_is_a_place(durable: bool) -> None:
    bench = made()
    line = joined(bench, 1, durable)
    published(bench, 1, 1, 1)
    assert at_once(bench, line) == []
    bench.commit()
    assert arrived(line) == [(b"0", 2, False)]
    line.send(Puback(2))
    assert at_once(bench, line) == [(b"1", 3, False)]
    line.send(Puback(3))
    assert at_once(bench, line) == [(b"2", 4, False)]


@pytest.mark.parametrize("durable", [True, False])
def test_a_message_that_is_not_on_disk_waits_and_nothing_overtakes_it(durable: bool) -> None:
    bench = made()
    line = joined(bench, 2, durable)
    published(bench, 1, 1, 1)
    commit = bench.seal()
    line.send(Puback(9))
    assert at_once(bench, line) == []
    bench.finish(commit)
    assert [payload for payload, _, _ in arrived(line)] == [b"0", b"1"]
    published(bench, 1)
    line.send(Puback(2), Puback(3))
    assert at_once(bench, line) == [(b"2", 4, False)]  # the other waits for its commit
    line.send(Puback(4))
    assert at_once(bench, line) == []
    bench.commit()
    assert arrived(line) == [(b"0", 5, False)]


def test_a_silent_client_is_sent_nothing_before_the_commit_and_has_no_repeats() -> None:
    """What waits behind its window cannot have left, whatever became of the broker."""
    bench = made()
    line = silent(bench, 1)
    published(bench, 1, 1, 1)
    bench.commit()
    assert arrived(line) == [(b"0", 1, False)]
    bench.commit()
    restarted(bench)
    line = bench.join("s", durable=True, receive_maximum=10)
    bench.commit()
    assert arrived(line) == [(b"0", 1, True), (b"1", 2, False), (b"2", 3, False)]


def test_a_client_that_falls_silent_may_have_had_what_it_could() -> None:
    bench = made()
    line = joined(bench, 1)
    published(bench, 1, 1)
    bench.commit()
    published(bench, 1)
    bench.commit()
    assert arrived(line) == [(b"0", 2, False)]
    restarted(bench)
    line = bench.join("s", durable=True, receive_maximum=10)
    bench.commit()
    assert arrived(line) == [(b"0", 2, True), (b"1", 3, True), (b"0", 4, False)]


@pytest.mark.parametrize("durable", [True, False])
def test_a_retained_message_comes_behind_its_suback(durable: bool) -> None:
    bench = made()
    bench.join("p").send(Publish("t", b"kept", 1, retain=True, packet_id=1))
    bench.commit()
    line = bench.join("s", durable=durable)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.write_ready()
    assert line.read() == []
    bench.commit()
    suback, publish = line.read()
    assert isinstance(suback, Suback)
    assert isinstance(publish, Publish)
    assert publish.payload == b"kept"


def test_at_qos_2_the_packet_identifier_is_on_disk_first() -> None:
    bench = made()
    line = joined(bench, 1)
    published(bench, 1, 2, 1)
    bench.commit()
    assert [payload for payload, _, _ in arrived(line)] == [b"0"]
    line.send(Puback(2))
    assert at_once(bench, line) == []
    bench.commit()
    assert arrived(line) == [(b"1", 3, False)]
    line.send(Pubrec(3, 0x80))
    assert at_once(bench, line) == [(b"2", 4, False)]


def test_of_a_session_that_is_not_stored_qos_2_leaves_too() -> None:
    bench = made()
    line = joined(bench, 1, durable=False)
    published(bench, 2, 2)
    bench.commit()
    assert arrived(line) == [(b"0", 2, False)]
    line.send(Pubrec(2, 0x80))
    assert at_once(bench, line) == [(b"1", 3, False)]


def test_qos_1_does_not_overtake_qos_2_that_waits_for_its_commit() -> None:
    bench = made()
    line = joined(bench, 2)
    published(bench, 1, 1, 2, 1)
    bench.commit()
    assert [payload for payload, _, _ in arrived(line)] == [b"0", b"1"]
    line.send(Puback(2), Puback(3))
    assert at_once(bench, line) == []
    bench.commit()
    assert [payload for payload, _, _ in arrived(line)] == [b"2", b"3"]


def test_after_a_crash_it_is_the_same_packet_and_may_be_a_repeat() -> None:
    bench = made()
    line = joined(bench, 2)
    published(bench, 1, 1, 1, 1, 1)
    bench.commit()
    line.send(Puback(2), Puback(3))
    before = arrived(line) + at_once(bench, line)
    assert [packet_id for _, packet_id, _ in before] == [2, 3, 4, 5]
    restarted(bench)
    line = bench.join("s", durable=True, receive_maximum=10)
    bench.commit()
    again = arrived(line)
    assert again[:4] == [(payload, packet_id, True) for payload, packet_id, _ in before]
    assert [payload for payload, _, _ in again[4:]] == [b"4"]


def test_a_second_crash_before_the_client_is_back_forgets_nothing() -> None:
    bench = made()
    line = joined(bench, 1)
    published(bench, 1, 1)
    bench.commit()
    line.send(Puback(2))
    assert at_once(bench, line)[-1] == (b"1", 3, False)
    for _ in range(2):
        restarted(bench)
        bench.commit()
    line = bench.join("s", durable=True, receive_maximum=1)
    bench.commit()
    assert arrived(line) == [(b"0", 2, True)]
    line.send(Puback(2))
    bench.commit()  # its body is read from the log
    assert arrived(line) == [(b"1", 3, True)]


def test_a_message_that_waited_for_a_client_away_is_no_repeat() -> None:
    bench = made()
    line = joined(bench, 1)
    line.cut()
    bench.commit()
    published(bench, 1, 1)
    bench.commit()
    restarted(bench)
    line = bench.join("s", durable=True)
    bench.commit()
    assert arrived(line) == [(b"0", 2, False), (b"1", 3, False)]


def test_a_message_taken_from_a_group_by_an_unstored_session_waits_for_the_commit() -> None:
    """Until then the store has it in the group's queue, which would give it away again."""
    bench = made()
    first = bench.join("first", durable=True, receive_maximum=1)
    first.send(Subscribe(1, [Subscription("$share/g/t", 2)]))
    bench.commit()
    published(bench, 2, 2)
    bench.commit()
    assert [payload for payload, _, _ in arrived(first)] == [b"0"]
    second = bench.join("second")
    second.send(Subscribe(1, [Subscription("$share/g/t", 2)]))
    assert at_once(bench, second) == []
    bench.commit()
    assert arrived(second) == [(b"1", 1, False)]


def test_a_server_that_lost_the_session_is_sent_no_repeats() -> None:
    rig = Rig()
    rig.context.store_health.waits_for_disk = True
    rig.says(Connack(0, True, Properties(receive_maximum=1)))
    rig.publish(b"-", 1)
    rig.says(Puback(1))
    for number in range(3):
        rig.publish(b"%d" % number, 1)
    rig.says(Puback(2))
    found = rig.store.recover()
    progress = found.progress[1]
    assert progress.sent_below == 5
    session = Session("c", 1, NEVER_EXPIRES_S, rig.context, rig.limits, rig.drops)
    session.restore(progress, found.queues[1], found.segments[1])
    rig.session = session
    rig.dial()
    sent = publishes(rig.says(Connack(0, False)))
    assert [(one.payload, one.dup) for one in sent] == [(b"%d" % n, False) for n in (1, 2)]


def test_a_lane_lets_leave_what_a_durable_commit_says_and_no_more() -> None:
    lane = StoredLane(0)
    for _ in range(2000):
        lane.next_sequence_number()
    assert not lane.may_send(1, 0)
    assert lane.seal(1, 0, True, 9999) == 1025
    assert not lane.may_send(1, 0)
    assert lane.may_send(1024, 1)
    assert not lane.may_send(1025, 1)
    lane.note_dequeued(10)
    assert lane.seal(2, 1, True, 9999) == 1035
    assert lane.may_send(1024, 1)
    assert not lane.may_send(1034, 1)
    assert lane.may_send(1034, 2)
    lane.note_dequeued(20)
    assert lane.seal(3, 2, True, 0) == 1035
    assert lane.may_send(1034, 2)
    assert not lane.may_send(1035, 3)
    assert lane.seal(4, 3, False, 9999) == 0
    assert not lane.may_send(21, 3)
    assert not lane.may_send(21, 4)


def test_messages_that_an_earlier_start_may_have_sent_are_known_until_they_have_left() -> None:
    lane = StoredLane(0)
    lane.next_sequence, lane.sent_below = 100, 50
    assert lane.seal(1, 0, False, 0) == 50
    lane.note_dequeued(47)
    assert lane.seal(2, 1, True, 0) == 50
    lane.note_dequeued(48)
    assert lane.seal(3, 2, False, 0) == 50
    lane.note_dequeued(49)
    assert lane.seal(4, 3, False, 0) == 0


# -- the same packet again, whoever wants an identifier ----------------------------------------


def left_at_once(rig: Rig, *packets: Packet) -> list[tuple[bytes, int, int]]:
    """Payload, QoS and packet identifier of what a dialled session sends before the commit."""
    rig.connection.receive(b"".join(encode(packet, 5) for packet in packets), rig.now)
    decoder = Decoder(1_000_000, 5, server=True)
    decoder.feed(b"".join(piece for link in rig.context.turn.ready for piece in link.take_ready()))
    rig.context.turn.ready = []
    sent: list[Packet] = []
    while (packet := decoder.next_packet()) is not None:
        sent.append(packet)
    return [(one.payload, one.qos, one.packet_id) for one in publishes(sent)]


def crashed(rig: Rig) -> None:
    """What is on disk, dialled again."""
    found = rig.store.recover()
    session = Session("c", 1, NEVER_EXPIRES_S, rig.context, rig.limits, rig.drops)
    session.restore(found.progress[1], found.queues[1], found.segments[1])
    rig.session = session
    rig.dial()


def test_subscribe_takes_no_identifier_of_what_left_before_the_crash() -> None:
    rig = Rig()
    rig.context.store_health.waits_for_disk = True
    rig.says(Connack(0, True, Properties(receive_maximum=2)))
    rig.publish(b"-", 1)
    rig.says(Puback(1))
    for number in range(5):
        rig.publish(b"%d" % number, 1)
    rig.says(Puback(2))
    assert left_at_once(rig, Puback(3), Puback(4)) == [(b"3", 1, 5), (b"4", 1, 6)]
    rig.subscribes_at_once = True
    crashed(rig)
    rig.session.transmission.window.limit_packet_ids(6)  # no others than these
    subscribe, *again = rig.says(Connack(0, True))
    assert isinstance(subscribe, Subscribe)
    assert subscribe.packet_id == 2
    sent = [(one.payload, one.packet_id, one.dup) for one in publishes(again)]
    assert sent == [(b"%d" % n, n + 2, True) for n in range(1, 5)]


def test_a_message_sent_with_a_lower_qos_waits_for_the_commit_that_says_so() -> None:
    rig = Rig()
    rig.context.store_health.waits_for_disk = True
    rig.says(Connack(0, True, Properties(receive_maximum=1, maximum_qos=1)))
    rig.publish(b"-", 1)
    rig.says(Puback(1))
    for number in range(3):
        rig.publish(b"%d" % number, 2)
    rig.says(Puback(2))
    assert left_at_once(rig, Puback(3)) == []


def with_priorities() -> tuple[Bench, Line]:
    """Topic h goes first; the client acknowledged one message."""
    bench = Bench(EngineLimits(mqueue_priorities={"h": 1}))
    bench.server.context.store_health.waits_for_disk = True
    line = bench.join("s", durable=True, receive_maximum=2)
    line.send(Subscribe(1, [Subscription("#", 2)]))
    bench.commit()
    line.read()
    return bench, line


def sent_to(bench: Bench, *messages: tuple[str, bytes]) -> None:
    publisher = bench.join("p")
    for topic, payload in messages:
        publisher.send(Publish(topic, payload, 1, packet_id=1))
    bench.commit()


def test_newer_messages_take_no_identifier_of_one_that_left_before_the_crash() -> None:
    bench, line = with_priorities()
    sent_to(bench, ("t", b"1"), ("t", b"2"), ("t", b"3"), ("t", b"4"))
    line.send(Puback(1))
    bench.commit()
    line.send(Puback(2))
    assert at_once(bench, line)[-1] == (b"4", 4, False)
    restarted(bench)
    sent_to(bench, ("h", b"H"), ("h", b"H"), ("h", b"H"))
    line = bench.join("s", durable=True)
    bench.commit()
    again = arrived(line)
    assert (b"4", 4, True) in again
    assert [packet_id for _, packet_id, _ in again if packet_id <= 4] == [2, 3, 4]


def test_a_message_whose_identifier_another_one_has_waits_for_its_commit() -> None:
    bench, line = with_priorities()
    window = line.session.transmission.window
    window.restore(3, AWAIT_PUBACK, Delivery(None, 0, 1, sequence=(1 << PRIORITY_SHIFT) + 9))
    sent_to(bench, ("t", b"1"), ("t", b"2"), ("t", b"3"))
    line.send(Puback(1))
    bench.commit()
    line.read()
    line.send(Puback(3), Puback(2))
    assert at_once(bench, line) == []
    bench.commit()
    assert arrived(line) == [(b"3", 3, False)]


def test_a_message_published_retained_that_waited_is_no_repeat() -> None:
    bench = made()
    line = bench.join("s", durable=True, receive_maximum=1)
    line.send(Subscribe(1, [Subscription("t", 2, retain_as_published=True)]))
    bench.commit()
    publisher = bench.join("p")
    for number in range(3):
        publisher.send(Publish("t", b"%d" % number, 1, retain=True, packet_id=1))
    bench.commit()
    line.send(Puback(1))
    bench.commit()
    line.read()
    line.send(Puback(2))
    assert at_once(bench, line) == []
    restarted(bench)
    line = bench.join("s", durable=True)
    bench.commit()
    assert arrived(line) == [(b"1", 2, True), (b"2", 3, False)]


@pytest.mark.parametrize("qos", [(1,), (1, 2), (1, 1, 1, 2), (2,)])
def test_a_commit_takes_what_the_window_has_room_for(qos: tuple[int, ...]) -> None:
    """QoS 1 does not wait behind QoS 2 for one commit after the other."""
    bench = made()
    line = joined(bench, 40)
    published(bench, *[qos[number % len(qos)] for number in range(400)])
    received, commits = 0, 0
    while received < 400:
        bench.write_ready()
        packets = line.read()
        received += len(publishes(packets))
        for packet in packets:
            if isinstance(packet, Publish):
                ack = Puback if packet.qos == 1 else Pubrec
                line.send(ack(packet.packet_id))
            elif isinstance(packet, Pubrel):
                line.send(Pubcomp(packet.packet_id))
        if not packets:
            bench.finish(bench.seal())
            commits += 1
            assert commits < 30


def test_nothing_overtakes_what_was_dropped_before_the_commit_that_says_so() -> None:
    """A crash brings back what a full queue had dropped: it would come after its successor."""
    lane = StoredLane(0)
    for _ in range(4):
        lane.next_sequence_number()
    lane.seal(1, 0, True, 100)
    assert lane.may_send(3, 1)
    lane.wait_for_drop(2)
    assert not lane.may_send(3, 1)
    assert lane.may_send(3, 2)


# -- acknowledgements ----------------------------------------------------------------------


def test_an_acknowledgement_of_the_wrong_kind_closes_the_connection() -> None:
    pair = Pair()
    pair.publish(b"x", qos=1)
    pair.bench.commit()
    pair.line.send(Pubrec(1))
    farewell = pair.line.read()[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.PROTOCOL_ERROR


def test_unknown_packet_identifiers_are_answered() -> None:
    """MQTT 5 §3.6.2.1 §3.7.2.1"""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Puback(5), Pubcomp(6), Pubrec(7), Pubrel(8))
    bench.commit()
    assert line.read() == [
        Pubrel(7, reasons.PACKET_IDENTIFIER_NOT_FOUND),
        Pubcomp(8, reasons.PACKET_IDENTIFIER_NOT_FOUND),
    ]


def test_a_repeated_pubrec_is_answered_again() -> None:
    pair = Pair()
    pair.publish(b"x", qos=2)
    pair.bench.commit()
    pair.line.send(Pubrec(1), Pubrec(1))
    pair.bench.commit()
    assert pair.line.read()[1:] == [Pubrel(1), Pubrel(1)]


# -- again by time, MQTT 3.1 (v3.1 §4.1) -----------------------------------------------------------


LIMITS = EngineLimits(retry_interval_s=20)


class Revocable(Permissions):
    """Everything may be received but what was revoked."""

    def __init__(self) -> None:
        self.revoked = ""

    def may_receive(self, topic: str) -> bool:
        return topic != self.revoked


class Directory(Authorize):
    """The same permissions for everyone."""

    def __init__(self) -> None:
        self.common = Revocable()

    def permissions(self, _username: str | None, _client_id: str) -> Permissions | None:
        return self.common


def test_only_mqtt_31_gets_it_again_by_time() -> None:
    """v3.1 §4.1, and [MQTT-4.4.0-1] for later versions; each time after the interval."""
    for version in (3, 4, 5):
        bench = Bench(LIMITS)
        line = bench.subscriber("s", "t", 2, version)
        bench.publish("t", b"x", 2)
        assert [packet.dup for packet in publishes(line.read())] == [False]
        bench.pass_s(19)
        bench.commit()
        assert line.read() == []
        for _ in range(3):
            bench.pass_s(20)
            bench.commit()
            again = publishes(line.read())
            assert [packet.dup for packet in again] == ([True] if version == 3 else [])


def test_a_pubrel_is_sent_again_by_time_until_pubcomp() -> None:
    bench = Bench(LIMITS)
    line = bench.subscriber("s", "t", 2, 3)
    bench.publish("t", b"x", 2)
    (packet,) = publishes(line.read())
    bench.pass_s(15)
    line.send(Pubrec(packet.packet_id))
    bench.commit()
    assert line.read() == [Pubrel(packet.packet_id)]
    bench.pass_s(19)
    bench.commit()
    assert line.read() == []
    bench.pass_s(1)
    bench.commit()
    assert line.read() == [Pubrel(packet.packet_id, dup=True)]
    line.send(Pubcomp(packet.packet_id))
    bench.pass_s(100)
    bench.commit()
    assert line.read() == []


def test_a_client_that_does_not_read_gets_nothing_more_until_it_does() -> None:
    bench = Bench(LIMITS)
    line = bench.subscriber("s", "t", 2, 3)
    bench.publish("t", b"0", 2)
    bench.publish("t", b"1", 1)
    first, second = publishes(line.read())
    line.send(Pubrec(first.packet_id))
    bench.commit()
    assert line.read() == [Pubrel(first.packet_id)]
    line.connection.link.is_congested = True
    bench.pass_s(100)
    bench.commit()
    assert line.read() == []
    line.connection.writable(bench.now)
    bench.pass_s(1)
    bench.commit()
    released, again = line.read()
    assert released == Pubrel(first.packet_id, dup=True)
    assert publishes([again]) == [Publish("t", b"1", 1, dup=True, packet_id=second.packet_id)]


def test_a_message_not_permitted_any_more_is_dropped_once_and_gives_up_its_place() -> None:
    """To what waits for it, here and at a publisher."""
    directory = Directory()
    limits = EngineLimits(
        retry_interval_s=20, max_inflight=1, max_mqueue_len=1, mqueue_overflow=REJECT
    )
    bench = Bench(limits, authorize=directory)
    line = bench.subscriber("s", "+", 1, 3)
    publisher = bench.join("p", 4)
    for number, topic in enumerate(("revoked", "a", "b"), 1):
        publisher.send(Publish(topic, topic.encode(), 1, packet_id=number))
    bench.commit()
    assert payloads(line) == [b"revoked"]
    assert publisher.read() == [Puback(1), Puback(2)]
    directory.common.revoked = "revoked"
    bench.pass_s(20)
    bench.commit()
    (message,) = publishes(line.read())
    assert message.payload == b"a"
    assert publisher.read() == [Puback(3)]
    line.send(Puback(message.packet_id))
    for _ in range(3):
        bench.commit()
        bench.pass_s(20)
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


@pytest.mark.parametrize("crash", [False, True])
def test_of_qos_2_pubrel_goes_in_place_of_what_it_may_not_have_any_more(crash: bool) -> None:
    """The client may have the message and keep its identifier (``window``)."""
    directory = Directory()
    bench = Bench(LIMITS, authorize=directory)
    line = bench.subscriber("s", "+", 2, 3)
    bench.publish("revoked", b"x", 2)
    (message,) = publishes(line.read())
    directory.common.revoked = "revoked"
    bench.pass_s(20)
    bench.commit()
    assert line.read() == [Pubrel(message.packet_id, dup=True)]
    if crash:
        bench.restart()
        line = bench.join("s", 3, durable=True)
        assert line.read() == [Pubrel(message.packet_id, dup=True)]
    line.send(Pubcomp(message.packet_id))
    bench.commit()
    assert line.session.window_length == 0
    bench.pass_s(20)
    bench.commit()
    assert line.read() == []
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == (0 if crash else 1)


# -- a message that cannot be sent again -----------------------------------------------------------


def received_and_cut(version: int, qos: int) -> Pair:
    """A message reached the subscriber; its answer was lost with the connection."""
    pair = Pair(version=version)
    pair.publish(b"first" * 20, qos=qos)
    pair.bench.commit()
    assert [message.packet_id for message in publishes(pair.line.read())] == [1]
    pair.line.cut()
    pair.bench.commit()
    return pair


def test_a_qos_2_message_too_large_by_now_is_released() -> None:
    """[MQTT-3.1.2-24], [MQTT-4.3.3-7]"""
    pair = received_and_cut(V5, 2)
    line = pair.rejoin(size=50)
    assert pair.bench.server.drops.counts[drop_reasons.PACKET_TOO_LARGE] == 1
    assert line.read() == [Pubrel(1)]
    line.send(Pubcomp(1, 0x92))
    pair.bench.commit()
    assert line.session.window_length == 0
    assert pair.bench.server.drops.counts[drop_reasons.PACKET_TOO_LARGE] == 1


@pytest.mark.parametrize("version", [V311, V5])
def test_a_qos_2_message_that_retention_took_is_released(version: int) -> None:
    pair = received_and_cut(version, 2)
    pair.bench.store.trim_log(1 << 62, 0, 1 << 62)
    line = pair.rejoin()
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.RETENTION] == 1
    assert line.read() == [Pubrel(1)]
    line.send(Pubcomp(1))
    pair.bench.commit()
    assert line.session.window_length == 0


def test_a_packet_identifier_stays_taken_over_a_crash() -> None:
    pair = received_and_cut(V5, 2)
    pair.rejoin(size=50)
    pair.bench.commit()
    pair.bench.restart()
    pair.line = pair.rejoin()
    pair.publisher = pair.bench.join("p", 4)
    pair.publish(b"second", qos=2)
    pair.bench.commit()
    released, second = pair.line.read()
    assert released == Pubrel(1)
    assert [message.packet_id for message in publishes([second])] == [2]


def test_a_late_pubrec_ends_it_too() -> None:
    pair = received_and_cut(V5, 2)
    line = pair.rejoin(size=50)
    line.send(Pubrec(1), Pubcomp(1))
    pair.bench.commit()
    assert line.read() == [Pubrel(1), Pubrel(1)]
    assert line.session.window_length == 0


def test_a_qos_1_message_needs_nothing_more() -> None:
    pair = received_and_cut(V5, 1)
    line = pair.rejoin(size=50)
    assert line.read() == []
    assert line.session.window_length == 0
    line.send(Puback(1))
    assert not line.connection.link.is_closed
