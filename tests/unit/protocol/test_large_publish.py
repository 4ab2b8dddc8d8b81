"""A large PUBLISH that arrives in pieces is the same packet, and is copied once."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.large_publish import FRONT_BYTES_MAX, LARGE_BYTES
from penstock.protocol.packets import Packet, Pingreq, Publish
from penstock.protocol.properties import Properties
from tests.support.budget import budget

MAXIMUM = 16 * LARGE_BYTES
VERSIONS = [V31, V311, V5]


def in_pieces(wire: bytes, version: int, steps: list[int]) -> list[Packet]:
    """What a decoder makes of bytes that arrive in reads of these lengths, again and again."""
    decoder = Decoder(MAXIMUM, version)
    found: list[Packet] = []
    at = number = 0
    while at < len(wire):
        step = steps[number % len(steps)]
        decoder.feed(wire[at : at + step])
        at += step
        number += 1
        while (packet := decoder.next_packet()) is not None:
            found.append(packet)
    return found


@settings(max_examples=budget(150), deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    qos=st.integers(0, 2),
    topic_length=st.sampled_from([1, 200, 32_767]),
    payload_length=st.sampled_from([LARGE_BYTES, LARGE_BYTES + 12_345, 3 * LARGE_BYTES]),
    properties_length=st.sampled_from([0, 1, 60_000, 2 * LARGE_BYTES]),
    small=st.integers(0, 3),
    steps=st.lists(
        st.sampled_from([1, 3, 9, 4096, 65_536, FRONT_BYTES_MAX, LARGE_BYTES, 4 * LARGE_BYTES]),
        min_size=1,
        max_size=5,
    ).filter(lambda steps: sum(steps) > 4000),
)
def test_a_large_publish_is_what_was_sent(
    version: int,
    qos: int,
    topic_length: int,
    payload_length: int,
    properties_length: int,
    small: int,
    steps: list[int],
) -> None:
    properties = None
    if version == V5 and properties_length:
        pairs = [("n" * 30_000, "v" * 30_000)] * (properties_length // 60_000)
        properties = Properties(user_properties=pairs, topic_alias=3)
    payload = bytes(range(256)) * (payload_length // 256)
    large = Publish("t" * topic_length, payload, qos, packet_id=7 if qos else 0)
    large.properties = properties
    sent: list[Packet] = [*[Pingreq()] * small, large, Publish("s", b"x"), large, Pingreq()]
    wire = b"".join(encode(packet, version) for packet in sent)
    assert in_pieces(wire, version, steps) == sent


@pytest.mark.parametrize("step", [1000, 65_536, MAXIMUM])
@pytest.mark.parametrize(
    "front",
    [
        b"\xff\xff",  # a topic up to the end of the front
        b"\0\1t\xff\xff\xff\xff\x01",  # a length of properties that is none
        b"\0\1t\x80\x00",  # one that is longer than needed
        b"\0\1t\xff\xff\xff\x7f",  # one that is beyond the packet
        b"\0\1#\0",  # a wildcard
        b"\0\1\xff\0",  # no UTF-8
        b"\0\0\0",  # no topic
        b"\0\1t\2\x24\1",  # a property that it cannot have
    ],
)
def test_a_mistake_is_the_same_mistake(front: bytes, step: int) -> None:
    body = front + bytes(LARGE_BYTES + 100_000)
    length = len(body)
    wire = bytes([0x30, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]) + body
    whole = Decoder(MAXIMUM, V5)
    whole.feed(wire)
    expected = caught = None
    try:
        whole.next_packet()
    except RemoteProtocolError as error:
        expected = (error.reason, error.message)
    try:
        in_pieces(wire, V5, [step])
    except RemoteProtocolError as error:
        caught = (error.reason, error.message)
    assert caught == expected


def test_a_large_publish_takes_its_length_once() -> None:
    size = 8 * LARGE_BYTES
    wire = encode(Publish("t", bytes(size)), V5)
    tracemalloc.start()
    try:
        decoder = Decoder(MAXIMUM, V5)
        for at in range(0, len(wire), 65_536):
            decoder.feed(wire[at : at + 65_536])
            packet = decoder.next_packet()
        assert isinstance(packet, Publish)
        assert len(packet.payload) == size
        assert tracemalloc.get_traced_memory()[1] < 1.25 * size
    finally:
        tracemalloc.stop()
