"""Packets as they go over the wire: cut out of the stream by their fixed header alone (v5 §2.1).

For looking at, not for sending: the bytes stay as they are, and only what a test asks about is
read from them, without the product's own decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from penstock.protocol.fixed_header import DUP_FLAG, QOS_FLAGS
from penstock.protocol.kinds import PINGREQ, PUBLISH, SUBSCRIBE, V5, packet_name

UP: Final = "up"  # from the client to the broker
DOWN: Final = "down"  # from the broker to the client


@final
@dataclass(frozen=True)
class Seen:
    """One packet, as it went through the proxy.

    Attributes:
        connection: number of the connection, from 1 in the order of their arrival.
        way: ``UP`` or ``DOWN``.
        kind: control packet type, 1 to 15 (``penstock.protocol.kinds``).
        packet_id: 0 where it has none.
        qos: of PUBLISH, else 0.
        dup: the flag of PUBLISH (and, in MQTT 3.1, of PUBREL and others).
        topic: of PUBLISH, else empty; empty too where an alias stands for it.
        payload: of PUBLISH, else empty.
        raw: the packet's bytes.
        passed: False if a rule swallowed it.
    """

    connection: int
    way: str
    kind: int
    packet_id: int
    qos: int
    dup: bool
    topic: str
    payload: bytes
    raw: bytes
    passed: bool = True

    def __str__(self) -> str:
        name = packet_name(self.kind)
        return (
            f"{name} {self.packet_id}{' DUP' if self.dup else ''} {self.payload.decode()}".strip()
        )


def cut_in_packets(data: bytes) -> Iterator[bytes]:
    """Each whole packet in ``data``, and last what is left: the beginning of one, or nothing."""
    start = 0
    while True:
        body = _body_of(data, start)
        if body is None or body[1] > len(data):
            yield data[start:]
            return
        yield data[start : body[1]]
        start = body[1]


def _body_of(data: bytes, start: int) -> tuple[int, int] | None:
    """Where the body of the packet at ``start`` begins and ends; None: its length is not here."""
    number = _number_at(data, start + 1)
    return None if number is None else (number[1], number[1] + number[0])


def _number_at(data: bytes, at: int) -> tuple[int, int] | None:
    """A variable byte integer (v5 §1.5.5) and where it ends; None: it is not all here."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        assert shift < 28, "four bytes of length, and more follow"
    return None


def version_of(connect: bytes) -> int:
    """The protocol level that CONNECT names."""
    body = _body_of(connect, 0)
    assert body is not None
    at = body[0]
    return connect[at + 2 + int.from_bytes(connect[at : at + 2], "big")]


def seen(connection: int, way: str, raw: bytes, version: int, *, passed: bool = True) -> Seen:
    """What one packet is. A piece of one, at the end of a stream, has only its type."""
    kind, flags = raw[0] >> 4, raw[0] & 0x0F
    qos = (flags & QOS_FLAGS) >> 1 if kind == PUBLISH else 0
    dup = kind not in (SUBSCRIBE, PINGREQ) and bool(flags & DUP_FLAG)
    packet_id, topic, payload = 0, "", b""
    body = _body_of(raw, 0)
    if body is not None and body[1] == len(raw):
        at = body[0]
        if kind == PUBLISH:
            length = int.from_bytes(raw[at : at + 2], "big")
            topic = raw[at + 2 : at + 2 + length].decode()
            at += 2 + length
            if qos > 0:
                packet_id = int.from_bytes(raw[at : at + 2], "big")
                at += 2
            if version == V5:
                properties = _number_at(raw, at)
                assert properties is not None
                at = properties[1] + properties[0]
            payload = raw[at:]
        elif PUBLISH < kind < PINGREQ:
            packet_id = int.from_bytes(raw[at : at + 2], "big")
    return Seen(connection, way, kind, packet_id, qos, dup, topic, payload, raw, passed)
