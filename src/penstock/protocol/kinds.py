"""The numbers of protocol levels and packet types."""

from typing import Final

# Protocol levels as in CONNECT.
V31: Final = 3
V311: Final = 4
V5: Final = 5

BRIDGE_BIT: Final = 0x80
"""A bridge sets this bit in the level of V31 and V311 (0x83, 0x84) to receive RETAIN as published,
and none of its own messages. It is Mosquitto's dialect, and in no specification."""

# Control packet types: the upper four bits of the first byte (v5 §2.1.2).
CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

_NAMES: Final[list[str]] = [
    "RESERVED",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
]


def packet_name(packet_type: int) -> str:
    """Return the specification's name of a packet type (0 to 15)."""
    return _NAMES[packet_type]
