"""PUBACK, PUBREC, PUBREL and PUBCOMP (v5 §3.4 to §3.7): valid and not.

The four have one form, so most vectors are made for each of them.
"""

from penstock.protocol.packets import Ack, Puback, Pubcomp, Pubrec, Pubrel
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

_FIRST_BYTES: dict[type[Ack], int] = {Puback: 0x40, Pubrec: 0x50, Pubrel: 0x62, Pubcomp: 0x70}
# For each packet a failure it may carry, and a reason code that exists for others only.
_FAILURES: dict[type[Ack], int] = {Puback: 0x97, Pubrec: 0x99, Pubrel: 0x92, Pubcomp: 0x92}
_FOREIGN: dict[type[Ack], int] = {Puback: 0x92, Pubrec: 0x8E, Pubrel: 0x10, Pubcomp: 0x80}


def _valid_of(kind: type[Ack], first: int) -> list[Valid]:
    name = kind.__name__.upper()
    failure = _FAILURES[kind]
    return [
        Valid(f"{name}", ALL, CLIENT, bytes((first, 2, 0, 1)), kind(1)),
        Valid(f"{name} from the server", ALL, SERVER, bytes((first, 2, 255, 255)), kind(65535)),
        Valid(
            f"{name} with reason code 0 written out (v5 §3.4.2.1)",
            ONLY5,
            CLIENT,
            bytes((first, 3, 0, 1, 0)),
            kind(1),
            canonical=False,
        ),
        Valid(
            f"{name} with reason code and property length 0 written out",
            ONLY5,
            CLIENT,
            bytes((first, 4, 0, 1, 0, 0)),
            kind(1),
            canonical=False,
        ),
        Valid(
            f"{name} with a failure",
            ONLY5,
            CLIENT,
            bytes((first, 3, 1, 0, failure)),
            kind(256, failure),
        ),
        Valid(
            f"{name} with reason string and user property",
            ONLY5,
            SERVER,
            bytes((first, 0x10, 0, 1, failure))
            + octets("""
            0c                    # 12 bytes of properties
            1f 00 02 6e 6f        # reason string "no"
            26 00 01 6b 00 01 76  # user property "k" = "v"
            """),
            kind(1, failure, Properties(reason_string="no", user_properties=[("k", "v")])),
        ),
        Valid(
            f"{name} with success and a reason string",
            ONLY5,
            CLIENT,
            bytes((first, 8, 0, 1, 0)) + octets("04 1f 00 01 79"),
            kind(1, 0, Properties(reason_string="y")),
        ),
    ]


def _mistakes_of(kind: type[Ack], first: int) -> list[Mistake]:
    name = kind.__name__.upper()
    foreign = _FOREIGN[kind]
    return [
        Mistake(f"{name} for packet id 0", ALL, CLIENT, bytes((first, 2, 0, 0)), 0x82),
        Mistake(f"{name} without a packet id", ALL, CLIENT, bytes((first, 0)), 0x81),
        Mistake(f"{name} with half a packet id", ALL, CLIENT, bytes((first, 1, 0)), 0x81),
        Mistake(f"{name} with a reason code", V3X, CLIENT, bytes((first, 3, 0, 1, 0)), 0x81),
        Mistake(
            f"{name} with an unknown reason code",
            ONLY5,
            CLIENT,
            bytes((first, 3, 0, 1, 0xFF)),
            0x82,
        ),
        Mistake(
            f"{name} with another packet's reason code",
            ONLY5,
            CLIENT,
            bytes((first, 3, 0, 1, foreign)),
            0x82,
        ),
        Mistake(
            f"{name} with another packet's property",
            ONLY5,
            CLIENT,
            bytes((first, 7, 0, 1, 0)) + octets("03 23 00 01  # topic alias"),
            0x81,
        ),
        Mistake(
            f"{name} with two reason strings",
            ONLY5,
            CLIENT,
            bytes((first, 12, 0, 1, 0)) + octets("08 1f 00 01 79 1f 00 01 79"),
            0x82,
        ),
        Mistake(
            f"{name} with bytes behind the properties",
            ONLY5,
            CLIENT,
            bytes((first, 5, 0, 1, 0, 0, 0)),
            0x81,
        ),
        Mistake(
            f"{name} with properties longer than the packet",
            ONLY5,
            CLIENT,
            bytes((first, 4, 0, 1, 0, 5)),
            0x81,
        ),
        Mistake(
            f"{name} with other flags", STRICT, CLIENT, bytes((first ^ 0x02, 2, 0, 1)), 0x81, at=1
        ),
        Mistake(
            f"{name} with all flags", STRICT, SERVER, bytes((first | 0x0F, 2, 0, 1)), 0x81, at=1
        ),
    ]


VALID = [vector for kind, first in _FIRST_BYTES.items() for vector in _valid_of(kind, first)] + [
    Valid("PUBACK without subscribers", ONLY5, SERVER, octets("40 03 00 01 10"), Puback(1, 0x10)),
    Valid("PUBREC without subscribers", ONLY5, SERVER, octets("50 03 00 01 10"), Pubrec(1, 0x10)),
    Valid("PUBREL again (v3.1 §4.1)", ONLY31, CLIENT, octets("6a 02 00 01"), Pubrel(1, dup=True)),
    Valid(
        "PUBREL without flags (v3.1 §3.6)",
        ONLY31,
        CLIENT,
        octets("60 02 00 01"),
        Pubrel(1),
        canonical=False,
    ),
    Valid(
        "PUBACK with flags (v3.1 §3.4)",
        ONLY31,
        CLIENT,
        octets("4f 02 00 01"),
        Puback(1),
        canonical=False,
    ),
]

MISTAKES = [
    mistake for kind, first in _FIRST_BYTES.items() for mistake in _mistakes_of(kind, first)
] + [
    Mistake(
        "PUBREL without flags [MQTT-3.6.1-1] [MQTT3-3.6.1-1]",
        STRICT,
        CLIENT,
        octets("60 02 00 01"),
        0x81,
        at=1,
    ),
    Mistake(
        "PUBREL again [MQTT-3.6.1-1] [MQTT3-3.6.1-1]",
        STRICT,
        CLIENT,
        octets("6a 02 00 01"),
        0x81,
        at=1,
    ),
]
