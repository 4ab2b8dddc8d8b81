"""Packets as values."""

import pytest

from penstock.protocol import kinds, packets
from penstock.protocol.packets import (
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Subscription,
    Will,
)

CLASSES = [
    "Connect",
    "Connack",
    "Publish",
    "Puback",
    "Pubrec",
    "Pubrel",
    "Pubcomp",
    "Subscribe",
    "Suback",
    "Unsubscribe",
    "Unsuback",
    "Pingreq",
    "Pingresp",
    "Disconnect",
    "Auth",
]


def test_types_are_those_of_the_specification() -> None:
    """v5 §2.1.2, table 2-1: CONNECT is 1, AUTH is 15."""
    for number, name in enumerate(CLASSES, start=1):
        kind = getattr(packets, name)
        assert issubclass(kind, Packet)
        assert kind.type == number
        assert getattr(kinds, name.upper()) == number
        assert kinds.packet_name(number) == name.upper()


def test_equality() -> None:
    assert Publish("a", b"x") == Publish("a", b"x")
    assert Publish("a", b"x") != Publish("a", b"y")
    assert Puback(1) == Puback(1, 0, None)
    assert Puback(1) != Pubrec(1)
    assert Pingreq() == Pingreq()
    assert Pingreq() != Pingresp()
    assert Will("a", b"") != Subscription("a")
    assert Puback(1) != 1


def test_packets_are_mutable_and_have_no_hash() -> None:
    packet = Puback(1)
    packet.packet_id = 2
    assert packet == Puback(2)
    with pytest.raises(TypeError):
        hash(packet)


def test_repr_shows_the_fields() -> None:
    assert repr(Puback(1, 0x97)) == "Puback(1, 151, None)"
    assert repr(Subscription("a", 1)) == "Subscription('a', 1, False, False, 0)"


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(Connect("a", username="u", password=b"secret"))
