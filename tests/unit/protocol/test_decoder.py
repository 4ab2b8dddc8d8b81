"""The decoder's own promises: version, limits, memory, and staying dead."""

import pytest

from penstock.errors import LocalProtocolError, RemoteProtocolError, UnsupportedProtocolVersion
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import PUBREL, V5, V31, V311
from penstock.protocol.packets import (
    Ack,
    Connect,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from penstock.protocol.properties import Properties
from penstock.protocol.reasons import PACKET_TOO_LARGE, PROTOCOL_ERROR, is_allowed

KIB = 1024


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_connect_sets_the_version(version: int) -> None:
    decoder = Decoder(KIB)
    assert decoder.version == 0
    decoder.feed(encode(Connect("a", version), version) + encode(Pingreq(), version))
    decoder.next_packet()
    assert decoder.version == version
    assert decoder.next_packet() == Pingreq()


@pytest.mark.parametrize(
    ("head", "level"),
    [
        (b"\x00\x04MQTT\x06", 6),
        (b"\x00\x04MQTT\x03", 3),
        (b"\x00\x04MQTT\x85", 0x85),
        (b"\x00\x06MQIsdp\x04", 4),
    ],
)
def test_unsupported_level_is_told(head: bytes, level: int) -> None:
    decoder = Decoder(KIB)
    decoder.feed(bytes((0x10, len(head))) + head)
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        decoder.next_packet()
    assert (caught.value.reason, caught.value.level) == (0x84, level)
    assert decoder.version == 0


def test_another_protocol_name_is_not_an_unsupported_version() -> None:
    decoder = Decoder(KIB)
    decoder.feed(b"\x10\x07\x00\x04HTTP\x04")
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert not isinstance(caught.value, UnsupportedProtocolVersion)


def test_version_is_known_for_the_answer_to_a_malformed_connect() -> None:
    decoder = Decoder(KIB)
    decoder.feed(b"\x10\x0e\x00\x04MQTT\x05\x03\x00\x3c\x00\x00\x01a")
    with pytest.raises(RemoteProtocolError):
        decoder.next_packet()
    assert decoder.version == V5


def test_a_client_says_its_version() -> None:
    with pytest.raises(LocalProtocolError):
        Decoder(KIB, 0, False)


@pytest.mark.parametrize("size", [127 + 2, 128 + 3, 4000])
def test_a_packet_of_exactly_the_maximum_size(size: int) -> None:
    header = 2 if size <= 129 else 3
    packet = Publish("a", bytes(size - header - 3))
    data = encode(packet, V311)
    assert len(data) == size
    decoder = Decoder(size, V311)
    decoder.feed(data)
    assert decoder.next_packet() == packet
    smaller = Decoder(size - 1, V311)
    smaller.feed(data[:header])
    with pytest.raises(RemoteProtocolError) as caught:
        smaller.next_packet()
    assert caught.value.reason == 0x95


def test_the_maximum_holds_for_connect() -> None:
    decoder = Decoder(20)
    decoder.feed(b"\x10\x14")
    assert decoder.next_packet() is None, "the answer depends on its version"
    decoder.feed(b"\0\4MQTT\5\0\0")
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason == 0x95


def test_a_dead_decoder_repeats_its_error() -> None:
    decoder = Decoder(KIB, V5)
    decoder.feed(b"\x00\x00" + encode(Pingreq(), V5))
    for _ in range(3):
        with pytest.raises(RemoteProtocolError) as caught:
            decoder.next_packet()
        assert caught.value.reason == 0x81
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"")


def test_the_decoder_tells_whether_a_packet_is_whole_without_taking_it() -> None:
    decoder = Decoder(100, V5)
    told = []
    for data in (b"\xd0", b"", b"\x00\xc0", b"\x00"):  # PINGRESP is not for a server
        decoder.feed(data)
        told.append(decoder.has_packet())
    assert told == [False, False, False, False]
    decoder = Decoder(100, V5)
    told = []
    for data in (b"", b"\xc0", b"\x00\xc0"):
        decoder.feed(data)
        told.append(decoder.has_packet())
    assert told == [False, False, True]
    assert decoder.next_packet() == Pingreq()
    assert not decoder.has_packet()


def test_empty_reads_change_nothing() -> None:
    decoder = Decoder(KIB, V5)
    decoder.feed(b"")
    assert decoder.next_packet() is None
    decoder.feed(b"\xc0")
    decoder.feed(b"")
    assert decoder.next_packet() is None
    decoder.feed(b"\x00")
    assert decoder.next_packet() == Pingreq()


def test_reads_gather_when_nobody_takes_packets() -> None:
    decoder = Decoder(KIB, V5)
    for packet_id in range(1, 101):
        decoder.feed(encode(Puback(packet_id), V5))
    read = [decoder.next_packet() for _ in range(100)]
    assert read == [Puback(packet_id) for packet_id in range(1, 101)]
    assert decoder.next_packet() is None


def test_a_large_packet_in_small_reads() -> None:
    """Joining at each read would copy tens of gigabytes here."""
    size = 8 * KIB * KIB
    packet = Publish("a", bytes(size), 1, packet_id=1)
    data = encode(packet, V5) * 2
    decoder = Decoder(2 * size, V5)
    read = []
    for position in range(0, len(data), KIB):
        decoder.feed(data[position : position + KIB])
        while (one := decoder.next_packet()) is not None:
            read.append(one)
    assert read == [packet, packet]


def test_remembered_topic_does_not_leak_into_the_next_message() -> None:
    decoder = Decoder(KIB, V5)
    topics = ["a", "a", "b", "a", "x" * 300, "x" * 300, "a"]
    decoder.feed(b"".join([encode(Publish(topic, b""), V5) for topic in topics]))
    read = [decoder.next_packet() for _ in topics]
    assert read == [Publish(topic, b"") for topic in topics]


def test_properties_of_an_alias_alone_are_told_apart_by_its_number() -> None:
    aliases = [1, 1, 2, 65_535, 2]
    packets = [Publish("t", b"", properties=Properties(topic_alias=number)) for number in aliases]
    decoder = Decoder(1000, 5)
    decoder.feed(b"".join(encode(packet, 5) for packet in packets))
    assert [decoder.next_packet() for _ in packets] == packets


@pytest.mark.parametrize("kind", [Puback, Pubrec, Pubrel, Pubcomp])
def test_acknowledgements_with_and_without_a_reason(kind: type[Ack]) -> None:
    """All codes that there are, and none that there is not."""
    packet_type = kind.type
    flags = 2 if packet_type == PUBREL else 0
    for code in range(256):
        decoder = Decoder(1000, 5, server=False)
        decoder.feed(bytes((packet_type << 4 | flags, 3, 1, 2, code)))
        if is_allowed(code, packet_type):
            assert decoder.next_packet() == kind(0x0102, code)
        else:
            with pytest.raises(RemoteProtocolError) as refused:
                decoder.next_packet()
            assert refused.value.reason == PROTOCOL_ERROR


def read_in_pieces(decoder: Decoder, data: bytes, size: int) -> None:
    """Feed ``data`` in pieces of ``size``, and read what comes of it."""
    for place in range(0, len(data), size):
        decoder.feed(data[place : place + size])
        decoder.next_packet()


@pytest.mark.parametrize("size", [1, 4, 13])
def test_a_connect_that_is_too_large_is_refused_before_it_is_collected(size: int) -> None:
    """By its length and its version, whatever its pieces: 64 KiB are enough for who is unknown."""
    head = bytes([0x10, 0x80, 0x80, 0x04]) + b"\0\4MQTT\5\0\0"  # 65,536 and its fixed header
    decoder = Decoder(1_000_000, connect_size_bytes_max=65_536)
    with pytest.raises(RemoteProtocolError) as caught:
        read_in_pieces(decoder, head, size)
    assert caught.value.reason == PACKET_TOO_LARGE
    assert decoder.version == 5


def test_a_connect_may_be_as_large_as_its_bound() -> None:
    whole = encode(Connect("c", 5, True, 0), 5)
    decoder = Decoder(1_000_000, connect_size_bytes_max=len(whole))
    decoder.feed(whole)
    assert isinstance(decoder.next_packet(), Connect)
    decoder = Decoder(1_000_000, connect_size_bytes_max=len(whole) - 1)
    decoder.feed(whole)
    with pytest.raises(RemoteProtocolError):
        decoder.next_packet()


def test_the_bound_of_connect_holds_for_connect_alone() -> None:
    decoder = Decoder(1_000_000, connect_size_bytes_max=64)
    decoder.feed(encode(Connect("c", 5, True, 0), 5))
    assert isinstance(decoder.next_packet(), Connect)
    decoder.feed(encode(Publish("t", bytes(1000), 0), 5))
    assert isinstance(decoder.next_packet(), Publish)
