"""How far the other end is behind, and what a bridge counts of its way out."""

from __future__ import annotations

from penstock.bridge.consumer_lag import UNKNOWN, ConsumerLag
from penstock.bridge.forwarding import BridgeOutlet, Forwarding, Rule
from penstock.engine.session.queue import MessageQueue
from penstock.engine.values import drop_reasons
from penstock.engine.values.message import Delivery, Message
from penstock.protocol.packets import Connack, Puback, Pubcomp, Pubrec
from penstock.protocol.properties import Properties
from tests.unit.engine.dialled_rig import Rig, opened
from tests.unit.engine.test_queue import bounded, delivery


def known(rig: Rig, lag: ConsumerLag) -> float:
    """The lag, once it is read what has to be read."""
    lag.seconds(rig.now)
    rig.turn()
    return lag.seconds(rig.now)


def test_nothing_waits() -> None:
    rig = opened()
    assert ConsumerLag(rig.session, rig.context).seconds(rig.now) == 0.0


def test_the_oldest_in_flight_counts_until_it_is_taken_over() -> None:
    """PUBREC says so as PUBACK does: PUBCOMP only lets go of the packet identifier."""
    rig = opened()
    lag = ConsumerLag(rig.session, rig.context)
    rig.publish(b"1", 1)
    rig.now_s += 5
    rig.publish(b"2", 2)
    rig.now_s += 2
    assert lag.seconds(rig.now) == 7.0
    rig.says(Puback(1))
    assert lag.seconds(rig.now) == 2.0
    rig.says(Pubrec(2))
    assert lag.seconds(rig.now) == 0.0
    assert rig.session.window_length == 1


def test_a_message_that_waits_behind_the_window_is_younger() -> None:
    rig = opened()
    lag = ConsumerLag(rig.session, rig.context)
    for number in range(15):  # the window has ten places
        rig.publish(b"%d" % number, 1)
        rig.now_s += 1
    assert lag.seconds(rig.now) == 15.0
    rig.says(*(Puback(number) for number in range(1, 11)))
    rig.says(*(Puback(number) for number in range(11, 15)))
    assert lag.seconds(rig.now) == 1.0


def test_while_the_other_end_is_away_the_log_is_asked_once() -> None:
    rig = opened()
    lag = ConsumerLag(rig.session, rig.context)
    rig.connection.lost("cut", rig.now)
    for number in range(3):
        rig.publish(b"%d" % number, 1)
        rig.now_s += 1
    assert lag.seconds(rig.now) == UNKNOWN
    assert lag.seconds(rig.now) == UNKNOWN
    ((requester, asked),) = rig.context.batch.body_requests
    assert requester.purpose() == f"the lag of client {rig.session.client_id}", "for a log line"
    assert asked == [0]
    rig.turn()
    assert lag.seconds(rig.now) == 3.0
    rig.now_s += 1
    assert lag.seconds(rig.now) == 4.0
    assert rig.context.batch.body_requests == []


def test_an_answer_that_came_too_late_is_not_taken() -> None:
    rig = opened()
    lag = ConsumerLag(rig.session, rig.context)
    rig.connection.lost("cut", rig.now)
    rig.publish(b"1", 1)
    rig.publish(b"2", 1)
    assert lag.seconds(rig.now) == UNKNOWN
    ((_, asked),) = rig.context.batch.body_requests
    rig.dial()
    rig.says(Connack(0, True))
    rig.says(Puback(1))
    rig.connection.lost("cut", rig.now)
    rig.now_s += 3
    assert lag.seconds(rig.now) == UNKNOWN
    lag.supply(asked, rig.store.read(asked), rig.now)
    assert lag.seconds(rig.now) == UNKNOWN
    rig.turn()
    assert lag.seconds(rig.now) == 3.0


def test_one_that_retention_took_stays_unknown_and_is_not_asked_for_again() -> None:
    rig = opened()
    lag = ConsumerLag(rig.session, rig.context)
    rig.connection.lost("cut", rig.now)
    rig.publish(b"1", 1)
    assert lag.seconds(rig.now) == UNKNOWN
    ((_, asked),) = rig.context.batch.body_requests
    rig.context.batch.body_requests.clear()
    lag.supply(asked, {}, rig.now)
    assert lag.seconds(rig.now) == UNKNOWN
    assert rig.context.batch.body_requests == []


def test_a_message_in_flight_when_the_connection_broke_counts_on() -> None:
    rig = opened()
    lag = ConsumerLag(rig.session, rig.context)
    rig.publish(b"1", 1)
    rig.now_s += 2
    rig.connection.lost("cut", rig.now)
    assert known(rig, lag) == 2.0


def test_a_clock_that_is_set_back_gives_no_age_below_0() -> None:
    rig = opened()
    lag = ConsumerLag(rig.session, rig.context)
    rig.publish(b"1", 1)
    rig.now_s -= 10
    assert lag.seconds(rig.now) == 0.0


def test_the_oldest_of_a_queue_is_that_of_any_priority() -> None:
    queue: MessageQueue = bounded()
    assert queue.oldest() is None
    queue.push(delivery("low", 1, 5, 1), 1)
    queue.push(delivery("high", 1, 6, 1), 9)
    head, oldest = queue.head(), queue.oldest()
    assert head is not None
    assert oldest is not None
    assert (head.offset, oldest.offset) == (6, 5)


def test_the_oldest_is_in_the_window_or_in_the_queue_by_its_offset() -> None:
    """With priorities, what waits may be older than what was sent."""
    rig = opened(properties=Properties(receive_maximum=1))
    rig.publish(b"sent", 1)
    rig.publish(b"waits", 1)
    oldest = rig.session.outbound.oldest()
    assert oldest is not None
    assert oldest.offset == 0
    older = Delivery(Message("t", b"not in the log"), -1, 0)
    older.size_bytes = 1
    rig.session.backlog.queue.push(older, 1)
    assert rig.session.outbound.oldest() is older


def counts(rig: Rig) -> tuple[int, int, int]:
    outlet = rig.session.transmission.outlet
    assert isinstance(outlet, BridgeOutlet)
    return outlet.sent, outlet.resent, outlet.acknowledged


def forward_all(rig: Rig) -> None:
    forwarding = Forwarding([Rule("#", "", "", 2, True)], 1, [])
    rig.session.transmission.outlet = BridgeOutlet(forwarding)


def test_a_bridge_counts_what_it_sends_sends_again_and_hears_of() -> None:
    rig = opened()
    forward_all(rig)
    for qos in (0, 1, 2):
        rig.publish(b"%d" % qos, qos)
    assert counts(rig) == (3, 0, 0)
    rig.says(Puback(1), Pubrec(2))
    assert counts(rig) == (3, 0, 1)
    rig.says(Pubcomp(2))
    assert counts(rig) == (3, 0, 2)
    rig.publish(b"3", 1)
    rig.publish(b"4", 2)
    rig.says(Pubrec(4))
    rig.again()  # PUBLISH of 3, PUBREL of 4
    assert counts(rig) == (5, 1, 2)
    rig.again(present=False)  # sent anew, by a packet without DUP
    assert counts(rig) == (5, 2, 2)
    rig.says(Puback(3, 0x97))  # refused: it is a drop
    assert counts(rig) == (5, 2, 2)


def test_a_message_that_cannot_be_sent_is_not_counted() -> None:
    rig = opened(properties=Properties(maximum_packet_size=30))
    forward_all(rig)
    rig.publish(b"x" * 100, 1)
    assert counts(rig) == (0, 0, 0)


def test_a_message_that_waited_for_a_rule_that_is_gone_is_counted_as_not_permitted() -> None:
    rig = opened()
    forward_all(rig)
    rig.publish(b"x", 1)
    rig.session.transmission.outlet = BridgeOutlet(Forwarding([], 1, []))
    rig.again(present=False)
    assert rig.drops.counts[drop_reasons.NO_PERMISSION] == 1
    assert sum(rig.drops.counts) == 1
