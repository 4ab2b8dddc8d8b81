"""Any packet survives being written and read, in every version and both directions."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Packet
from penstock.protocol.properties import Properties, encode_properties, parse_properties
from penstock.protocol.property_rules import WILL
from tests.unit.protocol import strategies

MAX_PACKET_SIZE_BYTES = 1_000_000


def _read(data: bytes, version: int, server: bool, sizes: list[int]) -> list[Packet]:
    """Feed the data in pieces of these sizes (then the rest) and read all packets."""
    decoder = Decoder(MAX_PACKET_SIZE_BYTES, version, server)
    packets: list[Packet] = []
    position = 0
    for size in [*sizes, len(data)]:
        decoder.feed(data[position : position + size])
        position += size
        while (packet := decoder.next_packet()) is not None:
            packets.append(packet)
    return packets


@given(st.data(), strategies.VERSIONS)
def test_connect(data: st.DataObject, version: int) -> None:
    packet = data.draw(strategies.connects(version))
    sizes = data.draw(st.lists(st.integers(0, 40), max_size=10))
    assert _read(encode(packet, version), 0, True, sizes) == [packet]


@given(st.data(), strategies.VERSIONS, st.booleans())
def test_stream_of_packets(data: st.DataObject, version: int, server: bool) -> None:
    kind = strategies.from_client if server else strategies.from_server
    packets = data.draw(st.lists(kind(version), max_size=5))
    sizes = data.draw(st.lists(st.integers(0, 100), max_size=10))
    stream = b"".join([encode(packet, version) for packet in packets])
    assert _read(stream, version, server, sizes) == packets


@given(st.data(), strategies.VERSIONS, st.booleans())
def test_written_twice_is_the_same(data: st.DataObject, version: int, server: bool) -> None:
    kind = strategies.from_client if server else strategies.from_server
    packet = data.draw(kind(version))
    written = encode(packet, version)
    (read,) = _read(written, version, server, [])
    assert encode(read, version) == written


@given(strategies.properties_of(WILL))
def test_stored_properties(properties: Properties | None) -> None:
    properties = properties or Properties()
    assert parse_properties(encode_properties(properties)) == properties
