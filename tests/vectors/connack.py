"""CONNACK (v5 §3.2, v3.1.1 §3.2, v3.1 §3.2): valid and not."""

from penstock.protocol.packets import Connack
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

_RETURN_CODES = {
    1: 0x84,  # unacceptable protocol version
    2: 0x85,  # identifier rejected
    3: 0x88,  # server unavailable
    4: 0x86,  # bad user name or password
    5: 0x87,  # not authorized
}

VALID = [
    Valid("accepted below 5", V3X, SERVER, octets("20 02 00 00"), Connack()),
    Valid("accepted, 5", ONLY5, SERVER, octets("20 03 00 00 00"), Connack()),
    Valid("session present, 3.1.1", ONLY311, SERVER, octets("20 02 01 00"), Connack(0, True)),
    Valid("session present, 5", ONLY5, SERVER, octets("20 03 01 00 00"), Connack(0, True)),
    Valid(
        "3.1 ignores the first byte",
        ONLY31,
        SERVER,
        octets("20 02 ff 00"),
        Connack(),
        canonical=False,
    ),
    *[
        Valid(f"return code {code}", V3X, SERVER, bytes((0x20, 2, 0, code)), Connack(reason_code))
        for code, reason_code in _RETURN_CODES.items()
    ],
    Valid("not authorized, 5", ONLY5, SERVER, octets("20 03 00 87 00"), Connack(0x87)),
    Valid(
        "5 with everything",
        ONLY5,
        SERVER,
        octets("""
        20 48                 # CONNACK, 72 bytes
        01 00                 # session present, success
        45                    # 69 bytes of properties
        11 00 00 00 0a        #   session expiry interval 10 s
        12 00 02 69 64        #   assigned client identifier "id"
        13 00 1e              #   server keep alive 30 s
        15 00 01 6d           #   authentication method "m"
        16 00 01 ff           #   authentication data
        1a 00 01 72           #   response information "r"
        1c 00 01 73           #   server reference "s"
        1f 00 02 6f 6b        #   reason string "ok"
        21 00 0a              #   receive maximum 10
        22 00 00              #   topic alias maximum 0
        24 01                 #   maximum QoS 1
        25 00                 #   retain available 0
        26 00 01 6b 00 01 76  #   user property "k" = "v"
        26 00 01 6b 00 01 77  #   user property "k" = "w"
        27 00 10 00 00        #   maximum packet size 1 MiB
        28 00                 #   wildcard subscription available 0
        29 00                 #   subscription identifier available 0
        2a 01                 #   shared subscription available 1
        """),
        Connack(
            0,
            True,
            Properties(
                session_expiry_interval=10,
                assigned_client_identifier="id",
                server_keep_alive=30,
                authentication_method="m",
                authentication_data=b"\xff",
                response_information="r",
                server_reference="s",
                reason_string="ok",
                receive_maximum=10,
                topic_alias_maximum=0,
                maximum_qos=1,
                retain_available=0,
                user_properties=[("k", "v"), ("k", "w")],
                maximum_packet_size=0x100000,
                wildcard_subscription_available=0,
                subscription_identifier_available=0,
                shared_subscription_available=1,
            ),
        ),
    ),
    Valid(
        "a 3.1.1 server refuses version 5",
        ONLY5,
        SERVER,
        octets("20 02 00 01"),
        Connack(0x84),
        canonical=False,
    ),
    Valid(
        "flags in the fixed header, 3.1",
        ONLY31,
        SERVER,
        octets("2f 02 00 00"),
        Connack(),
        canonical=False,
    ),
]

MISTAKES = [
    Mistake(
        "reserved acknowledge flag, 3.1.1",
        ONLY311,
        SERVER,
        octets("20 02 02 00"),
        0x81,
    ),
    Mistake(
        "reserved acknowledge flag, 5 [MQTT-3.2.2-1]",
        ONLY5,
        SERVER,
        octets("20 03 81 00 00"),
        0x81,
    ),
    Mistake("reserved return code", V3X, SERVER, octets("20 02 00 06"), 0x82),
    Mistake("a reason code of 5 below 5", V3X, SERVER, octets("20 02 00 87"), 0x82),
    Mistake("unknown reason code [MQTT-3.2.2-8]", ONLY5, SERVER, octets("20 03 00 7f 00"), 0x82),
    Mistake(
        "a reason code of another packet [MQTT-3.2.2-8]",
        ONLY5,
        SERVER,
        octets("20 03 00 8e 00"),
        0x82,
    ),
    Mistake(
        "session present in a refusal, v3.1.1 [MQTT-3.2.2-4]",
        ONLY311,
        SERVER,
        octets("20 02 01 05"),
        0x82,
    ),
    Mistake(
        "session present in a refusal [MQTT-3.2.2-6]",
        ONLY5,
        SERVER,
        octets("20 03 01 87 00"),
        0x82,
    ),
    Mistake("no return code", ALL, SERVER, octets("20 01 00"), 0x81),
    Mistake("no bytes", ALL, SERVER, octets("20 00"), 0x81),
    Mistake("a byte too many", V3X, SERVER, octets("20 03 00 00 00"), 0x81),
    Mistake("no property length", ONLY5, SERVER, octets("20 02 00 00"), 0x81),
    Mistake("a byte too many, 5", ONLY5, SERVER, octets("20 04 00 00 00 00"), 0x81),
    Mistake("flags in the fixed header", STRICT, SERVER, octets("21 02 00 00"), 0x81, at=1),
    Mistake("from a client", ALL, CLIENT, octets("20 02 00 00"), 0x82, at=1),
    Mistake("maximum QoS 2", ONLY5, SERVER, octets("20 05 00 00 02 24 02"), 0x82),
    Mistake("retain available 2", ONLY5, SERVER, octets("20 05 00 00 02 25 02"), 0x82),
    Mistake("receive maximum 0", ONLY5, SERVER, octets("20 06 00 00 03 21 00 00"), 0x82),
    Mistake(
        "will delay interval does not belong here",
        ONLY5,
        SERVER,
        octets("20 08 00 00 05 18 00 00 00 01"),
        0x81,
    ),
]
