"""Packets that leave together: their order and number, however large they are."""

from penstock.engine.wire.packet_buffer import PacketBuffer
from penstock.protocol.encode import encode_ack, encode_publish
from penstock.protocol.kinds import PUBACK, PUBREL, V5

LARGE = b"x" * 10_000


def test_small_and_large_ones_keep_their_order() -> None:
    frames = PacketBuffer()
    expected = b""
    for payload in (b"a", LARGE, b"b", LARGE, LARGE, b"c"):
        size_bytes = frames.add_publish(b"t", payload, 1, False, False, 7, V5, b"", 0)
        frame = encode_publish(b"t", payload, 1, False, False, 7, V5, b"")
        assert size_bytes == len(frame)
        frames.add_ack(PUBREL, 0x0102)
        frames.add_ack(PUBACK, 0xFFFE)
        frames.add(LARGE)
        acks = encode_ack(PUBREL, 0x0102, 0, V5) + encode_ack(PUBACK, 0xFFFE, 0, V5)
        expected += frame + acks + LARGE
    assert (frames.count, frames.size_bytes()) == (24, len(expected))
    others = PacketBuffer()
    others.add(b"first")
    others.add_all(frames)
    assert (frames.count, b"".join(frames.take_pieces())) == (0, b"")
    assert others.count == 25
    assert b"".join(others.take_pieces()) == b"first" + expected
    assert (others.count, b"".join(others.take_pieces())) == (0, b"")


def test_one_that_is_too_large_leaves_no_trace() -> None:
    frames = PacketBuffer()
    frames.add(b"before")
    for payload in (b"x" * 100, LARGE):
        size_bytes = frames.add_publish(b"t", payload, 0, False, False, 0, V5, b"", 100)
        assert size_bytes == 0
    assert (frames.count, b"".join(frames.take_pieces())) == (1, b"before")


def test_a_very_large_payload_is_a_piece_of_its_own_and_no_copy() -> None:
    payload = bytes(1_000_000)
    frames, others = PacketBuffer(), PacketBuffer()
    for _ in range(2):
        frames.add(b"before", 1)
        frames.add_publish(b"t", payload, 0, False, False, 0, V5, b"", 0)
        frames.add(b"x" * 5000, 1)
    others.add(b"first", 1)
    others.add_all(frames)
    assert (frames.count, others.count) == (0, 7)
    pieces = others.take_pieces()
    assert [piece for piece in pieces if len(piece) == 1_000_000] == [payload] * 2
    assert sum(piece is payload for piece in pieces) == 2
    assert len(pieces) == 5
    assert pieces[0].startswith(b"firstbefore\x30")
    assert pieces[2] == b"x" * 5000 + pieces[0].removeprefix(b"first")
    assert b"".join(others.take_pieces()) == b""
