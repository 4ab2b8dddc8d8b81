"""Every vector whole, byte by byte, with data behind it, and written back."""

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Packet, Pingreq, Pingresp
from tests import vectors
from tests.vectors import CLIENT, Mistake, Valid


def in_each_version(given: Sequence[Valid | Mistake]) -> list[ParameterSet]:
    return [
        pytest.param(vector, version, id=f"v{version} {vector.name}")
        for vector in given
        for version in vector.versions
    ]


VALID = in_each_version(vectors.VALID)
MISTAKES = in_each_version(vectors.MISTAKES)
LATER_MISTAKES = in_each_version([one for one in vectors.MISTAKES if not one.first_packet])
MAX_PACKET_SIZE_BYTES = 100_000


def decoder_for(vector: Valid | Mistake, version: int) -> Decoder:
    start = 0 if vector.first_packet else version
    return Decoder(MAX_PACKET_SIZE_BYTES, start, vector.sender == CLIENT)


def read_all(decoder: Decoder) -> list[Packet]:
    packets: list[Packet] = []
    while (packet := decoder.next_packet()) is not None:
        packets.append(packet)
    return packets


@pytest.mark.parametrize(("vector", "version"), VALID)
def test_whole(vector: Valid, version: int) -> None:
    decoder = decoder_for(vector, version)
    decoder.feed(vector.data)
    assert read_all(decoder) == [vector.packet]
    assert decoder.version == version


@pytest.mark.parametrize(("vector", "version"), VALID)
def test_byte_by_byte(vector: Valid, version: int) -> None:
    decoder = decoder_for(vector, version)
    for position in range(len(vector.data) - 1):
        decoder.feed(vector.data[position : position + 1])
        assert decoder.next_packet() is None
    decoder.feed(vector.data[-1:])
    assert read_all(decoder) == [vector.packet]


@pytest.mark.parametrize(("vector", "version"), VALID)
def test_with_trailing_data(vector: Valid, version: int) -> None:
    decoder = decoder_for(vector, version)
    ping: Packet = Pingreq() if vector.sender == CLIENT else Pingresp()
    ping_bytes = encode(ping, version)
    decoder.feed(vector.data + ping_bytes + ping_bytes[:1])
    assert read_all(decoder) == [vector.packet, ping]
    decoder.feed(ping_bytes[1:] + ping_bytes)
    assert read_all(decoder) == [ping, ping]


@pytest.mark.parametrize(("vector", "version"), VALID)
def test_written_back(vector: Valid, version: int) -> None:
    written = encode(vector.packet, version)
    if vector.canonical:
        assert written == vector.data
    else:
        assert written != vector.data
    decoder = decoder_for(vector, version)
    decoder.feed(written)
    assert read_all(decoder) == [vector.packet]


@pytest.mark.parametrize(("vector", "version"), MISTAKES)
def test_mistake_whole(vector: Mistake, version: int) -> None:
    decoder = decoder_for(vector, version)
    decoder.feed(vector.data)
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason == vector.reason


@pytest.mark.parametrize(("vector", "version"), MISTAKES)
def test_mistake_byte_by_byte(vector: Mistake, version: int) -> None:
    """The mistake is seen as soon as it can be, and the decoder stays dead."""
    decoder = decoder_for(vector, version)
    needed = len(vector.data) if vector.at is None else vector.at
    for position in range(needed - 1):
        decoder.feed(vector.data[position : position + 1])
        assert decoder.next_packet() is None
    decoder.feed(vector.data[needed - 1 : needed])
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason == vector.reason
    with pytest.raises(RemoteProtocolError):
        decoder.next_packet()
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"\xc0\x00")


@pytest.mark.parametrize(("vector", "version"), LATER_MISTAKES)
def test_mistake_behind_a_packet(vector: Mistake, version: int) -> None:
    """What came whole before the mistake is still delivered."""
    decoder = decoder_for(vector, version)
    ping: Packet = Pingreq() if vector.sender == CLIENT else Pingresp()
    decoder.feed(encode(ping, version) + vector.data)
    assert decoder.next_packet() == ping
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason == vector.reason
