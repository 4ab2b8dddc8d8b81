"""Packets that leave together: their order and number, however large they are."""

from penstock.engine.frames import Frames
from penstock.protocol.encode import encode_ack, encode_publish
from penstock.protocol.kinds import PUBACK, PUBREL, V5

LARGE = b"x" * 10_000


def test_small_and_large_ones_keep_their_order() -> None:
    frames = Frames()
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
    others = Frames()
    others.add(b"first")
    others.add_all(frames)
    assert (frames.count, frames.take()) == (0, b"")
    assert others.count == 25
    assert others.take() == b"first" + expected
    assert (others.count, others.take()) == (0, b"")


def test_one_that_is_too_large_leaves_no_trace() -> None:
    frames = Frames()
    frames.add(b"before")
    for payload in (b"x" * 100, LARGE):
        size_bytes = frames.add_publish(b"t", payload, 0, False, False, 0, V5, b"", 100)
        assert size_bytes == 0
    assert (frames.count, frames.take()) == (1, b"before")
