"""CONNECT (v5 §3.1, v3.1.1 §3.1, v3.1 §3.1): valid and not."""

from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Connect, Will
from penstock.protocol.properties import Properties
from tests.vectors import CLIENT, ONLY5, ONLY31, ONLY311, STRICT, V3X, Mistake, Valid, octets


def _valid(name: str, versions: tuple[int, ...], data: str, packet: Connect, **kw: bool) -> Valid:
    return Valid(name, versions, CLIENT, octets(data), packet, first_packet=True, **kw)


def _mistake(
    name: str, versions: tuple[int, ...], data: str, reason: int, at: int | None = None
) -> Mistake:
    return Mistake(name, versions, CLIENT, octets(data), reason, at, first_packet=True)


VALID = [
    _valid(
        "3.1.1 with nothing but a client id",
        ONLY311,
        """
        10 0d              # CONNECT, 13 bytes
        00 04 4d 51 54 54  # "MQTT"
        04                 # level 4
        02                 # clean session
        00 3c              # keep alive 60 s
        00 01 61           # client id "a"
        """,
        Connect("a", V311),
    ),
    _valid(
        "3.1 with nothing but a client id",
        ONLY31,
        """
        10 0f                    # CONNECT, 15 bytes
        00 06 4d 51 49 73 64 70  # "MQIsdp"
        03                       # level 3
        02                       # clean session
        00 3c                    # keep alive 60 s
        00 01 61                 # client id "a"
        """,
        Connect("a", V31),
    ),
    _valid(
        "3.1.1 in the dialect of bridges",
        ONLY311,
        """
        10 0d              # CONNECT, 13 bytes
        00 04 4d 51 54 54  # "MQTT"
        84                 # level 4, of a bridge
        02                 # clean session
        00 3c              # keep alive 60 s
        00 01 61           # client id "a"
        """,
        Connect("a", V311, is_bridge=True),
    ),
    _valid(
        "3.1 in the dialect of bridges",
        ONLY31,
        """
        10 0f                    # CONNECT, 15 bytes
        00 06 4d 51 49 73 64 70  # "MQIsdp"
        83                       # level 3, of a bridge
        02                       # clean session
        00 3c                    # keep alive 60 s
        00 01 61                 # client id "a"
        """,
        Connect("a", V31, is_bridge=True),
    ),
    _valid(
        "5 with nothing but a client id",
        ONLY5,
        """
        10 0e              # CONNECT, 14 bytes
        00 04 4d 51 54 54  # "MQTT"
        05                 # level 5
        02                 # clean start
        00 3c              # keep alive 60 s
        00                 # no properties
        00 01 61           # client id "a"
        """,
        Connect("a", V5),
    ),
    _valid(
        "3.1.1 with everything",
        ONLY311,
        """
        10 1f              # CONNECT, 31 bytes
        00 04 4d 51 54 54  # "MQTT"
        04                 # level 4
        f4                 # user name, password, will retain, will QoS 2, will
        ff ff              # keep alive 65535 s
        00 02 69 64        # client id "id"
        00 03 77 2f 74     # will topic "w/t"
        00 02 00 ff        # will payload, any bytes
        00 01 75           # user name "u"
        00 03 70 00 ff     # password, any bytes
        """,
        Connect("id", V311, False, 65535, Will("w/t", b"\x00\xff", 2, True), "u", b"p\x00\xff"),
    ),
    _valid(
        "3.1 with everything",
        ONLY31,
        """
        10 21                    # CONNECT, 33 bytes
        00 06 4d 51 49 73 64 70  # "MQIsdp"
        03                       # level 3
        ce                       # user name, password, will QoS 1, will, clean session
        00 0a                    # keep alive 10 s
        00 02 69 64              # client id "id"
        00 03 77 2f 74           # will topic "w/t"
        00 03 62 79 65           # will payload "bye"
        00 01 75                 # user name "u"
        00 02 70 77              # password "pw"
        """,
        Connect("id", V31, True, 10, Will("w/t", b"bye", 1), "u", b"pw"),
    ),
    _valid(
        "5 with everything",
        ONLY5,
        """
        10 5a                       # CONNECT, 90 bytes
        00 04 4d 51 54 54           # "MQTT"
        05                          # level 5
        ee                          # user name, password, will retain, QoS 1, will, clean start
        00 00                       # keep alive off
        1e                          # 30 bytes of properties
        11 00 00 0e 10              #   session expiry interval 3600 s
        15 00 01 6d                 #   authentication method "m"
        16 00 01 ff                 #   authentication data
        17 00                       #   request problem information 0
        19 01                       #   request response information 1
        21 00 14                    #   receive maximum 20
        22 00 0a                    #   topic alias maximum 10
        26 00 01 6b 00 01 76        #   user property "k" = "v"
        00 01 61                    # client id "a"
        21                          # 33 bytes of will properties
        01 01                       #   payload format indicator 1
        02 00 00 00 05              #   message expiry interval 5 s
        03 00 01 74                 #   content type "t"
        08 00 01 72                 #   response topic "r"
        09 00 02 01 02              #   correlation data
        18 00 00 00 07              #   will delay interval 7 s
        26 00 02 77 6b 00 01 76     #   user property "wk" = "v"
        00 01 77                    # will topic "w"
        00 01 78                    # will payload "x"
        00 01 75                    # user name "u"
        00 01 70                    # password "p"
        """,
        Connect(
            "a",
            V5,
            True,
            0,
            Will(
                "w",
                b"x",
                1,
                True,
                Properties(
                    payload_format_indicator=1,
                    message_expiry_interval=5,
                    content_type="t",
                    response_topic="r",
                    correlation_data=b"\x01\x02",
                    will_delay_interval=7,
                    user_properties=[("wk", "v")],
                ),
            ),
            "u",
            b"p",
            Properties(
                session_expiry_interval=3600,
                authentication_method="m",
                authentication_data=b"\xff",
                request_problem_information=0,
                request_response_information=1,
                receive_maximum=20,
                topic_alias_maximum=10,
                user_properties=[("k", "v")],
            ),
        ),
    ),
    _valid(
        "5 with properties in another order than ours",
        ONLY5,
        """
        10 19              # CONNECT, 25 bytes
        00 04 4d 51 54 54  # "MQTT"
        05 02 00 3c        # level 5, clean start, keep alive 60 s
        0b                 # 11 bytes of properties
        27 00 00 ff ff     #   maximum packet size 65535
        22 00 01           #   topic alias maximum 1
        21 ff ff           #   receive maximum 65535
        00 01 61           # client id "a"
        """,
        Connect(
            "a",
            properties=Properties(
                maximum_packet_size=65535, topic_alias_maximum=1, receive_maximum=65535
            ),
        ),
        canonical=False,
    ),
    _valid(
        "5 with a password and no user name",
        ONLY5,
        """
        10 11                       # CONNECT, 17 bytes
        00 04 4d 51 54 54           # "MQTT"
        05 42 00 3c 00              # level 5, password, clean start, 60 s, no properties
        00 01 61                    # client id "a"
        00 01 70                    # password "p"
        """,
        Connect("a", V5, password=b"p"),
    ),
    _valid(
        "3.1.1 with an empty client id",
        ONLY311,
        "10 0c 00 04 4d 51 54 54 04 02 00 3c 00 00  # client id of length 0",
        Connect("", V311),
    ),
    _valid(
        "5 with an empty client id and without clean start",
        ONLY5,
        "10 0d 00 04 4d 51 54 54 05 00 00 3c 00 00 00  # client id of length 0",
        Connect("", V5, False),
    ),
    _valid(
        "3.1 with an empty client id, which the engine will judge",
        ONLY31,
        "10 0e 00 06 4d 51 49 73 64 70 03 02 00 3c 00 00  # client id of length 0",
        Connect("", V31),
    ),
    _valid(
        "3.1 ignores its reserved bit and its fixed header's flags",
        ONLY31,
        """
        1f 0f                    # CONNECT with all flags
        00 06 4d 51 49 73 64 70  # "MQIsdp"
        03 03 00 3c              # level 3, clean session and reserved bit, 60 s
        00 01 61                 # client id "a"
        """,
        Connect("a", V31),
        canonical=False,
    ),
    _valid(
        "3.1 ignores will QoS and will retain without a will",
        ONLY31,
        """
        10 0f                    # CONNECT
        00 06 4d 51 49 73 64 70  # "MQIsdp"
        03 3a 00 3c              # level 3, clean session, will retain, will QoS 3, no will
        00 01 61                 # client id "a"
        """,
        Connect("a", V31),
        canonical=False,
    ),
    _valid(
        "3.1 lets user name and password be missing in spite of their flags",
        ONLY31,
        """
        10 0f                    # CONNECT
        00 06 4d 51 49 73 64 70  # "MQIsdp"
        03 c2 00 3c              # level 3, clean session, user name, password
        00 01 61                 # client id "a", and that is all
        """,
        Connect("a", V31),
        canonical=False,
    ),
    _valid(
        "3.1 lets the password be missing in spite of its flag",
        ONLY31,
        """
        10 12                    # CONNECT
        00 06 4d 51 49 73 64 70  # "MQIsdp"
        03 c2 00 3c              # level 3, clean session, user name, password
        00 01 61 00 01 75        # client id "a", user name "u"
        """,
        Connect("a", V31, username="u"),
        canonical=False,
    ),
    _valid(
        "3.1.1 with a remaining length in more bytes than needed",
        ONLY311,
        "10 8d 80 00 00 04 4d 51 54 54 04 02 00 3c 00 01 61  # 13 as 8d 80 00",
        Connect("a", V311),
        canonical=False,
    ),
    _valid(
        "3.1.1 keeps a byte order mark [MQTT3-1.5.3-3]",
        ONLY311,
        "10 0f 00 04 4d 51 54 54 04 02 00 3c 00 03 ef bb bf  # client id U+FEFF",
        Connect("\ufeff", V311),
    ),
    _valid(
        "empty user name, password and will payload",
        ONLY311,
        """
        10 16              # CONNECT, 22 bytes
        00 04 4d 51 54 54  # "MQTT"
        04 c6 00 3c        # level 4, user name, password, will, clean session
        00 01 61           # client id "a"
        00 01 77 00 00     # will topic "w", empty payload
        00 00 00 00        # empty user name, empty password
        """,
        Connect("a", V311, will=Will("w", b""), username="", password=b""),
    ),
]

MISTAKES = [
    _mistake(
        "another protocol name [MQTT-3.1.2-1] [MQTT3-3.1.2-1]",
        STRICT,
        "10 0d 00 04 48 54 54 50 04 02 00 3c 00 01 61  # HTTP",
        0x84,
    ),
    _mistake(
        "protocol name in lower case [MQTT-3.1.2-1] [MQTT3-3.1.2-1]",
        STRICT,
        "10 0d 00 04 6d 71 74 74 04 02 00 3c 00 01 61  # mqtt",
        0x84,
    ),
    _mistake(
        "level 6 [MQTT-3.1.2-2]",
        ONLY5,
        "10 0e 00 04 4d 51 54 54 06 02 00 3c 00 00 01 61",
        0x84,
    ),
    _mistake("level 3 as MQTT", ONLY31, "10 0d 00 04 4d 51 54 54 03 02 00 3c 00 01 61", 0x84),
    _mistake(
        "level 4 as MQIsdp",
        ONLY31,
        "10 0f 00 06 4d 51 49 73 64 70 04 02 00 3c 00 01 61",
        0x84,
    ),
    _mistake(
        "level 5 in the dialect of bridges",
        ONLY5,
        "10 0e 00 04 4d 51 54 54 85 02 00 3c 00 00 01 61",
        0x84,
    ),
    _mistake("level 0", ONLY311, "10 0d 00 04 4d 51 54 54 00 02 00 3c 00 01 61", 0x84),
    _mistake(
        "3.1.1 reserved connect flag [MQTT3-3.1.2-3]",
        ONLY311,
        "10 0d 00 04 4d 51 54 54 04 03 00 3c 00 01 61",
        0x81,
    ),
    _mistake(
        "5 reserved connect flag [MQTT-3.1.2-3]",
        ONLY5,
        "10 0e 00 04 4d 51 54 54 05 03 00 3c 00 00 01 61",
        0x81,
    ),
    _mistake(
        "3.1.1 flags in the fixed header",
        ONLY311,
        "12 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 61",
        0x81,
    ),
    _mistake(
        "5 flags in the fixed header [MQTT-2.1.3-1]",
        ONLY5,
        "11 0e 00 04 4d 51 54 54 05 02 00 3c 00 00 01 61",
        0x81,
    ),
    _mistake(
        "3.1.1 will QoS without a will, v3.1.1 [MQTT-3.1.2-13]",
        ONLY311,
        "10 0d 00 04 4d 51 54 54 04 0a 00 3c 00 01 61",
        0x81,
    ),
    _mistake(
        "5 will QoS without a will [MQTT-3.1.2-11]",
        ONLY5,
        "10 0e 00 04 4d 51 54 54 05 12 00 3c 00 00 01 61",
        0x81,
    ),
    _mistake(
        "3.1.1 will retain without a will, v3.1.1 [MQTT-3.1.2-15]",
        ONLY311,
        "10 0d 00 04 4d 51 54 54 04 22 00 3c 00 01 61",
        0x81,
    ),
    _mistake(
        "5 will retain without a will [MQTT-3.1.2-13]",
        ONLY5,
        "10 0e 00 04 4d 51 54 54 05 22 00 3c 00 00 01 61",
        0x81,
    ),
    _mistake(
        "3.1.1 will QoS 3, v3.1.1 [MQTT-3.1.2-14]",
        ONLY311,
        "10 13 00 04 4d 51 54 54 04 1e 00 3c 00 01 61 00 01 77 00 01 78",
        0x81,
    ),
    _mistake(
        "3.1 will QoS 3",
        ONLY31,
        "10 15 00 06 4d 51 49 73 64 70 03 1e 00 3c 00 01 61 00 01 77 00 01 78",
        0x81,
    ),
    _mistake(
        "5 will QoS 3 [MQTT-3.1.2-12]",
        ONLY5,
        "10 15 00 04 4d 51 54 54 05 1e 00 3c 00 00 01 61 00 00 01 77 00 01 78",
        0x81,
    ),
    _mistake(
        "3.1.1 password without user name, v3.1.1 [MQTT-3.1.2-22]",
        ONLY311,
        "10 10 00 04 4d 51 54 54 04 42 00 3c 00 01 61 00 01 70",
        0x81,
    ),
    _mistake(
        "3.1 password without user name",
        ONLY31,
        "10 12 00 06 4d 51 49 73 64 70 03 42 00 3c 00 01 61 00 01 70",
        0x81,
    ),
    _mistake(
        "3.1.1 user name missing, v3.1.1 [MQTT-3.1.2-19]",
        ONLY311,
        "10 0d 00 04 4d 51 54 54 04 82 00 3c 00 01 61",
        0x81,
    ),
    _mistake(
        "3.1.1 password missing, v3.1.1 [MQTT-3.1.2-21]",
        ONLY311,
        "10 10 00 04 4d 51 54 54 04 c2 00 3c 00 01 61 00 01 75",
        0x81,
    ),
    _mistake(
        "3.1.1 will missing",
        ONLY311,
        "10 0d 00 04 4d 51 54 54 04 06 00 3c 00 01 61",
        0x81,
    ),
    _mistake(
        "empty will topic [MQTT3-4.7.3-1]",
        ONLY311,
        "10 12 00 04 4d 51 54 54 04 06 00 3c 00 01 61 00 00 00 01 78",
        0x82,
    ),
    _mistake(
        "bytes behind the last field, 3.1.1",
        ONLY311,
        "10 0e 00 04 4d 51 54 54 04 02 00 3c 00 01 61 00",
        0x81,
    ),
    _mistake(
        "bytes behind the last field, 3.1",
        ONLY31,
        "10 10 00 06 4d 51 49 73 64 70 03 02 00 3c 00 01 61 00",
        0x81,
    ),
    _mistake(
        "bytes behind the last field, 5",
        ONLY5,
        "10 0f 00 04 4d 51 54 54 05 02 00 3c 00 00 01 61 00",
        0x81,
    ),
    _mistake(
        "client id with U+0000 [MQTT3-1.5.3-2]",
        ONLY311,
        "10 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 00",
        0x81,
    ),
    _mistake(
        "client id with a surrogate [MQTT3-1.5.3-1]",
        ONLY311,
        "10 0f 00 04 4d 51 54 54 04 02 00 3c 00 03 ed a0 80  # U+D800",
        0x81,
    ),
    _mistake(
        "user name with ill-formed UTF-8 [MQTT-1.5.4-1]",
        ONLY5,
        "10 12 00 04 4d 51 54 54 05 82 00 3c 00 00 01 61 00 02 c0 80  # overlong U+0000",
        0x81,
    ),
    _mistake("client id missing", ONLY311, "10 0a 00 04 4d 51 54 54 04 02 00 3c", 0x81),
    _mistake("nothing at all", STRICT, "10 00", 0x81),
    _mistake("a protocol name only", STRICT, "10 06 00 04 4d 51 54 54", 0x81),
    _mistake(
        "client id longer than the packet",
        ONLY311,
        "10 0d 00 04 4d 51 54 54 04 02 00 3c 00 02 61",
        0x81,
    ),
    _mistake(
        "5 receive maximum 0",
        ONLY5,
        "10 11 00 04 4d 51 54 54 05 02 00 3c 03 21 00 00 00 01 61",
        0x82,
    ),
    _mistake(
        "5 maximum packet size 0",
        ONLY5,
        "10 13 00 04 4d 51 54 54 05 02 00 3c 05 27 00 00 00 00 00 01 61",
        0x82,
    ),
    _mistake(
        "5 request problem information 2",
        ONLY5,
        "10 10 00 04 4d 51 54 54 05 02 00 3c 02 17 02 00 01 61",
        0x82,
    ),
    _mistake(
        "5 session expiry interval twice",
        ONLY5,
        """
        10 18 00 04 4d 51 54 54 05 02 00 3c
        0a 11 00 00 00 01 11 00 00 00 01  # the same value, too
        00 01 61
        """,
        0x82,
    ),
    _mistake(
        "5 authentication data without a method",
        ONLY5,
        "10 12 00 04 4d 51 54 54 05 02 00 3c 04 16 00 01 ff 00 01 61",
        0x82,
    ),
    _mistake(
        "5 topic alias in CONNECT",
        ONLY5,
        "10 11 00 04 4d 51 54 54 05 02 00 3c 03 23 00 01 00 01 61",
        0x81,
    ),
    _mistake(
        "5 will delay interval outside the will properties",
        ONLY5,
        "10 13 00 04 4d 51 54 54 05 02 00 3c 05 18 00 00 00 01 00 01 61",
        0x81,
    ),
    _mistake(
        "5 session expiry interval among the will properties",
        ONLY5,
        """
        10 1a 00 04 4d 51 54 54 05 06 00 3c 00 00 01 61
        05 11 00 00 00 01  # will properties
        00 01 77 00 01 78
        """,
        0x81,
    ),
    _mistake(
        "5 properties longer than the packet",
        ONLY5,
        "10 0e 00 04 4d 51 54 54 05 02 00 3c 7f 00 01 61",
        0x81,
    ),
    _mistake(
        "5 remaining length in more bytes than needed [MQTT-1.5.5-1]",
        ONLY5,
        "10 8e 00 00 04 4d 51 54 54 05 02 00 3c 00 00 01 61",
        0x81,
    ),
    _mistake("PUBLISH before CONNECT [MQTT3-3.1.0-1]", V3X, "30 03 00 01 61", 0x82, at=1),
    _mistake("PINGREQ before CONNECT [MQTT-3.1.0-1]", ONLY5, "c0 00", 0x82, at=1),
    _mistake("CONNACK before CONNECT", ONLY5, "20 03 00 00 00", 0x82, at=1),
    _mistake("packet type 0 as the first packet", STRICT, "00 00", 0x81, at=1),
    Mistake(
        "a second CONNECT, 3.1.1 [MQTT3-3.1.0-2]",
        ONLY311,
        CLIENT,
        octets("10 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 61"),
        0x82,
        at=1,
    ),
    Mistake(
        "a second CONNECT, 5 [MQTT-3.1.0-2]",
        ONLY5,
        CLIENT,
        octets("10 0e 00 04 4d 51 54 54 05 02 00 3c 00 00 01 61"),
        0x82,
        at=1,
    ),
]
