"""Messages that a dialled connection receives: handed over, settled, acknowledged in order."""

from __future__ import annotations

import pytest

from penstock.engine.dialling.unacknowledged import NOT_ACKNOWLEDGED
from penstock.engine.values.states import CLOSED, CONNECTED
from penstock.errors import LocalProtocolError
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.dialled_rig import Rig, opened


def test_topic_aliases_of_the_server_are_resolved() -> None:
    rig = Rig()
    rig.connect.properties = Properties(topic_alias_maximum=1)
    rig.dial()
    rig.says(
        Connack(0, True),
        Publish("t", b"1", properties=Properties(topic_alias=1)),
        Publish("", b"2", properties=Properties(topic_alias=1)),
    )
    assert [arrival.topic for arrival in rig.came] == ["t", "t"]
    assert [arrival.publish.properties for arrival in rig.came] == [None, None]
    rig.says(Publish("u", b"3", properties=Properties(topic_alias=2)))
    assert rig.connection.close_reason == "topic alias 2 is above the maximum"


def test_a_topic_alias_beside_other_properties_is_taken_out_of_them() -> None:
    rig = Rig()
    rig.connect.properties = Properties(topic_alias_maximum=1)
    rig.dial()
    alone = Properties(topic_alias=1)
    both = Properties(topic_alias=1, content_type="x")
    rig.says(
        Connack(0, True),
        Publish("t", b"1", properties=alone),
        Publish("", b"2", properties=both),
        Publish("", b"3", properties=alone),
    )
    assert [arrival.topic for arrival in rig.came] == ["t", "t", "t"]
    found = [arrival.publish.properties for arrival in rig.came]
    assert found == [None, Properties(content_type="x"), None]


def test_a_message_settled_after_its_session_was_lost_is_not_answered() -> None:
    rig = opened()
    rig.says(Publish("t", b"old", 2, packet_id=7))
    rig.again(present=False)
    assert rig.settle(0) == []
    rig.says(Publish("t", b"new", 2, packet_id=7))
    assert len(rig.came) == 2


def test_a_message_is_acknowledged_when_it_is_settled() -> None:
    rig = opened()
    assert rig.says(Publish("t", b"0"), Publish("t", b"1", 1, packet_id=1)) == []
    assert rig.settle(1) == [Puback(1)]
    assert rig.settle(0) == []


def test_acknowledgements_keep_the_order_of_the_messages() -> None:
    """[MQTT-4.6.0-2] [MQTT-4.6.0-3]"""
    rig = opened()
    rig.says(Publish("t", b"0", 1, packet_id=9), Publish("t", b"1", 2, packet_id=4))
    assert rig.settle(1) == []
    assert rig.settle(0) == [Puback(9), Pubrec(4)]
    assert rig.says(Pubrel(4)) == [Pubcomp(4)]


def test_a_refusal_is_said_in_mqtt_5() -> None:
    rig = opened()
    rig.says(Publish("t", b"0", 1, packet_id=1), Publish("t", b"1", 2, packet_id=2))
    assert rig.settle(0, 0x97) == [Puback(1, 0x97)]
    assert rig.settle(1, 0x83) == [Pubrec(2, 0x83)]
    assert rig.says(Publish("t", b"2", 2, packet_id=2)) == []
    assert len(rig.came) == 3


def test_before_mqtt_5_a_refused_message_is_acknowledged() -> None:
    """[MQTT-4.5.0-2]: a message that is never acknowledged would block the server's window."""
    rig = opened(4)
    rig.says(Publish("t", b"0", 1, packet_id=1))
    assert rig.settle(0, 0x97) == [Puback(1)]


def test_a_code_that_no_acknowledgement_has_is_our_own_mistake() -> None:
    rig = opened()
    rig.says(Publish("t", b"0", 1, packet_id=1))
    with pytest.raises(LocalProtocolError):
        rig.settle(0, 0x8B)
    assert rig.settle(0) == [Puback(1)]


def test_a_message_left_to_the_server_comes_again() -> None:
    rig = opened()
    rig.says(Publish("t", b"0", 2, packet_id=1))
    assert rig.settle(0, NOT_ACKNOWLEDGED) == []
    rig.again()
    rig.says(Publish("t", b"0", 2, dup=True, packet_id=1))
    assert rig.settle(1) == [Pubrec(1)]


@pytest.mark.parametrize("present", [False, True])
def test_a_completed_message_is_completed_again_unless_the_server_lost_the_session(
    present: bool,
) -> None:
    """The PUBCOMP was lost with the connection."""
    rig = opened()
    rig.says(Publish("t", b"0", 2, packet_id=1))
    assert rig.settle(0) == [Pubrec(1)]
    assert rig.says(Pubrel(1)) == [Pubcomp(1)]
    rig.again(present)
    assert rig.says(Pubrel(1)) == [Pubcomp(1, 0 if present else 0x92)]


def test_a_server_must_not_exceed_what_we_take() -> None:
    """[MQTT-3.3.4-9]"""
    rig = Rig()
    rig.connect.properties = Properties(receive_maximum=1)
    rig.dial()
    rig.says(Connack(0, True), Publish("t", b"0", 1, packet_id=1))
    assert rig.connection.state == CONNECTED
    rig.says(Publish("t", b"0", 1, packet_id=2))
    assert rig.connection.state == CLOSED


def test_a_topic_with_a_wildcard_is_no_topic_name() -> None:
    rig = opened()
    rig.says(Publish("t/#", b""))
    assert rig.connection.state == CLOSED


def test_the_server_is_not_read_while_the_application_has_no_room() -> None:
    rig = opened()
    rig.connection.is_application_full = True
    both = encode(Publish("t", b"0"), 5) + encode(Publish("t", b"1"), 5)
    rig.connection.receive(both, rig.now)
    assert (len(rig.came), rig.connection.is_reading_paused) == (1, True)
    rig.now_s += 1000  # our own silence is not the server's
    rig.connection.tick(rig.now)
    assert rig.connection.state == CONNECTED
    rig.connection.is_application_full = False
    rig.connection.resume(rig.now)
    assert (len(rig.came), rig.connection.is_reading_paused) == (2, False)
