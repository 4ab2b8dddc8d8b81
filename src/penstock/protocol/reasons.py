"""Reason codes of MQTT 5, the older versions' codes, and the packets that may carry each.

The packet classes always have MQTT 5 codes; encoding and decoding translate them. MQTT 3.1.1 has a
return code in CONNACK (0 to 5) and in SUBACK (0, 1, 2, 0x80) only. For MQTT 3.1 the same codes are
used, although its specification has only 0 to 3 for CONNACK and no failure for SUBACK: its clients
know the others, too.
"""

from typing import Final

from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
)

SUCCESS: Final = 0x00
NORMAL_DISCONNECTION: Final = 0x00
GRANTED_QOS_0: Final = 0x00
GRANTED_QOS_1: Final = 0x01
GRANTED_QOS_2: Final = 0x02
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_IN_USE: Final = 0x91
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

# CONNACK return codes of MQTT 3.1 and 3.1.1 (v3.1.1 §3.2.2.3).
V3_ACCEPTED: Final = 0
V3_UNACCEPTABLE_PROTOCOL_VERSION: Final = 1
V3_IDENTIFIER_REJECTED: Final = 2
V3_SERVER_UNAVAILABLE: Final = 3
V3_BAD_USER_NAME_OR_PASSWORD: Final = 4
V3_NOT_AUTHORIZED: Final = 5

# Each reason code: its name, the CONNACK return code it becomes below MQTT 5, and the packets that
# may carry it (v5 §2.4 and the table in each packet's chapter).
_TABLE: Final[list[tuple[int, str, int, tuple[int, ...]]]] = [
    (
        0x00,
        "success",
        0,
        (CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH),
    ),
    (0x01, "granted QoS 1", 3, (SUBACK,)),
    (0x02, "granted QoS 2", 3, (SUBACK,)),
    (0x04, "disconnect with will message", 3, (DISCONNECT,)),
    (0x10, "no matching subscribers", 3, (PUBACK, PUBREC)),
    (0x11, "no subscription existed", 3, (UNSUBACK,)),
    (0x18, "continue authentication", 3, (AUTH,)),
    (0x19, "re-authenticate", 3, (AUTH,)),
    (0x80, "unspecified error", 3, (CONNACK, PUBACK, PUBREC, SUBACK, UNSUBACK, DISCONNECT)),
    (0x81, "malformed packet", 3, (CONNACK, DISCONNECT)),
    (0x82, "protocol error", 3, (CONNACK, DISCONNECT)),
    (
        0x83,
        "implementation specific error",
        3,
        (CONNACK, PUBACK, PUBREC, SUBACK, UNSUBACK, DISCONNECT),
    ),
    (0x84, "unsupported protocol version", 1, (CONNACK,)),
    (0x85, "client identifier not valid", 2, (CONNACK,)),
    (0x86, "bad user name or password", 4, (CONNACK,)),
    (0x87, "not authorized", 5, (CONNACK, PUBACK, PUBREC, SUBACK, UNSUBACK, DISCONNECT)),
    (0x88, "server unavailable", 3, (CONNACK,)),
    (0x89, "server busy", 3, (CONNACK, DISCONNECT)),
    (0x8A, "banned", 5, (CONNACK,)),
    (0x8B, "server shutting down", 3, (DISCONNECT,)),
    (0x8C, "bad authentication method", 5, (CONNACK, DISCONNECT)),
    (0x8D, "keep alive timeout", 3, (DISCONNECT,)),
    (0x8E, "session taken over", 3, (DISCONNECT,)),
    (0x8F, "topic filter invalid", 3, (SUBACK, UNSUBACK, DISCONNECT)),
    (0x90, "topic name invalid", 5, (CONNACK, PUBACK, PUBREC, DISCONNECT)),
    (0x91, "packet identifier in use", 3, (PUBACK, PUBREC, SUBACK, UNSUBACK)),
    (0x92, "packet identifier not found", 3, (PUBREL, PUBCOMP)),
    (0x93, "receive maximum exceeded", 3, (DISCONNECT,)),
    (0x94, "topic alias invalid", 3, (DISCONNECT,)),
    (0x95, "packet too large", 3, (CONNACK, DISCONNECT)),
    (0x96, "message rate too high", 3, (DISCONNECT,)),
    (0x97, "quota exceeded", 3, (CONNACK, PUBACK, PUBREC, SUBACK, DISCONNECT)),
    (0x98, "administrative action", 3, (DISCONNECT,)),
    (0x99, "payload format invalid", 3, (CONNACK, PUBACK, PUBREC, DISCONNECT)),
    (0x9A, "retain not supported", 3, (CONNACK, DISCONNECT)),
    (0x9B, "QoS not supported", 3, (CONNACK, DISCONNECT)),
    (0x9C, "use another server", 3, (CONNACK, DISCONNECT)),
    (0x9D, "server moved", 3, (CONNACK, DISCONNECT)),
    (0x9E, "shared subscriptions not supported", 3, (SUBACK, DISCONNECT)),
    (0x9F, "connection rate exceeded", 3, (CONNACK, DISCONNECT)),
    (0xA0, "maximum connect time", 3, (DISCONNECT,)),
    (0xA1, "subscription identifiers not supported", 3, (SUBACK, DISCONNECT)),
    (0xA2, "wildcard subscriptions not supported", 3, (SUBACK, DISCONNECT)),
]


def _carriers_of(reason: int) -> tuple[int, ...]:
    for code, _, _, carriers in _TABLE:
        if code == reason:
            return carriers
    return ()


_NAMES: Final[dict[int, str]] = {code: name for code, name, _, _ in _TABLE}
_V3_CODES: Final[dict[int, int]] = {code: v3_code for code, _, v3_code, _ in _TABLE}
_ALLOWED: Final[list[bytes]] = [  # by packet type, then by reason code: 1 if it is allowed
    bytes([kind in _carriers_of(code) for code in range(256)]) for kind in range(16)
]
_FROM_V3: Final[list[int]] = [
    SUCCESS,
    UNSUPPORTED_PROTOCOL_VERSION,
    CLIENT_IDENTIFIER_NOT_VALID,
    SERVER_UNAVAILABLE,
    BAD_USER_NAME_OR_PASSWORD,
    NOT_AUTHORIZED,
]


def name_of(reason: int) -> str:
    """Return the specification's name of a reason code, in lower case; "reason 0xNN" for an unknown
    code."""
    return _NAMES.get(reason, f"reason 0x{reason:02x}")


def all_reasons() -> list[int]:
    """Return all reason codes of MQTT 5, in ascending order."""
    return list(_NAMES)


def is_allowed(reason: int, packet_type: int) -> bool:
    """Return whether an MQTT 5 packet of this type may carry this reason code."""
    return 0 <= reason <= 0xFF and _ALLOWED[packet_type][reason] != 0


def connack_code(reason: int, version: int) -> int:
    """Return the code in a CONNACK of this protocol level for an MQTT 5 reason code.

    Below MQTT 5 a reason code without a corresponding return code becomes 3, server unavailable.
    """
    if version >= V5:
        return reason
    return _V3_CODES.get(reason, V3_SERVER_UNAVAILABLE)


def reason_of_connack_code(code: int) -> int:
    """Return the MQTT 5 reason code for a CONNACK return code below MQTT 5; -1 if it is
    reserved."""
    if code < 0 or code >= len(_FROM_V3):
        return -1
    return _FROM_V3[code]


def suback_code(reason: int, version: int) -> int:
    """Return the code in a SUBACK of this protocol level: below MQTT 5 every failure is 0x80."""
    if version < V5 and reason >= UNSPECIFIED_ERROR:
        return UNSPECIFIED_ERROR
    return reason
