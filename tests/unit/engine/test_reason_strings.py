"""Reason strings: told to whom they are for, and never at the cost of the packet."""

import pytest

from penstock.engine.connection.reason_strings import encode_acknowledgement, reason_properties
from penstock.engine.values.refusals import REASON_CHARACTERS_MAX
from penstock.engine.wire.link import Link, Turn
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode_ack
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC, V5, V311
from penstock.protocol.packets import Puback, Pubcomp, Pubrec
from penstock.protocol.properties import Properties

WHY = "the queue of 's' is full"


def link(version: int = V5, size_bytes_max: int = 0, wants_reasons: bool = True) -> Link:
    made = Link(Turn())
    made.version = version
    made.max_packet_size_bytes = size_bytes_max
    made.problem_information = wants_reasons
    return made


def test_a_reason_is_for_clients_of_mqtt_5_that_want_one() -> None:
    """[MQTT-3.1.2-29]"""
    assert reason_properties(link(), WHY) == Properties(reason_string=WHY)
    assert reason_properties(link(V311), WHY) is None
    assert reason_properties(link(wants_reasons=False), WHY) is None
    assert reason_properties(link(), "") is None


def test_a_long_reason_is_cut() -> None:
    properties = reason_properties(link(), "x" * 1000)
    assert properties is not None
    assert properties.reason_string == "x" * REASON_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("packet_type", "kind"), [(PUBACK, Puback), (PUBREC, Pubrec), (PUBCOMP, Pubcomp)]
)
def test_an_acknowledgement_that_refuses_says_why(
    packet_type: int, kind: type[Puback | Pubrec | Pubcomp]
) -> None:
    code = reasons.PACKET_IDENTIFIER_NOT_FOUND if packet_type == PUBCOMP else reasons.QUOTA_EXCEEDED
    decoder = Decoder(1000, V5, server=False)
    decoder.feed(encode_acknowledgement(packet_type, 7, code, WHY, link()))
    assert decoder.next_packet() == kind(7, code, Properties(reason_string=WHY))


def test_an_acknowledgement_without_room_for_the_reason_goes_without() -> None:
    """[MQTT-3.4.2-2] [MQTT-3.5.2-2]"""
    whole = encode_acknowledgement(PUBACK, 7, reasons.QUOTA_EXCEEDED, WHY, link())
    bare = encode_ack(PUBACK, 7, reasons.QUOTA_EXCEEDED, V5)
    for size_bytes_max, expected in ((len(whole), whole), (len(whole) - 1, bare)):
        receiver = link(size_bytes_max=size_bytes_max)
        encoded = encode_acknowledgement(PUBACK, 7, reasons.QUOTA_EXCEEDED, WHY, receiver)
        assert encoded == expected


def test_an_acknowledgement_that_accepts_has_no_reason() -> None:
    encoded = encode_acknowledgement(PUBACK, 7, reasons.NO_MATCHING_SUBSCRIBERS, WHY, link())
    assert encoded == encode_ack(PUBACK, 7, reasons.NO_MATCHING_SUBSCRIBERS, V5)
