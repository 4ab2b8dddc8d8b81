"""PUBLISH (v5 §3.3, v3.1.1 §3.3, v3.1 §3.3): valid and not."""

from penstock.protocol.packets import Publish
from penstock.protocol.properties import Properties
from tests.vectors import (
    ALL,
    CLIENT,
    ONLY5,
    ONLY31,
    ONLY311,
    SERVER,
    STRICT,
    V3X,
    Mistake,
    Valid,
    octets,
)

_LONG = bytes(range(256)) * 80  # 20,480 bytes: a remaining length of three bytes

VALID = [
    Valid(
        "QoS 0",
        V3X,
        CLIENT,
        octets("""
        30 07           # PUBLISH, 7 bytes
        00 03 61 2f 62  # topic "a/b"
        68 69           # payload "hi"
        """),
        Publish("a/b", b"hi"),
    ),
    Valid(
        "QoS 0, 5", ONLY5, CLIENT, octets("30 08 00 03 61 2f 62 00 68 69"), Publish("a/b", b"hi")
    ),
    Valid(
        "QoS 1 (the example of v3.1 §3.3)",
        V3X,
        CLIENT,
        octets("""
        32 07           # PUBLISH, QoS 1, 7 bytes
        00 03 61 2f 62  # topic "a/b"
        00 0a           # packet id 10, no payload
        """),
        Publish("a/b", b"", 1, packet_id=10),
    ),
    Valid(
        "QoS 1, 5",
        ONLY5,
        CLIENT,
        octets("32 06 00 01 61 ff ff 00"),
        Publish("a", b"", 1, packet_id=65535),
    ),
    Valid(
        "QoS 2, retained, duplicate",
        V3X,
        SERVER,
        octets("3d 06 00 01 61 01 00 78"),
        Publish("a", b"x", 2, True, True, 256),
    ),
    Valid(
        "QoS 2, retained, duplicate, 5",
        ONLY5,
        SERVER,
        octets("3d 07 00 01 61 01 00 00 78"),
        Publish("a", b"x", 2, True, True, 256),
    ),
    Valid("retained", V3X, CLIENT, octets("31 04 00 01 61 78"), Publish("a", b"x", retain=True)),
    Valid("retained and empty", V3X, CLIENT, octets("31 03 00 01 61"), Publish("a", b"", 0, True)),
    Valid(
        "retained and empty, 5",
        ONLY5,
        CLIENT,
        octets("31 04 00 01 61 00"),
        Publish("a", b"", 0, True),
    ),
    Valid(
        "a topic of several bytes a character",
        V3X,
        CLIENT,
        octets("30 0b 00 09 c3 a9 e2 82 ac f0 9f 9a b0  # é, €, a tap"),
        Publish("\u00e9\u20ac\U0001f6b0", b""),
    ),
    Valid(
        "a large payload",
        V3X,
        CLIENT,
        octets("30 83 a0 01 00 01 61") + _LONG,
        Publish("a", _LONG),
    ),
    Valid(
        "a large payload, 5",
        ONLY5,
        CLIENT,
        octets("34 86 a0 01 00 01 61 00 07 00") + _LONG,
        Publish("a", _LONG, 2, packet_id=7),
    ),
    Valid(
        "remaining length of 128, two bytes",
        V3X,
        CLIENT,
        octets("30 80 01 00 01 61") + bytes(125),
        Publish("a", bytes(125)),
    ),
    Valid(
        "remaining length in more bytes than needed, below 5",
        V3X,
        CLIENT,
        octets("30 84 80 80 00 00 01 61 78"),
        Publish("a", b"x"),
        canonical=False,
    ),
    Valid(
        "DUP at QoS 0 is not used in 3.1",
        ONLY31,
        CLIENT,
        octets("38 04 00 01 61 78"),
        Publish("a", b"x"),
        canonical=False,
    ),
    Valid(
        "every property of a message",
        ONLY5,
        CLIENT,
        octets("""
        33 34                 # PUBLISH, QoS 1, retained, 52 bytes
        00 01 74              # topic "t"
        00 05                 # packet id 5
        2d                    # 45 bytes of properties
        01 01                 #   payload format indicator: UTF-8
        02 00 00 01 00        #   message expiry interval 256 s
        03 00 0a 74 65 78 74 2f 70 6c 61 69 6e  # content type "text/plain"
        08 00 02 72 2f        #   response topic "r/"
        09 00 00              #   empty correlation data
        23 00 07              #   topic alias 7
        26 00 01 62 00 01 31  #   user property "b" = "1"
        26 00 01 61 00 01 32  #   user property "a" = "2", behind "b" [MQTT-3.3.2-18]
        78                    # payload "x"
        """),
        Publish(
            "t",
            b"x",
            1,
            True,
            False,
            5,
            Properties(
                payload_format_indicator=1,
                message_expiry_interval=256,
                content_type="text/plain",
                response_topic="r/",
                correlation_data=b"",
                topic_alias=7,
                user_properties=[("b", "1"), ("a", "2")],
            ),
        ),
    ),
    Valid(
        "a topic alias instead of a topic",
        ONLY5,
        CLIENT,
        octets("30 07 00 00 03 23 ff ff 78"),
        Publish("", b"x", properties=Properties(topic_alias=65535)),
    ),
    Valid(
        "several subscription identifiers, of one to four bytes",
        ONLY5,
        SERVER,
        octets("""
        30 11           # PUBLISH, 17 bytes
        00 01 61        # topic "a"
        0c              # 12 bytes of properties
        0b 01           #   subscription identifier 1
        0b 80 01        #   128
        0b ff ff ff 7f  #   268,435,455
        0b 01           #   1 once more
        78              # payload "x"
        """),
        Publish("a", b"x", properties=Properties(subscription_identifiers=[1, 128, 268435455, 1])),
        canonical=True,
    ),
    Valid(
        "user properties with empty names and values",
        ONLY5,
        CLIENT,
        octets("30 09 00 01 61 05 26 00 00 00 00"),
        Publish("a", b"", properties=Properties(user_properties=[("", "")])),
    ),
]

MISTAKES = [
    Mistake(
        "QoS 3 [MQTT-3.3.1-4] [MQTT3-3.3.1-4] [V31-2.1-QOS]",
        ALL,
        CLIENT,
        octets("36 06 00 01 61 00 01 00"),
        0x81,
        at=1,
    ),
    Mistake("QoS 3 from the server", ALL, SERVER, octets("3e 06 00 01 61 00 01 00"), 0x81, at=1),
    Mistake(
        "DUP at QoS 0 [MQTT-3.3.1-2] [MQTT3-3.3.1-2]",
        STRICT,
        CLIENT,
        octets("38 04 00 01 61 00"),
        0x81,
        at=1,
    ),
    Mistake("packet id 0", V3X, CLIENT, octets("32 05 00 01 61 00 00"), 0x82),
    Mistake(
        "packet id 0, 5 [MQTT-2.2.1-3]", ONLY5, CLIENT, octets("34 06 00 01 61 00 00 00"), 0x82
    ),
    Mistake("packet id missing", ALL, CLIENT, octets("32 04 00 01 61 00"), 0x81),
    Mistake("empty topic [MQTT3-4.7.3-1]", V3X, CLIENT, octets("30 03 00 00 78"), 0x82),
    Mistake("neither topic nor alias", ONLY5, CLIENT, octets("30 04 00 00 00 78"), 0x82),
    Mistake(
        "properties but neither topic nor alias",
        ONLY5,
        CLIENT,
        octets("30 06 00 00 02 01 01 78"),
        0x82,
    ),
    Mistake("no bytes", ALL, CLIENT, octets("30 00"), 0x81),
    Mistake("half a topic length", ALL, CLIENT, octets("30 01 00"), 0x81),
    Mistake("topic longer than the packet", ALL, CLIENT, octets("30 04 00 03 61 62"), 0x81),
    Mistake(
        "topic with U+0000 [MQTT-1.5.4-2] [MQTT3-1.5.3-2]",
        ALL,
        CLIENT,
        octets("30 05 00 03 61 00 62"),
        0x81,
    ),
    Mistake(
        "topic in Latin-1 [MQTT-1.5.4-1] [MQTT3-1.5.3-1]",
        ALL,
        CLIENT,
        octets("30 03 00 01 e9"),
        0x81,
    ),
    Mistake("topic with a surrogate", ALL, CLIENT, octets("30 05 00 03 ed bf bf"), 0x81),
    Mistake("topic cut within a character", ALL, CLIENT, octets("30 04 00 02 e2 82"), 0x81),
    Mistake("topic beyond U+10FFFF", ALL, CLIENT, octets("30 06 00 04 f4 90 80 80"), 0x81),
    Mistake(
        "topic too long for 3.1 [V31-2.2-TOPIC-LENGTH]",
        ONLY31,
        CLIENT,
        octets("30 82 80 02 80 00") + b"a" * 32768,
        0x90,
    ),
    Mistake("no property length", ONLY5, CLIENT, octets("30 03 00 01 61"), 0x81),
    Mistake(
        "properties longer than the packet", ONLY5, CLIENT, octets("30 05 00 01 61 05 01"), 0x81
    ),
    Mistake(
        "property length of five bytes",
        ONLY5,
        CLIENT,
        octets("30 08 00 01 61 80 80 80 80 01"),
        0x81,
    ),
    Mistake(
        "property length in more bytes than needed [MQTT-1.5.5-1]",
        ONLY5,
        CLIENT,
        octets("30 05 00 01 61 80 00"),
        0x81,
    ),
    Mistake(
        "topic alias 0 [MQTT-3.3.2-8]", ONLY5, CLIENT, octets("30 07 00 01 61 03 23 00 00"), 0x94
    ),
    Mistake(
        "topic alias twice", ONLY5, CLIENT, octets("30 0a 00 01 61 06 23 00 01 23 00 01"), 0x82
    ),
    Mistake(
        "subscription identifier from a client [MQTT-3.3.4-6]",
        ONLY5,
        CLIENT,
        octets("30 06 00 01 61 02 0b 01"),
        0x82,
    ),
    Mistake("subscription identifier 0", ONLY5, SERVER, octets("30 06 00 01 61 02 0b 00"), 0x82),
    Mistake("payload format indicator 2", ONLY5, CLIENT, octets("30 06 00 01 61 02 01 02"), 0x82),
    Mistake(
        "response topic with + [MQTT-3.3.2-14]",
        ONLY5,
        CLIENT,
        octets("30 0a 00 01 61 06 08 00 03 61 2f 2b"),
        0x82,
    ),
    Mistake(
        "response topic with # [MQTT-3.3.2-14]",
        ONLY5,
        CLIENT,
        octets("30 08 00 01 61 04 08 00 01 23"),
        0x82,
    ),
    Mistake("empty response topic", ONLY5, CLIENT, octets("30 07 00 01 61 03 08 00 00"), 0x82),
    Mistake(
        "content type with ill-formed UTF-8",
        ONLY5,
        CLIENT,
        octets("30 08 00 01 61 04 03 00 01 ff"),
        0x81,
    ),
    Mistake("unknown property", ONLY5, CLIENT, octets("30 06 00 01 61 02 7e 00"), 0x81),
    Mistake("property 0", ONLY5, CLIENT, octets("30 06 00 01 61 02 00 00"), 0x81),
    Mistake(
        "property of another packet (v5 §2.2.2.2)",
        ONLY5,
        CLIENT,
        octets("30 07 00 01 61 03 21 00 01"),
        0x81,
    ),
    Mistake(
        "property cut off by the property length",
        ONLY5,
        CLIENT,
        octets("30 09 00 01 61 03 02 00 00 00 01"),
        0x81,
    ),
    Mistake(
        "remaining length in more bytes than needed [MQTT-1.5.5-1]",
        ONLY5,
        CLIENT,
        octets("30 84 00 00 01 61 00"),
        0x81,
        at=3,
    ),
    Mistake(
        "remaining length of five bytes", ALL, CLIENT, octets("30 ff ff ff ff 01 00"), 0x81, at=5
    ),
    Mistake(
        "larger than our maximum packet size",
        ALL,
        CLIENT,
        octets("30 ff ff ff 7f 00 01 61"),
        0x95,
        at=5,
    ),
    Mistake(
        "DUP at QoS 0 with retain, 3.1.1", ONLY311, SERVER, octets("39 03 00 01 61"), 0x81, at=1
    ),
]
