"""QoS 1 and 2 messages that leave before the commit of this turn: ``Transmission``."""

from __future__ import annotations

from typing import final

import pytest

from penstock.engine.session.packet_ids import packet_id_of
from penstock.engine.session.session import Session
from penstock.engine.session.stored_queue import StoredLane
from penstock.engine.values.access import Permissions
from penstock.engine.values.limits import NEVER_EXPIRES_S, EngineLimits
from penstock.engine.values.message import Delivery
from penstock.engine.values.priorities import PRIORITY_SHIFT
from penstock.engine.values.records import AWAIT_PUBACK
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
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


def test_packet_identifiers_follow_from_sequences() -> None:
    assert [packet_id_of(sequence) for sequence in (0, 1, 65_535, 65_536)] == [0, 1, 65_535, 1]


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
