"""Hostile input, case by case: what is sent, in which versions, and what the broker must answer.

Bytes are hexadecimal. ``reason`` is what an MQTT 5 client is told in DISCONNECT; older clients
are told nothing, the connection just ends (v3.1.1 §4.8). Cases of packets that differ between
the versions stand in each form.
"""

from dataclasses import dataclass
from typing import Final

from penstock.protocol.kinds import V5, V31, V311

ALL: Final = (V31, V311, V5)
V3X: Final = (V31, V311)
STRICT: Final = (V311, V5)
ONLY5: Final = (V5,)
ONLY311: Final = (V311,)

MAX_PACKET_SIZE_BYTES: Final = 4096  # of the broker under attack
RECEIVE_MAXIMUM: Final = 5
TOPIC_ALIAS_MAXIMUM: Final = 16


@dataclass(frozen=True)
class Offence:
    """What a connected client must not send, and the reason code of the farewell."""

    name: str
    versions: tuple[int, ...]
    sent: str
    reason: int


@dataclass(frozen=True)
class Opening:
    """A first packet that is refused: with a CONNACK of this code, or without (None)."""

    name: str
    version: int  # in which the answer is read
    sent: str
    code: int | None = None


@dataclass(frozen=True)
class Oddity:
    """What a connected client may send, odd as it is, and the exact bytes of the answer."""

    name: str
    versions: tuple[int, ...]
    sent: str
    answer: str


OFFENCES: Final = [
    # -- fixed header ------------------------------------------------------------------
    Offence("packet type 0", ALL, "00 00", 0x81),
    Offence("remaining length of five bytes", ALL, "30 80 80 80 80 01", 0x81),
    Offence("remaining length longer than needed", ONLY5, "c0 80 00", 0x81),
    Offence("the greatest remaining length", ALL, "30 ff ff ff 7f", 0x95),
    Offence("one byte above the maximum packet size", ALL, "30 fe 1f", 0x95),
    Offence("PUBLISH with QoS 3 [MQTT-3.3.1-4]", ALL, "36 05 0001 61 0001", 0x81),
    Offence("QoS 0 with DUP [MQTT-3.3.1-2]", STRICT, "38 04 0001 61 00", 0x81),
    Offence("PUBACK with flags", STRICT, "41 02 0001", 0x81),
    Offence("PUBREC with flags", STRICT, "52 02 0001", 0x81),
    Offence("PUBREL with flags 0 [MQTT-3.6.1-1]", STRICT, "60 02 0001", 0x81),
    Offence("PUBCOMP with flags", STRICT, "78 02 0001", 0x81),
    Offence("SUBSCRIBE with flags 0 [MQTT-3.8.1-1]", V3X, "80 06 0001 0001 61 00", 0x81),
    Offence("SUBSCRIBE with flags 0, 5", ONLY5, "80 07 0001 00 0001 61 00", 0x81),
    Offence("UNSUBSCRIBE with flags 0 [MQTT-3.10.1-1]", V3X, "a0 05 0001 0001 61", 0x81),
    Offence("PINGREQ with flags", STRICT, "c1 00", 0x81),
    Offence("DISCONNECT with flags [MQTT-3.14.1-1]", STRICT, "e1 00", 0x81),
    # -- the wrong packet --------------------------------------------------------------
    Offence("a second CONNECT [MQTT-3.1.0-2]", V3X, "10 0d 0004 4d515454 04 02 0000 0001 61", 0x82),
    Offence(
        "a second CONNECT, 5 [MQTT-3.1.0-2]",
        ONLY5,
        "10 0e 0004 4d515454 05 02 0000 00 0001 61",
        0x82,
    ),
    Offence("CONNACK from a client", V3X, "20 02 00 00", 0x82),
    Offence("CONNACK from a client, 5", ONLY5, "20 03 00 00 00", 0x82),
    Offence("SUBACK from a client", V3X, "90 03 0001 00", 0x82),
    Offence("UNSUBACK from a client", V3X, "b0 02 0001", 0x82),
    Offence("PINGRESP from a client", ALL, "d0 00", 0x82),
    Offence("AUTH before MQTT 5", V3X, "f0 00", 0x81),
    Offence("AUTH without an authentication method", ONLY5, "f0 00", 0x82),
    # -- PUBLISH -----------------------------------------------------------------------
    Offence("PUBLISH cut short within the length of its topic", ALL, "30 01 00", 0x81),
    Offence("PUBLISH cut short within its topic", ALL, "30 03 00ff 61", 0x81),
    Offence("PUBLISH cut short before its packet identifier", ALL, "32 04 0001 61 00", 0x81),
    Offence("PUBLISH cut short within its properties", ONLY5, "30 05 0001 61 09 01", 0x81),
    Offence("a topic that is not UTF-8 [MQTT-1.5.4-1]", ALL, "30 05 0001 ff 00 00", 0x81),
    Offence("a surrogate in the topic [MQTT-1.5.4-1]", ALL, "30 06 0003 eda080 00", 0x81),
    Offence("an overlong form in the topic", ALL, "30 05 0002 c0af 00", 0x81),
    Offence("U+0000 in the topic [MQTT-1.5.4-2]", ALL, "30 06 0003 610062 00", 0x81),
    Offence("# in the topic [MQTT-3.3.2-2]", ALL, "30 06 0003 612f23 00", 0x90),
    Offence("+ in the topic [MQTT-3.3.2-2]", ALL, "30 04 0001 2b 00", 0x90),
    Offence("no topic", V3X, "30 02 0000", 0x82),
    Offence("no topic and no alias", ONLY5, "30 03 0000 00", 0x82),
    Offence("packet identifier 0 [MQTT-2.2.1-3]", ALL, "32 06 0001 61 0000 00", 0x82),
    Offence("packet identifier 0, QoS 2", ALL, "34 06 0001 61 0000 00", 0x82),
    Offence("topic alias 0 [MQTT-3.3.2-8]", ONLY5, "30 07 0001 61 03 23 0000", 0x94),
    Offence("topic alias above the limit [MQTT-3.3.2-9]", ONLY5, "30 07 0001 61 03 23 0011", 0x94),
    Offence("topic alias that was never set", ONLY5, "30 06 0000 03 23 0005", 0x82),
    Offence("topic alias twice", ONLY5, "30 0a 0001 61 06 23 0001 23 0001", 0x82),
    Offence("a property twice", ONLY5, "30 08 0001 61 04 01 00 01 01", 0x82),
    Offence("an unknown property", ONLY5, "30 06 0001 61 02 7f 00", 0x81),
    Offence("a property of another packet", ONLY5, "30 07 0001 61 03 21 0001", 0x81),
    Offence("a property length beyond the packet", ONLY5, "30 06 0001 61 ff 7f 00", 0x81),
    Offence("a property cut short", ONLY5, "30 06 0001 61 02 02 00", 0x81),
    Offence("payload format indicator 2", ONLY5, "30 06 0001 61 02 01 02", 0x82),
    Offence("a subscription identifier in PUBLISH", ONLY5, "30 06 0001 61 02 0b 01", 0x82),
    Offence("a wildcard in the response topic", ONLY5, "30 08 0001 61 04 08 0001 23", 0x82),
    Offence("U+0000 in a user property", ONLY5, "30 0b 0001 61 07 26 0001 00 0001 61", 0x81),
    # -- SUBSCRIBE and UNSUBSCRIBE -----------------------------------------------------
    Offence("SUBSCRIBE without a filter [MQTT-3.8.3-2]", V3X, "82 02 0001", 0x82),
    Offence("SUBSCRIBE without a filter, 5", ONLY5, "82 03 0001 00", 0x82),
    Offence("SUBSCRIBE with packet identifier 0", ONLY5, "82 07 0000 00 0001 61 00", 0x82),
    Offence("SUBSCRIBE with packet identifier 0, 3", V3X, "82 06 0000 0001 61 00", 0x82),
    Offence("SUBSCRIBE with QoS 3 [MQTT-3.8.3-4]", ONLY5, "82 07 0001 00 0001 61 03", 0x82),
    Offence("SUBSCRIBE with QoS 3, 3.1.1", ONLY311, "82 06 0001 0001 61 03", 0x82),
    Offence("reserved option bits [MQTT-3.8.3-5]", ONLY5, "82 07 0001 00 0001 61 40", 0x81),
    Offence("reserved option bits, 3.1.1", ONLY311, "82 06 0001 0001 61 04", 0x81),
    Offence("retain handling 3", ONLY5, "82 07 0001 00 0001 61 30", 0x82),
    Offence("No Local on a shared one", ONLY5, "82 10 0001 00 000a 2473686172652f672f61 04", 0x82),
    Offence("a filter without its options", ONLY5, "82 06 0001 00 0001 61", 0x81),
    Offence("a filter that is not UTF-8", ONLY5, "82 07 0001 00 0001 ff 00", 0x81),
    Offence("an empty filter [MQTT-4.7.3-1]", ONLY5, "82 06 0001 00 0000 00", 0x82),
    Offence("subscription identifier 0", ONLY5, "82 09 0001 02 0b00 0001 61 00", 0x82),
    Offence("two subscription identifiers", ONLY5, "82 0b 0001 04 0b01 0b02 0001 61 00", 0x82),
    Offence("UNSUBSCRIBE without a filter [MQTT-3.10.3-2]", V3X, "a2 02 0001", 0x82),
    Offence("UNSUBSCRIBE without a filter, 5", ONLY5, "a2 03 0001 00", 0x82),
    # -- acknowledgements and the end --------------------------------------------------
    Offence("PUBACK with packet identifier 0", ALL, "40 02 0000", 0x82),
    Offence("PUBREL with packet identifier 0", ALL, "62 02 0000", 0x82),
    Offence("PUBACK cut short", ALL, "40 01 00", 0x81),
    Offence("PUBACK with an unknown reason code", ONLY5, "40 03 0001 01", 0x82),
    Offence("PUBREL with a body too long", V3X, "62 03 0001 00", 0x81),
    Offence("PINGREQ with a body", ALL, "c0 01 00", 0x81),
    Offence("DISCONNECT with a body", ONLY311, "e0 01 00", 0x81),
    Offence("DISCONNECT with an unknown reason code", ONLY5, "e0 01 03", 0x82),
    Offence("DISCONNECT that raises expiry from 0", ONLY5, "e0 07 00 05 11 00000001", 0x82),
    Offence(
        "more in flight than the Receive Maximum [MQTT-3.3.4-7]",
        ONLY5,
        " ".join(f"34 06 0001 61 00{number:02x} 00" for number in range(1, 7)),
        0x93,
    ),
]

_NAME: Final = "0004 4d515454"  # "MQTT"
OPENINGS: Final = [
    Opening("PUBLISH before CONNECT [MQTT-3.1.0-1]", V5, "30 04 0001 61 00"),
    Opening("SUBSCRIBE before CONNECT", V5, "82 07 0001 00 0001 61 00"),
    Opening("PINGREQ before CONNECT", V311, "c0 00"),
    Opening("DISCONNECT before CONNECT", V5, "e0 00"),
    Opening("an HTTP request", V311, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".hex()),
    Opening("a TLS greeting", V311, "16 03 01 02 00 01 00 01 fc 03 03"),
    Opening("another protocol name", V311, "10 0d 0004 48545450 04 02 0000 0001 61"),
    Opening("MQTT with the level of 3.1", V311, f"10 0d {_NAME} 03 02 0000 0001 61", 1),
    Opening("MQIsdp with the level of 3.1.1", V31, "10 0f 0006 4d5149736470 04 02 0000 0001 61", 1),
    Opening("level 6", V5, f"10 0e {_NAME} 06 02 0000 00 0001 61", 0x84),
    Opening("level 2", V311, f"10 0d {_NAME} 02 02 0000 0001 61", 1),
    Opening("flags in the fixed header", V311, f"11 0d {_NAME} 04 02 0000 0001 61"),
    Opening("the reserved flag, 3.1.1 [MQTT3-3.1.2-3]", V311, f"10 0d {_NAME} 04 03 0000 0001 61"),
    Opening(
        "the reserved flag, 5 [MQTT-3.1.2-3]", V5, f"10 0e {_NAME} 05 03 0000 00 0001 61", 0x81
    ),
    Opening("a will with QoS 3", V5, f"10 14 {_NAME} 05 1e 0000 00 0001 61 00 0001 77 0000", 0x81),
    Opening("will QoS without a will", V5, f"10 0e {_NAME} 05 0a 0000 00 0001 61", 0x81),
    Opening("will retain without a will", V311, f"10 0d {_NAME} 04 22 0000 0001 61"),
    Opening(
        "a will with a wildcard", V5, f"10 14 {_NAME} 05 06 0000 00 0001 61 00 0001 23 0000", 0x90
    ),
    Opening("a password without a user name", V311, f"10 10 {_NAME} 04 42 0000 0001 61 0001 70"),
    Opening("a user name that is announced only", V311, f"10 0d {_NAME} 04 82 0000 0001 61"),
    Opening(
        "a client identifier that is not UTF-8", V5, f"10 0e {_NAME} 05 02 0000 00 0001 ff", 0x81
    ),
    Opening("U+0000 in the client identifier", V5, f"10 0e {_NAME} 05 02 0000 00 0001 00", 0x81),
    Opening("Receive Maximum 0", V5, f"10 11 {_NAME} 05 02 0000 03 21 0000 0001 61", 0x82),
    Opening("Maximum Packet Size 0", V5, f"10 13 {_NAME} 05 02 0000 05 27 00000000 0001 61", 0x82),
    Opening("a property twice", V5, f"10 14 {_NAME} 05 02 0000 06 21 0001 21 0001 0001 61", 0x82),
    Opening("an unknown property", V5, f"10 10 {_NAME} 05 02 0000 02 7f 00 0001 61", 0x81),
    Opening("a property of PUBLISH", V5, f"10 10 {_NAME} 05 02 0000 02 01 00 0001 61", 0x81),
    Opening("authentication data alone", V5, f"10 11 {_NAME} 05 02 0000 03 16 0000 0001 61", 0x82),
    Opening("something behind the last field", V311, f"10 0e {_NAME} 04 02 0000 0001 61 00"),
    Opening("a CONNECT that ends early", V311, f"10 0b {_NAME} 04 02 0000 00"),
    Opening("a CONNECT above the maximum packet size", V5, "10 fe 1f"),
    Opening("remaining length of five bytes", V5, "10 80 80 80 80 01"),
    Opening("no client identifier and a kept session", V311, f"10 0c {_NAME} 04 00 0000 0000", 2),
    Opening(
        "a client identifier of 24 characters, 3.1",
        V31,
        f"10 26 0006 4d5149736470 03 02 0000 0018 {'61' * 24}",
        2,
    ),
]

ODDITIES: Final = [
    Oddity("PUBREL for an unknown message", V3X, "62 02 0007", "70 02 0007"),
    Oddity("PUBREL for an unknown message, 5", ONLY5, "62 02 0007", "70 03 0007 92"),
    Oddity("PUBACK for an unknown message", ALL, "40 02 0007", ""),
    Oddity("PUBCOMP for an unknown message", ALL, "70 02 0007", ""),
    Oddity("PUBREC for an unknown message", V3X, "50 02 0007", "62 02 0007"),
    Oddity("PUBREC for an unknown message, 5", ONLY5, "50 02 0007", "62 03 0007 92"),
    Oddity("UNSUBSCRIBE from what was never subscribed", V3X, "a2 05 0007 0001 7a", "b0 02 0007"),
    Oddity(
        "UNSUBSCRIBE from what was never subscribed, 5",
        ONLY5,
        "a2 06 0007 00 0001 7a",
        "b0 04 0007 00 11",
    ),
    Oddity(
        "a filter with # in the middle",
        ONLY5,
        "82 0b 0007 00 0005 612f232f62 00",
        "90 04 0007 00 8f",
    ),
    Oddity(
        "a filter with # in the middle, 3.1.1",
        ONLY311,
        "82 0a 0007 0005 612f232f62 00",
        "90 03 0007 80",
    ),
    Oddity("a topic of the broker", ONLY5, "32 0b 0006 245359532f61 0007 00", "40 03 0007 87"),
]
