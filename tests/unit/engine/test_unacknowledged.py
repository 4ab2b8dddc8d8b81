"""Received messages that are not acknowledged: which of them a PUBLISH repeats."""

from __future__ import annotations

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from tests.unit.engine.dialled_rig import DONE, opened


@pytest.mark.parametrize("is_settled", [False, True])
def test_pubrel_instead_of_the_message_ends_it_and_frees_its_packet_identifier(
    is_settled: bool,
) -> None:
    """The server cannot send it again, and asks us to forget its packet identifier."""
    rig = opened()
    rig.says(Publish("t", b"first", 1, packet_id=2), Publish("t", b"old", 2, packet_id=1))
    rig.connection.lost("cut", rig.now)
    if is_settled:
        rig.settle(1)
    rig.dial()
    assert rig.says(Connack(0, True), Pubrel(1)) == [Pubcomp(1)]
    assert rig.settle(1) == []
    assert not rig.session.inbound.awaits_release(1)
    rig.says(Publish("t", b"new", 2, packet_id=1))
    assert rig.settle(2) == [Pubrec(1)]
    assert rig.says(Pubrel(1)) == [Pubcomp(1)]


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        Publish("u", b"new", 1, packet_id=1),
        Publish("t", b"new", 1, dup=True, packet_id=1),
        Publish("t", b"old", 2, dup=True, packet_id=1),
        Publish("t", b"old", 1, packet_id=1),
    ],
)
def test_a_server_may_give_an_identifier_to_another_message(
    other: Publish, is_settled: bool
) -> None:
    """For example, when the first one expired while we were away."""
    rig = opened()
    rig.says(Publish("t", b"old", 1, packet_id=1))
    rig.connection.lost("cut", rig.now)
    if is_settled:
        rig.settle(0)
    rig.dial()
    assert rig.says(Connack(0, True), other) == []
    assert len(rig.came) == 2
    assert rig.settle(0) == []
    assert rig.settle(1) == [Puback(1) if other.qos == 1 else Pubrec(1)]


def test_a_message_that_was_given_up_does_not_hold_up_those_after_it() -> None:
    rig = opened()
    rig.says(Publish("t", b"0", 1, packet_id=1), Publish("t", b"1", 1, packet_id=2))
    rig.settle(1)
    assert rig.says(Publish("t", b"2", 1, packet_id=1)) == [Puback(2)]


def test_a_new_message_with_an_identifier_from_a_session_that_was_lost_unnoticed() -> None:
    """We died between the CONNACK that said so and the commit of it."""
    rig = opened()
    rig.says(Publish("t", b"old", 2, packet_id=7))
    rig.settle(0)
    rig.again()
    rig.says(Publish("t", b"new", 2, packet_id=7))
    assert len(rig.came) == 2
    assert rig.settle(1) == [Pubrec(7)]


def test_repeats_take_one_place_each() -> None:
    rig = opened()
    again = Publish("t", b"1", 2, dup=True, packet_id=2)
    rig.says(Publish("t", b"0", 1, packet_id=1), again)
    rig.settle(1)
    rig.again()
    rig.says(Publish("t", b"0", 1, dup=True, packet_id=1), *[again] * 100)
    assert len(rig.arrivals) == 2
    assert rig.settle(0) == [Puback(1), Pubrec(2)]


def test_an_older_connection_brings_nothing_any_more() -> None:
    rig = opened()
    old = rig.connection
    rig.dial()
    rig.says(Connack(0, True))
    old.receive(encode(Publish("t", b"late", 1, packet_id=5), 5), rig.now)
    assert old.close_reason == "another connection took the session over"
    assert rig.came == []


def test_a_message_settled_on_an_earlier_connection_may_be_settled_again() -> None:
    rig = opened()
    old = rig.connection
    rig.says(Publish("t", b"0", 1, packet_id=1))
    rig.again()
    rig.says(Publish("t", b"0", 1, dup=True, packet_id=1))
    old.settle(rig.came[0], DONE, rig.now)
    assert rig.settle(0) == [Puback(1)]


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback(1)), (2, Pubrec(1))])
def test_a_message_processed_while_the_connection_breaks_is_handed_over_once(
    qos: int, answer: Packet
) -> None:
    rig = opened()
    publish = Publish("t", b"0", qos, packet_id=1)
    again = Publish("t", b"0", qos, dup=True, packet_id=1)
    rig.says(publish)
    rig.again()
    assert rig.says(again) == []
    assert rig.settle(0) == [answer]
    assert len(rig.came) == 1


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback(1)), (2, Pubrec(1))])
def test_a_message_processed_after_the_connection_broke_is_handed_over_once(
    qos: int, answer: Packet
) -> None:
    rig = opened()
    rig.says(Publish("t", b"0", qos, packet_id=1))
    rig.connection.lost("cut", rig.now)
    assert rig.settle(0) == []
    rig.dial()
    assert rig.says(Connack(0, True), Publish("t", b"0", qos, dup=True, packet_id=1)) == [answer]
    assert len(rig.came) == 1
    if qos == 1:  # the server has the answer, and may use the identifier again
        rig.says(Publish("t", b"1", qos, packet_id=1))
        assert len(rig.came) == 2


def test_a_repeat_of_what_was_received_keeps_its_place_among_acknowledgements() -> None:
    rig = opened()
    rig.says(Publish("t", b"0", 1, packet_id=1), Publish("t", b"1", 2, packet_id=2))
    rig.settle(1)
    rig.again()
    again = (
        Publish("t", b"0", 1, dup=True, packet_id=1),
        Publish("t", b"1", 2, dup=True, packet_id=2),
    )
    assert rig.says(*again) == []
    assert rig.settle(0) == [Puback(1), Pubrec(2)]
