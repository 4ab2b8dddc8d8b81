"""A refusal: its reason code, and the sentence for clients that accept one.

A reason string is for people only. It is omitted if the client asked for no problem information
[MQTT-3.1.2-29], or if the packet would exceed the client's maximum packet size [MQTT-3.4.2-2]
[MQTT-3.9.2-1].
"""

from __future__ import annotations

from typing import Final

from penstock.errors import RemoteProtocolError, UnsupportedProtocolVersion
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import BRIDGE_BIT, CONNACK, V5, V311
from penstock.protocol.packets import Connack, Connect, Packet
from penstock.protocol.properties import Properties

REASON_CHARACTERS_MAX: Final = 200  # of a reason string, in packets and in the log
NAME_CHARACTERS_MAX: Final = 40  # of a name, filter or topic that is quoted in a reason string


def fits(packet: Packet, version: int, size_bytes_max: int) -> bool:
    """Return whether ``packet`` has at most ``size_bytes_max``; 0 = any size [MQTT-3.1.2-24]."""
    return size_bytes_max <= 0 or len(encode(packet, version)) <= size_bytes_max


def quote(name: str) -> str:
    """Return ``name`` in quotes, cut to ``NAME_CHARACTERS_MAX`` characters."""
    return repr(name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}…")


def claimed_names(connect: Connect | None) -> str:
    """Return the client identifier and user name of a refused CONNECT, in parentheses, for the
    log."""
    if connect is None:
        return ""
    names = f"client {quote(connect.client_id)}"
    if connect.username is not None:
        names += f", user {quote(connect.username)}"
    return f" ({names})"


def refused_filters_text(filters: list[str], codes: list[int]) -> str:
    """Return the reason string of a SUBACK or UNSUBACK: its first refused filter, and the reason.

    Return an empty text if no filter was refused.
    """
    refused = 0
    first = ""
    for position, code in enumerate(codes):
        if code >= reasons.UNSPECIFIED_ERROR:
            refused += 1
            if refused == 1:
                first = f"{quote(filters[position])}: {reasons.name_of(code)}"
    if refused <= 1:
        return first
    return f"{first}; {refused} of {len(codes)} filters are refused"


def refusing_connack(
    connect: Connect | None, code: int, why: str, server_reference: str
) -> Connack:
    """Return the CONNACK that refuses ``connect``; None = the first packet is not a valid CONNECT.

    Reason string and server reference are for MQTT 5 clients, if the packet has room.
    """
    answer = Connack(code)
    if connect is None or connect.version != V5:
        return answer
    asked = connect.properties or Properties()
    size_bytes_max = asked.maximum_packet_size or 0
    properties = Properties()
    if server_reference and code in (reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED):
        properties.server_reference = server_reference
    answer.properties = properties
    if asked.request_problem_information != 0:
        properties.reason_string = why[:REASON_CHARACTERS_MAX] or None
    if not fits(answer, V5, size_bytes_max):
        properties.reason_string = None  # [MQTT-3.2.2-19]
    if not fits(answer, V5, size_bytes_max):
        answer.properties = None
    return answer


def refusal_version(error: UnsupportedProtocolVersion) -> int:
    """Return the protocol level in which to refuse a client of an unknown version."""
    level = error.level & ~BRIDGE_BIT
    is_newer = level > V5 or error.level == V5 | BRIDGE_BIT
    return V5 if is_newer else V311  # [MQTT-3.1.2-2]


def refusal_code(error: RemoteProtocolError) -> int:
    """Return the reason code of the CONNACK for a CONNECT that violates the protocol."""
    known = reasons.is_allowed(error.reason, CONNACK)
    return error.reason if known else reasons.PROTOCOL_ERROR
