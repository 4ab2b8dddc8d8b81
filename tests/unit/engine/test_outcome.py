"""Who sent a message is told what became of it, once, however it ends."""

from __future__ import annotations

from typing import final

import pytest

from penstock.engine.session.outcome import DeliveryOutcomes
from penstock.engine.values.drop_reasons import EXPIRED, PACKET_TOO_LARGE, RETENTION
from penstock.engine.values.limits import DROP_OLDEST, EngineLimits
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.states import CONNECTED
from penstock.protocol.packets import Connack, Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from tests.unit.engine.dialled_rig import Rig

TOO_SMALL = Properties(maximum_packet_size=20)


@final
class Told(DeliveryOutcomes):
    def __init__(self) -> None:
        self.acks: list[tuple[int, int]] = []
        self.refusals: list[tuple[int, int]] = []
        self.drops: list[tuple[int, int]] = []

    def on_acknowledged(self, delivery: Delivery, reason_code: int) -> None:
        self.acks.append((delivery.offset, reason_code))

    def on_refused(self, delivery: Delivery, reason_code: int) -> None:
        self.refusals.append((delivery.offset, reason_code))

    def on_drop(self, reason: int, client_id: str, delivery: Delivery) -> None:
        del client_id
        if (delivery.offset, 0x87) not in self.refusals:
            self.drops.append((delivery.offset, reason))


def opened(properties: Properties | None = None) -> tuple[Rig, Told]:
    rig = Rig()
    told = Told()
    rig.session.transmission.outcomes = told
    rig.drops.drop_handler = told
    rig.says(Connack(0, True, properties))
    return rig, told


def test_puback_and_pubcomp_are_told() -> None:
    rig, told = opened()
    rig.publish(b"0", 1)
    rig.publish(b"1", 2)
    rig.says(Puback(1, 0x10), Pubrec(2, 0))
    assert told.acks == [(0, 0x10)]
    rig.says(Pubcomp(2, 0))
    assert told.acks == [(0, 0x10), (1, 0)]
    assert (told.refusals, told.drops) == ([], [])


def test_a_refusal_is_told_with_its_code() -> None:
    rig, told = opened()
    rig.publish(b"0", 1)
    rig.publish(b"1", 2)
    rig.says(Puback(1, 0x87), Pubrec(2, 0x87))
    assert told.refusals == [(0, 0x87), (1, 0x87)]
    assert (told.acks, told.drops) == ([], [])


def test_a_message_too_large_for_the_server_is_told() -> None:
    rig, told = opened(TOO_SMALL)
    rig.publish(b"x" * 20, 1)
    assert told.drops == [(0, PACKET_TOO_LARGE)]
    assert told.acks == []


def test_a_message_that_expires_on_its_way_is_told() -> None:
    rig, told = opened()
    rig.connection.lost("cut", rig.now)
    message = Message("t", b"old", 1, False, "c", rig.now.wall_us)
    message.expires_at_us = rig.now.wall_us + 1
    rig.context.batch.append(message)
    rig.session.outbound.deliver(message, 1, False, (), False, rig.now)
    rig.now_s += 1
    rig.dial()
    rig.says(Connack(0, True))
    assert told.drops == [(0, EXPIRED)]


def test_a_message_that_waits_too_long_is_told_wherever_its_body_is() -> None:
    rig, told = opened()
    rig.session.outbound.max_age_us = 5_000_000
    rig.publish(b"in flight", 1)
    rig.connection.lost("cut", rig.now)
    rig.publish(b"old", 1)
    rig.now_s += 1
    rig.publish(b"young", 2)
    rig.now_s += 4
    rig.dial()
    assert rig.says(Connack(0, True)) == [
        Publish("t", b"in flight", 1, False, True, 1),
        Publish("t", b"young", 2, False, False, 3),
    ]
    assert told.drops == [(1, EXPIRED)]
    assert (rig.session.queue_length, rig.session.backlog.queue_bytes) == (0, 0)


def test_a_message_taken_over_by_the_server_that_lost_the_session_is_delivered() -> None:
    rig, told = opened()
    rig.publish(b"0", 2)
    rig.publish(b"1", 2)
    rig.says(Pubrec(1, 0))
    assert rig.again(present=False) == [Publish("t", b"1", 2, False, False, 2)]
    assert told.acks == [(0, 0)]


def test_a_message_that_the_server_takes_with_qos_0_only_is_delivered_when_sent() -> None:
    rig, told = opened(Properties(maximum_qos=0))
    assert rig.publish(b"0", 1) == [Publish("t", b"0")]
    assert told.acks == [(0, 0)]


def test_a_message_that_the_log_has_lost_is_told_on_its_way_and_in_the_queue() -> None:
    rig, told = opened()
    rig.publish(b"0", 1)
    rig.publish(b"1", 2)
    rig.connection.lost("cut", rig.now)
    rig.publish(b"2", 1)
    rig.store.trim_log(1 << 62, 0, 1 << 62)
    rig.dial()
    assert rig.says(Connack(0, True)) == [Pubrel(2)]
    assert told.drops == [(0, RETENTION), (1, RETENTION), (2, RETENTION)]
    assert rig.drops.counts[RETENTION] == 3
    rig.says(Pubcomp(2))
    assert rig.session.window_length == 0


def test_a_message_dropped_for_another_is_told() -> None:
    rig = Rig(limits=EngineLimits(max_inflight=1, max_mqueue_len=1, mqueue_overflow=DROP_OLDEST))
    told = Told()
    rig.session.transmission.outcomes = told
    rig.drops.drop_handler = told
    rig.says(Connack(0, True))
    for payload in (b"0", b"1", b"2"):
        rig.publish(payload, 1)
    assert [offset for offset, _ in told.drops] == [1]


# -- a session that was somebody else's ------------------------------------------------------


def inherited(stored: bool = False) -> Rig:
    rig = Rig(stored=stored)
    rig.needs_packet_id_cleanup = True
    rig.dial()
    return rig


def test_packet_identifiers_of_a_former_program_are_released_before_anything_is_sent() -> None:
    rig = inherited()
    assert rig.publish(b"0", 2) == []
    released = rig.says(Connack(0, True))
    assert released == [Pubrel(number) for number in range(1, 1011)]  # window 10, and 1000
    assert rig.says(*(Pubcomp(number, 0x92) for number in range(1, 1010))) == []
    assert rig.says(Pubcomp(1010, 0)) == [Publish("t", b"0", 2, False, False, 1)]
    assert not rig.connection.needs_packet_id_cleanup


def test_none_is_used_that_was_not_released() -> None:
    rig = inherited()
    rig.says(Connack(0, True))
    rig.says(*(Pubcomp(number, 0x92) for number in range(1, 1011)))
    used = set()
    for _ in range(1100):
        (sent,) = rig.publish(b"0", 1)
        assert isinstance(sent, Publish)
        used.add(sent.packet_id)
        rig.says(Puback(sent.packet_id))
    assert max(used) == 1010


def test_a_session_that_is_stored_may_use_all_of_them() -> None:
    """The next program, which inherits nothing, does."""
    rig = inherited(stored=True)
    released = rig.says(Connack(0, True))
    assert released == [Pubrel(number) for number in range(1, 65_536)]


def test_a_server_without_qos_2_has_nothing_to_release() -> None:
    rig = inherited()
    rig.publish(b"0", 1)
    answers = rig.says(Connack(0, True, Properties(maximum_qos=1)))
    assert answers == [Publish("t", b"0", 1, False, False, 1)]


def test_a_server_that_answers_none_of_it_is_not_waited_for() -> None:
    rig = inherited()
    rig.publish(b"0", 2)
    rig.says(Connack(0, True))
    rig.says(Pubcomp(1))
    assert rig.connection.deadline_s() == 110.0
    rig.now_s = 110.0
    rig.connection.tick(rig.now)
    assert rig.turn() == [Publish("t", b"0", 2, False, False, 1)]


def test_only_what_was_asked_for_counts() -> None:
    rig = inherited()
    rig.publish(b"0", 2)
    rig.says(Connack(0, True))
    assert rig.says(*(Pubcomp(1, 0x92) for _ in range(1010))) == []


def test_a_connection_that_breaks_meanwhile_begins_anew() -> None:
    rig = inherited()
    rig.publish(b"0", 2)
    rig.says(Connack(0, True))
    rig.says(Pubcomp(1))
    assert rig.connection.needs_packet_id_cleanup
    assert rig.again()[:2] == [Pubrel(1), Pubrel(2)]


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_that_is_gone_needs_no_such_thing(version: int) -> None:
    rig = Rig(version)
    rig.needs_packet_id_cleanup = True
    rig.dial()
    rig.publish(b"0", 2)
    assert rig.says(Connack(0, False)) == [Publish("t", b"0", 2, False, False, 1)]
    assert rig.connection.state == CONNECTED
    assert not rig.connection.needs_packet_id_cleanup
