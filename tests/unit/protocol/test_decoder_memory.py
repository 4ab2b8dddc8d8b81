"""How much a decoder holds: what a peer announces costs nothing, what it sends one packet."""

import tracemalloc
from collections.abc import Callable

import pytest

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import Decoder
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Publish

KIB = 1024
MIB = 1024 * KIB
OWN_BYTES = 16 * KIB  # of the decoder itself, its tables and its errors


def most_allocated(run: Callable[[], object]) -> int:
    """The highest number of bytes allocated at once by ``run``."""
    run()  # what is made once for all is made here
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("maximum", [MIB, 268_435_460])
def test_an_announced_packet_costs_nothing(maximum: int) -> None:
    """A fixed header that announces 256 MiB, allowed or not."""

    def run() -> None:
        decoder = Decoder(maximum, V5)
        decoder.feed(b"\x30\xff\xff\xff\x7f")
        if maximum > MIB:
            assert decoder.next_packet() is None
            return
        with pytest.raises(RemoteProtocolError) as caught:
            decoder.next_packet()
        assert caught.value.reason == 0x95

    assert most_allocated(run) < OWN_BYTES


@pytest.mark.parametrize("step", [100, 4 * KIB, 64 * KIB])
def test_a_packet_under_way_costs_itself(step: int) -> None:
    """All of a packet of the maximum size but its last byte, in pieces."""
    piece = bytes(step)

    def run() -> None:
        decoder = Decoder(MIB, V5)
        decoder.feed(b"\x30\xfc\xff\x3f")  # 1,048,572 bytes follow: 1 MiB in all
        left = MIB - 5
        while left > 0:
            decoder.feed(piece[: min(step, left)])
            left -= step
            assert decoder.next_packet() is None

    assert most_allocated(run) < 1.2 * MIB + step + OWN_BYTES


def test_a_property_length_beyond_the_packet_costs_nothing() -> None:
    """Lengths inside of a packet are believed only as far as the packet reaches."""

    def run() -> None:
        for wire in (
            b"\x30\x08\x00\x01a\xff\xff\xff\x7f\x00",  # properties
            b"\x30\x03\xff\xffa",  # topic
            b"\x82\x09\x00\x01\x00\xff\xffaaaa",  # filter
            b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x00\x00\xff\xffaa",  # client identifier
        ):
            decoder = Decoder(MIB, 0 if wire[0] == 0x10 else V5)
            decoder.feed(wire)
            with pytest.raises(RemoteProtocolError):
                decoder.next_packet()

    assert most_allocated(run) < OWN_BYTES


def test_a_dead_decoder_holds_nothing() -> None:
    def run() -> Decoder:
        decoder = Decoder(MIB, V5)
        decoder.feed(b"\x00" + bytes(MIB - 1))
        with pytest.raises(RemoteProtocolError):
            decoder.next_packet()
        return decoder

    decoder = run()
    assert len(decoder._buffer) == 0
    assert len(decoder._parts) == 0


@pytest.mark.parametrize("step", [64 * KIB, 2 * MIB])
def test_of_a_large_packet_nothing_stays(step: int) -> None:
    """A connection may be silent for long after it."""
    decoder = Decoder(MIB, V5)
    packet = b"\x30\xfc\xff\x3f\0\1t\0" + bytes(MIB - 8)
    tracemalloc.start()
    try:
        for place in range(0, MIB, step):
            decoder.feed(bytes(packet[place : place + step]))
            payload = decoder.next_packet()
        assert isinstance(payload, Publish)
        del payload
        assert tracemalloc.get_traced_memory()[0] < OWN_BYTES
    finally:
        tracemalloc.stop()
