"""The first byte of a packet: packet type in the upper, flags in the lower four bits.

Protocol level, direction and first byte decide whether the peer may send this packet type at all,
whether it may send the type now, and whether the flags are right. `first_byte_verdicts` has the
result for all 256 values, so that the decoder needs one table look-up before it waits for the rest
of a packet.

    version 0 (no CONNECT yet) ──CONNECT──▶ version 3, 4 or 5 ──CONNECT──▶ protocol error
"""

from typing import Final

from penstock.errors import RemoteProtocolError
from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBLISH,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    packet_name,
)
from penstock.protocol.reasons import MALFORMED_PACKET, PROTOCOL_ERROR

FROM_CLIENT_ONLY: Final = (CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ)
FROM_SERVER_ONLY: Final = (CONNACK, SUBACK, UNSUBACK, PINGRESP)
WITH_FLAGS_0010: Final = (PUBREL, SUBSCRIBE, UNSUBSCRIBE)

RETAIN_FLAG: Final = 0x01
QOS_FLAGS: Final = 0x06
DUP_FLAG: Final = 0x08


def check_first_byte(first: int, version: int, server: bool) -> None:
    """Check the first byte of a packet.

    Args:
        first: the byte.
        version: the protocol level, 3 to 5; 0 before a server has received CONNECT.
        server: True if the packet was sent to a server, False if to a client.

    Raises:
        RemoteProtocolError: the byte is not allowed (0x81, 0x82).
    """
    packet_type = first >> 4
    if packet_type == 0 or (packet_type == AUTH and version in (V31, V311)):
        raise RemoteProtocolError(MALFORMED_PACKET, f"packet type {packet_type} is reserved")
    name = packet_name(packet_type)
    if version == 0 and packet_type != CONNECT:  # [MQTT-3.1.0-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, f"{name} came before CONNECT")
    if version != 0 and packet_type == CONNECT:  # [MQTT-3.1.0-2]
        raise RemoteProtocolError(PROTOCOL_ERROR, "there was a CONNECT already")
    if packet_type in (FROM_SERVER_ONLY if server else FROM_CLIENT_ONLY):
        raise RemoteProtocolError(PROTOCOL_ERROR, f"{name} goes the other way only")
    if packet_type == DISCONNECT and not server and version < V5:  # v3.1.1 §3.14
        raise RemoteProtocolError(PROTOCOL_ERROR, "a server sends no DISCONNECT below MQTT 5")
    if not _are_flags_right(packet_type, first & 0x0F, version):
        raise RemoteProtocolError(MALFORMED_PACKET, f"{name} has flags {first & 0x0F:04b}")


def _are_flags_right(packet_type: int, flags: int, version: int) -> bool:
    qos_flags = flags & QOS_FLAGS
    if packet_type == PUBLISH:
        if qos_flags == QOS_FLAGS:  # [MQTT-3.3.1-4]
            return False
        # [MQTT-3.3.1-2]; v3.1 §2.1: "not used" at QoS 0, so ignored.
        return not (flags & DUP_FLAG and qos_flags == 0 and version != V31)
    if version == V31:
        # v3.1 §3.8, §3.10: QoS 1 and DUP; everywhere else the flags are not used.
        return packet_type not in (SUBSCRIBE, UNSUBSCRIBE) or qos_flags == 0x02
    if version == 0:
        return True  # CONNECT: ``read_connect`` checks its flags
    # [MQTT-2.1.3-1], v3.1.1 [MQTT-2.2.2-2], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1]
    return flags == (0x02 if packet_type in WITH_FLAGS_0010 else 0)


def _verdicts(version: int, server: bool) -> bytes:
    return bytes([not _is_right(first, version, server) for first in range(256)])


def _is_right(first: int, version: int, server: bool) -> bool:
    try:
        check_first_byte(first, version, server)
    except RemoteProtocolError:
        return False
    return True


_FOR_SERVER: Final[list[bytes]] = [_verdicts(v, True) for v in (0, 1, 2, V31, V311, V5)]
_FOR_CLIENT: Final[list[bytes]] = [_verdicts(v, False) for v in (0, 1, 2, V31, V311, V5)]


def first_byte_verdicts(version: int, server: bool) -> bytes:
    """Return a table with a byte for each first byte: 0 if `check_first_byte` accepts it, else
    1."""
    return _FOR_SERVER[version] if server else _FOR_CLIENT[version]
