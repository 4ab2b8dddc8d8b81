"""Reason strings: the reason of a refusal, for clients that accept one.

A reason string is for people only. It is omitted if the client asked for no problem information
[MQTT-3.1.2-29], or if the packet would exceed the client's maximum packet size [MQTT-3.4.2-2]
[MQTT-3.9.2-1].
"""

from __future__ import annotations

from typing import Final

from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode, encode_ack
from penstock.protocol.kinds import PUBACK, PUBREC, V5
from penstock.protocol.packets import Connack, Connect, Packet, Puback, Pubcomp, Pubrec
from penstock.protocol.properties import Properties

REASON_CHARACTERS_MAX: Final = 200  # of a reason string, in packets and in the log
NAME_CHARACTERS_MAX: Final = 40  # of a name, filter or topic that is quoted in a reason string


def fits(packet: Packet, version: int, size_bytes_max: int) -> bool:
    """Return whether ``packet`` has at most ``size_bytes_max``; 0 = any size [MQTT-3.1.2-24]."""
    return size_bytes_max <= 0 or len(encode(packet, version)) <= size_bytes_max


def reason_properties(link: Link, why: str) -> Properties | None:
    """Return properties with a reason string; None for a client that asked for no problem
    information."""
    if link.version != V5 or not link.problem_information or not why:
        return None
    return Properties(reason_string=why[:REASON_CHARACTERS_MAX])


def encode_acknowledgement(
    packet_type: int, packet_id: int, code: int, why: str, link: Link
) -> bytes:
    """Return an encoded PUBACK, PUBREC or PUBCOMP; with the reason string ``why`` if ``code`` is a
    refusal."""
    if code >= reasons.UNSPECIFIED_ERROR:
        properties = reason_properties(link, why)
        if properties is not None:
            packet: Packet
            if packet_type == PUBACK:
                packet = Puback(packet_id, code, properties)
            elif packet_type == PUBREC:
                packet = Pubrec(packet_id, code, properties)
            else:
                packet = Pubcomp(packet_id, code, properties)
            if fits(packet, V5, link.max_packet_size_bytes):
                return encode(packet, V5)
    return encode_ack(packet_type, packet_id, code, link.version)


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
    for topic_filter, code in zip(filters, codes, strict=True):
        if code >= reasons.UNSPECIFIED_ERROR:
            refused += 1
            if refused == 1:
                first = f"{quote(topic_filter)}: {reasons.name_of(code)}"
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
