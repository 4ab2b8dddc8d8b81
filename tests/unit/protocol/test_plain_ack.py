"""Acknowledgements read without objects are those that are read with them, and no others."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import Decoder
from penstock.protocol.packets import Ack, Pubrel

FIRSTS = (0x40, 0x50, 0x62, 0x70, 0x60, 0x6A, 0x42, 0x30, 0x32, 0xC0, 0xE0, 0x00)
PLAIN = st.builds(
    lambda first, high, low: bytes([first, 2, high, low]),
    st.sampled_from(FIRSTS),
    st.sampled_from((0, 0, 1, 255)),
    st.sampled_from((0, 1, 255)),
)
OTHERS = st.builds(
    lambda first, length, rest: bytes([first, length]) + rest,
    st.sampled_from(FIRSTS),
    st.sampled_from((0, 1, 2, 3, 4, 130)),
    st.binary(max_size=5),
)


def read(pieces: list[bytes], version: int, server: bool, plain: bool) -> list[object]:
    """What comes out, an acknowledgement as its numbers; an error is the last of it."""
    decoder = Decoder(1000, version, server)
    found: list[object] = []
    try:
        for piece in pieces:
            decoder.feed(piece)
            while True:
                ack = decoder.next_plain_ack() if plain else 0
                if ack != 0:
                    found.append((ack >> 16, ack & 0xFFFF, 0, None))
                    continue
                packet = decoder.next_packet()
                if packet is None:
                    break
                if isinstance(packet, Ack) and not (isinstance(packet, Pubrel) and packet.dup):
                    numbers = (packet.type, packet.packet_id, packet.reason_code, packet.properties)
                    found.append(numbers)
                else:
                    found.append(packet)
    except RemoteProtocolError as error:
        found.append((error.reason, error.message))
    return found


@given(
    st.lists(PLAIN | OTHERS, min_size=1, max_size=6).map(b"".join),
    st.lists(st.integers(0, 40), max_size=3).map(sorted),
    st.sampled_from((3, 4, 5)),
    st.booleans(),
)
def test_acknowledgements_are_the_same_wherever_they_are_cut(
    data: bytes, cuts: list[int], version: int, server: bool
) -> None:
    bounds = [0, *cuts, len(data)]
    pieces = [data[start:end] for start, end in pairwise(bounds)]
    assert read(pieces, version, server, True) == read(pieces, version, server, False)


def test_one_that_says_more_is_left_to_the_others() -> None:
    decoder = Decoder(1000, 5)
    decoder.feed(bytes([0x40, 2, 1, 2, 0x40, 3, 1, 3, 0x10]))
    assert decoder.next_plain_ack() == 4 << 16 | 0x0102
    assert decoder.next_plain_ack() == 0
    packet = decoder.next_packet()
    assert isinstance(packet, Ack)
    assert (packet.packet_id, packet.reason_code) == (0x0103, 0x10)
