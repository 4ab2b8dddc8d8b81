"""Reason strings of one connection, for a client that accepts them; see ``values.refusals``."""

from __future__ import annotations

from penstock.engine.values.refusals import REASON_CHARACTERS_MAX, fits
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode, encode_ack
from penstock.protocol.kinds import PUBACK, PUBREC, V5
from penstock.protocol.packets import Packet, Puback, Pubcomp, Pubrec
from penstock.protocol.properties import Properties


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
