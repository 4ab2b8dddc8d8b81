"""Wire vectors: named cases of bytes and what they mean, as data.

A vector says who sent the bytes, on connections of which versions, and what they are: a packet, or
a mistake with its reason code. Bytes are written in hexadecimal with a comment on each line.
`canonical` is False for bytes that are valid but not what we would write ourselves.
"""

from dataclasses import dataclass

from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Packet

ALL = (V31, V311, V5)
V3X = (V31, V311)
STRICT = (V311, V5)
ONLY5 = (V5,)
ONLY311 = (V311,)
ONLY31 = (V31,)

CLIENT = "client"
SERVER = "server"


@dataclass(frozen=True)
class Valid:
    """Bytes that are a packet. first_packet: the connection has seen no CONNECT before."""

    name: str
    versions: tuple[int, ...]
    sender: str
    data: bytes
    packet: Packet
    canonical: bool = True
    first_packet: bool = False


@dataclass(frozen=True)
class Mistake:
    """Bytes that break the protocol, with the MQTT 5 reason code for it.

    at is how many of the bytes are enough to see it; None means all of them.
    """

    name: str
    versions: tuple[int, ...]
    sender: str
    data: bytes
    reason: int
    at: int | None = None
    first_packet: bool = False


def octets(commented: str) -> bytes:
    """The bytes of lines like `10 0c  # CONNECT, 12 bytes follow`."""
    return b"".join(bytes.fromhex(line.split("#")[0]) for line in commented.splitlines())
