"""PINGREQ, PINGRESP, DISCONNECT and AUTH (v5 §3.12 to §3.15), and types that do not exist."""

from penstock.protocol.packets import Auth, Disconnect, Pingreq, Pingresp
from penstock.protocol.properties import Properties
from tests.vectors import (
    ALL,
    CLIENT,
    ONLY5,
    ONLY31,
    SERVER,
    STRICT,
    V3X,
    Mistake,
    Valid,
    octets,
)

_BY_SERVER = (0x8E, 0x8B, 0x8D, 0x98, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2)

VALID = [
    Valid("PINGREQ", ALL, CLIENT, octets("c0 00"), Pingreq()),
    Valid("PINGRESP", ALL, SERVER, octets("d0 00"), Pingresp()),
    Valid("PINGREQ with flags", ONLY31, CLIENT, octets("cf 00"), Pingreq(), canonical=False),
    Valid("PINGREQ of three bytes", V3X, CLIENT, octets("c0 80 00"), Pingreq(), canonical=False),
    Valid("DISCONNECT", ALL, CLIENT, octets("e0 00"), Disconnect()),
    Valid("DISCONNECT from the server", ONLY5, SERVER, octets("e0 00"), Disconnect()),
    Valid(
        "DISCONNECT with success written out",
        ONLY5,
        CLIENT,
        octets("e0 01 00"),
        Disconnect(),
        canonical=False,
    ),
    Valid(
        "DISCONNECT with property length 0 written out",
        ONLY5,
        CLIENT,
        octets("e0 02 04 00"),
        Disconnect(0x04),
        canonical=False,
    ),
    Valid("DISCONNECT with will message", ONLY5, CLIENT, octets("e0 01 04"), Disconnect(0x04)),
    *[
        Valid(
            f"DISCONNECT 0x{reason:02x}",
            ONLY5,
            SERVER,
            bytes((0xE0, 1, reason)),
            Disconnect(reason),
        )
        for reason in _BY_SERVER
    ],
    Valid(
        "DISCONNECT with a session expiry interval",
        ONLY5,
        CLIENT,
        octets("e0 07 00 05 11 ff ff ff ff"),
        Disconnect(0, Properties(session_expiry_interval=0xFFFFFFFF)),
    ),
    Valid(
        "DISCONNECT to another server",
        ONLY5,
        SERVER,
        octets("""
        e0 11                 # DISCONNECT, 17 bytes
        9d                    # server moved
        0f                    # 15 bytes of properties
        1c 00 01 73           #   server reference "s"
        1f 00 01 79           #   reason string "y"
        26 00 01 6b 00 01 76  #   user property "k" = "v"
        """),
        Disconnect(
            0x9D,
            Properties(server_reference="s", reason_string="y", user_properties=[("k", "v")]),
        ),
    ),
    Valid("AUTH with nothing (v5 §3.15.2.1)", ONLY5, SERVER, octets("f0 00"), Auth()),
    Valid(
        "AUTH continued",
        ONLY5,
        CLIENT,
        octets("""
        f0 15                 # AUTH, 21 bytes
        18                    # continue authentication
        13                    # 19 bytes of properties
        15 00 01 6d           #   authentication method "m"
        16 00 01 00           #   authentication data
        1f 00 01 79           #   reason string "y"
        26 00 01 6b 00 01 76  #   user property "k" = "v"
        """),
        Auth(
            0x18,
            Properties(
                authentication_method="m",
                authentication_data=b"\0",
                reason_string="y",
                user_properties=[("k", "v")],
            ),
        ),
    ),
    Valid(
        "AUTH once more",
        ONLY5,
        CLIENT,
        octets("f0 06 19 04 15 00 01 6d"),
        Auth(0x19, Properties(authentication_method="m")),
    ),
    Valid(
        "AUTH with success",
        ONLY5,
        SERVER,
        octets("f0 06 00 04 15 00 01 6d"),
        Auth(0, Properties(authentication_method="m")),
    ),
]

MISTAKES = [
    Mistake("PINGREQ with a byte", ALL, CLIENT, octets("c0 01 00"), 0x81),
    Mistake("PINGRESP with a byte", ALL, SERVER, octets("d0 01 00"), 0x81),
    Mistake("PINGREQ with flags", STRICT, CLIENT, octets("c1 00"), 0x81, at=1),
    Mistake("PINGRESP with flags", STRICT, SERVER, octets("d8 00"), 0x81, at=1),
    Mistake("PINGREQ of three bytes", ONLY5, CLIENT, octets("c0 80 00"), 0x81),
    Mistake("PINGREQ from the server", ALL, SERVER, octets("c0 00"), 0x82, at=1),
    Mistake("PINGRESP from a client", ALL, CLIENT, octets("d0 00"), 0x82, at=1),
    Mistake("DISCONNECT with a byte", V3X, CLIENT, octets("e0 01 00"), 0x81),
    Mistake(
        "DISCONNECT with flags [MQTT-3.14.1-1] [MQTT3-3.14.1-1]",
        STRICT,
        CLIENT,
        octets("e1 00"),
        0x81,
        at=1,
    ),
    Mistake("DISCONNECT from the server", V3X, SERVER, octets("e0 00"), 0x82, at=1),
    Mistake(
        "DISCONNECT with an unknown reason [MQTT-3.14.2-1]", ONLY5, CLIENT, octets("e0 01 7f"), 0x82
    ),
    Mistake(
        "DISCONNECT with CONNACK's reason [MQTT-3.14.2-1]", ONLY5, SERVER, octets("e0 01 84"), 0x82
    ),
    Mistake(
        "DISCONNECT with a session expiry interval from the server [MQTT-3.14.2-2]",
        ONLY5,
        SERVER,
        octets("e0 07 00 05 11 00 00 00 01"),
        0x82,
    ),
    Mistake("DISCONNECT with bytes behind", ONLY5, CLIENT, octets("e0 03 00 00 00"), 0x81),
    Mistake(
        "DISCONNECT with a receive maximum", ONLY5, CLIENT, octets("e0 05 00 03 21 00 01"), 0x81
    ),
    Mistake("AUTH below 5: a reserved type", V3X, CLIENT, octets("f0 00"), 0x81, at=1),
    Mistake("AUTH from the server below 5", V3X, SERVER, octets("f0 00"), 0x81, at=1),
    Mistake("AUTH with flags [MQTT-3.15.1-1]", ONLY5, CLIENT, octets("f2 00"), 0x81, at=1),
    Mistake(
        "AUTH with another reason [MQTT-3.15.2-1]",
        ONLY5,
        CLIENT,
        octets("f0 06 87 04 15 00 01 6d"),
        0x82,
    ),
    Mistake("AUTH without a property length", ONLY5, CLIENT, octets("f0 01 18"), 0x81),
    Mistake("AUTH without properties (v5 §3.15.2.2.2)", ONLY5, CLIENT, octets("f0 02 18 00"), 0x82),
    Mistake(
        "AUTH without a method (v5 §3.15.2.2.2)",
        ONLY5,
        CLIENT,
        octets("f0 06 18 04 16 00 01 00"),
        0x82,
    ),
    Mistake("packet type 0", ALL, CLIENT, octets("00 00"), 0x81, at=1),
    Mistake("packet type 0 from the server", ALL, SERVER, octets("0f 00"), 0x81, at=1),
]
