"""No packet, version or property is without its vector; and each property where it may not be.

The table of the specification stands in ``tests/vectors/properties.toml``. Here each property is
put into a whole packet of every type, and is read there or refused, as that table says.
"""

from typing import Final

import pytest

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
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
from penstock.protocol.packets import Connect, Packet
from penstock.protocol.properties import Properties
from penstock.protocol.property_rules import RULES, WILL
from tests.vectors import VECTORS, Mistake, Valid
from tests.vectors.properties import EVERY_CARRIER, PROPERTIES, PropertyVector

KINDS: Final = [
    (kind, version)
    for kind in range(CONNECT, AUTH + 1)
    for version in (V31, V311, V5)
    if kind != AUTH or version == V5
]

# What stands before and behind the properties in the smallest packet of each carrier.
_AROUND: Final = {
    CONNECT: ("10", "0004 4d515454 05 02 0000", "0001 61"),
    WILL: ("10", "0004 4d515454 05 06 0000 00 0001 61", "0001 77 0000"),
    CONNACK: ("20", "00 00", ""),
    PUBLISH: ("30", "0001 61", ""),
    PUBACK: ("40", "0001 00", ""),
    PUBREC: ("50", "0001 00", ""),
    PUBREL: ("62", "0001 00", ""),
    PUBCOMP: ("70", "0001 00", ""),
    SUBSCRIBE: ("82", "0001", "0001 61 00"),
    SUBACK: ("90", "0001", "00"),
    UNSUBSCRIBE: ("a2", "0001", "0001 61"),
    UNSUBACK: ("b0", "0001", "00"),
    DISCONNECT: ("e0", "00", ""),
    AUTH: ("f0", "18", ""),
}
_FROM_SERVER: Final = {CONNACK, SUBACK, UNSUBACK}


def _kind_of(vector: Valid | Mistake) -> int:
    return vector.data[0] >> 4


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_every_packet_has_vectors_in_every_version(kind: int, version: int) -> None:
    for what in (Valid, Mistake):
        found = [
            vector.name
            for vector in VECTORS
            if isinstance(vector, what) and _kind_of(vector) == kind and version in vector.versions
        ]
        assert found, f"{packet_name(kind)} has no {what.__name__} in version {version}"


def test_every_vector_has_a_name_of_its_own() -> None:
    names = [
        (_kind_of(vector), vector.name, version)
        for vector in VECTORS
        for version in vector.versions
    ]
    doubled = {name for name in names if names.count(name) > 1}
    assert not doubled


def test_every_property_of_the_specification_is_in_the_table() -> None:
    """v5 §2.2.2.2, table 2-4."""
    expected = {0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x11, 0x12, 0x13, 0x15, 0x16, 0x17, 0x18}
    expected |= {0x19, 0x1A, 0x1C, 0x1F, *range(0x21, 0x2B)}
    assert {vector.data[0] for vector in PROPERTIES} == expected
    assert len(expected) == 27


def _packet(carrier: int, properties: bytes) -> tuple[bytes, Decoder]:
    first, before, behind = _AROUND[carrier]
    needs_method = carrier == AUTH or (carrier == CONNECT and properties[0] == 0x16)
    if carrier == CONNACK and properties[0] == 0x16:
        needs_method = True
    if needs_method and properties[0] != 0x15:
        properties = b"\x15\x00\x01m" + properties  # no data without a method
    body = bytes.fromhex(before) + bytes((len(properties),)) + properties + bytes.fromhex(behind)
    from_server = carrier in _FROM_SERVER
    if properties[0] == 0x0B and carrier == PUBLISH:
        from_server = True  # [MQTT-3.3.4-6]: a client must not
    if carrier == DISCONNECT and properties[0] == 0x1C:
        from_server = True
    start = 0 if carrier in (CONNECT, WILL) else V5
    decoder = Decoder(1000, start, server=not from_server)
    return bytes.fromhex(first) + bytes((len(body),)) + body, decoder


@pytest.mark.parametrize("carrier", sorted(EVERY_CARRIER))
@pytest.mark.parametrize("vector", PROPERTIES, ids=lambda vector: vector.data.hex())
def test_a_property_in_a_whole_packet(vector: PropertyVector, carrier: int) -> None:
    """Read and written back where it may be; malformed where it may not (v5 §2.2.2.2)."""
    data, decoder = _packet(carrier, vector.data)
    decoder.feed(data)
    if carrier not in vector.carriers:
        with pytest.raises(RemoteProtocolError) as caught:
            decoder.next_packet()
        assert caught.value.reason == 0x81
        return
    packet = decoder.next_packet()
    assert packet is not None
    assert vector.data in encode(packet, V5)
    assert _has(packet, carrier, vector.properties)


def _has(packet: Packet, carrier: int, wanted: Properties) -> bool:
    properties = getattr(packet, "properties", None)
    if carrier == WILL:
        assert isinstance(packet, Connect)
        assert packet.will is not None
        properties = packet.will.properties
    assert properties is not None
    values = [(getattr(wanted, rule.name), getattr(properties, rule.name)) for rule in RULES]
    return all(value in (None, present) for value, present in values)
