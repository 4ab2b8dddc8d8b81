"""SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK (v5 §3.8 to §3.11): valid and not."""

from penstock.protocol.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
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

_REASON_PROPERTIES = Properties(reason_string="y", user_properties=[("k", "v")])

VALID = [
    Valid(
        "SUBSCRIBE (the example of v3.1 §3.8)",
        V3X,
        CLIENT,
        octets("""
        82 0e              # SUBSCRIBE, 14 bytes
        00 0a              # packet id 10
        00 03 61 2f 62 01  # "a/b" at QoS 1
        00 03 63 2f 64 02  # "c/d" at QoS 2
        """),
        Subscribe(10, [Subscription("a/b", 1), Subscription("c/d", 2)]),
    ),
    Valid(
        "SUBSCRIBE with wildcards",
        V3X,
        CLIENT,
        octets("82 08 00 01 00 03 2b 2f 23 00"),
        Subscribe(1, [Subscription("+/#")]),
    ),
    Valid(
        "SUBSCRIBE, 5",
        ONLY5,
        CLIENT,
        octets("82 07 00 01 00 00 01 23 00"),
        Subscribe(1, [Subscription("#")]),
    ),
    Valid(
        "SUBSCRIBE with all options and properties",
        ONLY5,
        CLIENT,
        octets("""
        82 1e                 # SUBSCRIBE, 30 bytes
        ff ff                 # packet id 65535
        0a                    # 10 bytes of properties
        0b 80 01              #   subscription identifier 128
        26 00 01 6b 00 01 76  #   user property "k" = "v"
        00 01 61 2e           # "a": QoS 2, no local, retain as published, retain handling 2
        00 0a 24 73 68 61 72 65 2f 67 2f 61 19  # "$share/g/a": QoS 1, as published, handling 1
        """),
        Subscribe(
            65535,
            [Subscription("a", 2, True, True, 2), Subscription("$share/g/a", 1, False, True, 1)],
            Properties(subscription_identifiers=[128], user_properties=[("k", "v")]),
        ),
    ),
    Valid(
        "SUBSCRIBE again (v3.1 §3.8)",
        ONLY31,
        CLIENT,
        octets("8a 06 00 01 00 01 61 00"),
        Subscribe(1, [Subscription("a")]),
        canonical=False,
    ),
    Valid(
        "SUBSCRIBE with unused bits beside the QoS (v3.1 §3.8)",
        ONLY31,
        CLIENT,
        octets("82 06 00 01 00 01 61 fd"),
        Subscribe(1, [Subscription("a", 1)]),
        canonical=False,
    ),
    Valid(
        "SUBACK (the example of v3.1 §3.9)",
        V3X,
        SERVER,
        octets("90 04 00 0a 00 02"),
        Suback(10, [0, 2]),
    ),
    Valid("SUBACK with a failure", V3X, SERVER, octets("90 04 00 0a 01 80"), Suback(10, [1, 0x80])),
    Valid(
        "SUBACK with unused bits (v3.1 §3.9)",
        ONLY31,
        SERVER,
        octets("90 03 00 01 f2"),
        Suback(1, [2]),
        canonical=False,
    ),
    Valid(
        "SUBACK, 5",
        ONLY5,
        SERVER,
        octets("90 0c 00 01 00 00 01 02 80 83 87 8f 91 97"),
        Suback(1, [0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97]),
    ),
    Valid(
        "SUBACK with properties",
        ONLY5,
        SERVER,
        octets("90 11 00 01 0b 1f 00 01 79 26 00 01 6b 00 01 76 9e a1 a2"),
        Suback(1, [0x9E, 0xA1, 0xA2], _REASON_PROPERTIES),
    ),
    Valid(
        "UNSUBSCRIBE (the example of v3.1 §3.10)",
        V3X,
        CLIENT,
        octets("a2 0c 00 0a 00 03 61 2f 62 00 03 63 2f 64"),
        Unsubscribe(10, ["a/b", "c/d"]),
    ),
    Valid(
        "UNSUBSCRIBE, 5", ONLY5, CLIENT, octets("a2 06 00 01 00 00 01 23"), Unsubscribe(1, ["#"])
    ),
    Valid(
        "UNSUBSCRIBE with a user property",
        ONLY5,
        CLIENT,
        octets("a2 0d 00 01 07 26 00 01 6b 00 01 76 00 01 61"),
        Unsubscribe(1, ["a"], Properties(user_properties=[("k", "v")])),
    ),
    Valid(
        "UNSUBSCRIBE again (v3.1 §3.10)",
        ONLY31,
        CLIENT,
        octets("aa 05 00 01 00 01 61"),
        Unsubscribe(1, ["a"]),
        canonical=False,
    ),
    Valid("UNSUBACK", V3X, SERVER, octets("b0 02 00 0a"), Unsuback(10, [])),
    Valid(
        "UNSUBACK, 5",
        ONLY5,
        SERVER,
        octets("b0 0a 00 01 00 00 11 80 83 87 8f 91"),
        Unsuback(1, [0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]),
    ),
    Valid(
        "UNSUBACK with properties",
        ONLY5,
        SERVER,
        octets("b0 0f 00 01 0b 1f 00 01 79 26 00 01 6b 00 01 76 00"),
        Unsuback(1, [0], _REASON_PROPERTIES),
    ),
]

_SUBSCRIBE_MISTAKES = [
    Mistake("no filter, v3.1.1 [MQTT-3.8.3-3]", V3X, CLIENT, octets("82 02 00 01"), 0x82),
    Mistake("no filter [MQTT-3.8.3-2]", ONLY5, CLIENT, octets("82 03 00 01 00"), 0x82),
    Mistake("packet id 0", V3X, CLIENT, octets("82 06 00 00 00 01 61 00"), 0x82),
    Mistake("packet id 0, 5", ONLY5, CLIENT, octets("82 07 00 00 00 00 01 61 00"), 0x82),
    Mistake("no packet id", ALL, CLIENT, octets("82 00"), 0x81),
    Mistake("no QoS", V3X, CLIENT, octets("82 05 00 01 00 01 61"), 0x81),
    Mistake("no options", ONLY5, CLIENT, octets("82 06 00 01 00 00 01 61"), 0x81),
    Mistake("QoS 3", V3X, CLIENT, octets("82 06 00 01 00 01 61 03"), 0x81),
    Mistake("QoS 3, 5 (v5 §3.8.3.1)", ONLY5, CLIENT, octets("82 07 00 01 00 00 01 61 03"), 0x82),
    Mistake(
        "reserved bits, v3.1.1 [MQTT-3.8.3-4]",
        ONLY311,
        CLIENT,
        octets("82 06 00 01 00 01 61 04"),
        0x81,
    ),
    Mistake(
        "reserved bit 6 [MQTT-3.8.3-5]", ONLY5, CLIENT, octets("82 07 00 01 00 00 01 61 40"), 0x81
    ),
    Mistake(
        "reserved bit 7 [MQTT-3.8.3-5]", ONLY5, CLIENT, octets("82 07 00 01 00 00 01 61 80"), 0x81
    ),
    Mistake("retain handling 3", ONLY5, CLIENT, octets("82 07 00 01 00 00 01 61 30"), 0x82),
    Mistake(
        "no local on a shared subscription [MQTT-3.8.3-4]",
        ONLY5,
        CLIENT,
        octets("82 10 00 01 00 00 0a 24 73 68 61 72 65 2f 67 2f 61 04"),
        0x82,
    ),
    Mistake("empty filter [MQTT3-4.7.3-1]", V3X, CLIENT, octets("82 05 00 01 00 00 00"), 0x82),
    Mistake(
        "empty filter, 5 [MQTT-4.7.3-1]", ONLY5, CLIENT, octets("82 06 00 01 00 00 00 00"), 0x82
    ),
    Mistake("filter with U+0000", V3X, CLIENT, octets("82 06 00 01 00 01 00 00"), 0x81),
    Mistake("second filter cut off", V3X, CLIENT, octets("82 08 00 01 00 01 61 00 00 01"), 0x81),
    Mistake(
        "flags 0000 [MQTT-3.8.1-1] [MQTT3-3.8.1-1]",
        ALL,
        CLIENT,
        octets("80 06 00 01 00 01 61 00"),
        0x81,
        at=1,
    ),
    Mistake(
        "flags 1010 [MQTT-3.8.1-1] [MQTT3-3.8.1-1]",
        STRICT,
        CLIENT,
        octets("8a 06 00 01 00 01 61 00"),
        0x81,
        at=1,
    ),
    Mistake(
        "QoS 2 in the fixed header", ONLY31, CLIENT, octets("84 06 00 01 00 01 61 00"), 0x81, at=1
    ),
    Mistake(
        "subscription identifier 0 (v5 §3.8.2.1.2)",
        ONLY5,
        CLIENT,
        octets("82 09 00 01 02 0b 00 00 01 61 00"),
        0x82,
    ),
    Mistake(
        "two subscription identifiers (v5 §3.8.2.1.2)",
        ONLY5,
        CLIENT,
        octets("82 0b 00 01 04 0b 01 0b 02 00 01 61 00"),
        0x82,
    ),
    Mistake(
        "reason string does not belong here",
        ONLY5,
        CLIENT,
        octets("82 0b 00 01 04 1f 00 01 79 00 01 61 00"),
        0x81,
    ),
    Mistake(
        "SUBSCRIBE from the server", ALL, SERVER, octets("82 06 00 01 00 01 61 00"), 0x82, at=1
    ),
]

_SUBACK_MISTAKES = [
    Mistake("SUBACK without a code", V3X, SERVER, octets("90 02 00 01"), 0x82),
    Mistake("SUBACK without a code, 5", ONLY5, SERVER, octets("90 03 00 01 00"), 0x82),
    Mistake(
        "SUBACK with code 3, v3.1.1 [MQTT-3.9.3-2]", V3X, SERVER, octets("90 03 00 01 03"), 0x82
    ),
    Mistake("SUBACK with a code of 5", ONLY311, SERVER, octets("90 03 00 01 87"), 0x82),
    Mistake("SUBACK with code 3 [MQTT-3.9.3-2]", ONLY5, SERVER, octets("90 04 00 01 00 03"), 0x82),
    Mistake("SUBACK with UNSUBACK's code", ONLY5, SERVER, octets("90 04 00 01 00 11"), 0x82),
    Mistake("SUBACK with packet id 0", V3X, SERVER, octets("90 03 00 00 00"), 0x82),
    Mistake("SUBACK with flags", STRICT, SERVER, octets("92 03 00 01 00"), 0x81, at=1),
    Mistake("SUBACK from a client", ALL, CLIENT, octets("90 03 00 01 00"), 0x82, at=1),
]

_UNSUBSCRIBE_MISTAKES = [
    Mistake(
        "UNSUBSCRIBE without a filter [MQTT3-3.10.3-2]", V3X, CLIENT, octets("a2 02 00 01"), 0x82
    ),
    Mistake(
        "UNSUBSCRIBE without a filter, 5 [MQTT-3.10.3-2]",
        ONLY5,
        CLIENT,
        octets("a2 03 00 01 00"),
        0x82,
    ),
    Mistake("UNSUBSCRIBE with packet id 0", V3X, CLIENT, octets("a2 05 00 00 00 01 61"), 0x82),
    Mistake("UNSUBSCRIBE from an empty filter", V3X, CLIENT, octets("a2 04 00 01 00 00"), 0x82),
    Mistake("UNSUBSCRIBE cut off", V3X, CLIENT, octets("a2 05 00 01 00 02 61"), 0x81),
    Mistake(
        "UNSUBSCRIBE with a surrogate", V3X, CLIENT, octets("a2 07 00 01 00 03 ed a0 80"), 0x81
    ),
    Mistake(
        "UNSUBSCRIBE with flags 0000 [MQTT-3.10.1-1] [MQTT3-3.10.1-1]",
        ALL,
        CLIENT,
        octets("a0 05 00 01 00 01 61"),
        0x81,
        at=1,
    ),
    Mistake(
        "UNSUBSCRIBE again [MQTT-3.10.1-1] [MQTT3-3.10.1-1]",
        STRICT,
        CLIENT,
        octets("aa 05 00 01 00 01 61"),
        0x81,
        at=1,
    ),
    Mistake(
        "UNSUBSCRIBE with a subscription identifier",
        ONLY5,
        CLIENT,
        octets("a2 08 00 01 02 0b 01 00 01 61"),
        0x81,
    ),
    Mistake("UNSUBSCRIBE from the server", ALL, SERVER, octets("a2 05 00 01 00 01 61"), 0x82, at=1),
]

_UNSUBACK_MISTAKES = [
    Mistake("UNSUBACK with a code", V3X, SERVER, octets("b0 03 00 01 00"), 0x81),
    Mistake("UNSUBACK without a code", ONLY5, SERVER, octets("b0 03 00 01 00"), 0x82),
    Mistake(
        "UNSUBACK with SUBACK's code [MQTT-3.11.3-2]",
        ONLY5,
        SERVER,
        octets("b0 04 00 01 00 01"),
        0x82,
    ),
    Mistake("UNSUBACK with packet id 0", ALL, SERVER, octets("b0 02 00 00"), 0x82),
    Mistake("UNSUBACK with flags", STRICT, SERVER, octets("b2 02 00 01"), 0x81, at=1),
    Mistake("UNSUBACK from a client", ALL, CLIENT, octets("b0 02 00 01"), 0x82, at=1),
]

MISTAKES = _SUBSCRIBE_MISTAKES + _SUBACK_MISTAKES + _UNSUBSCRIBE_MISTAKES + _UNSUBACK_MISTAKES
