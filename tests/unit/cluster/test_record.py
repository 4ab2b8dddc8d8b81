"""Records as bytes: what goes in comes out, and not one bit may change."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.record import (
    COMMIT,
    HEAD_BYTES,
    KINDS,
    Claim,
    Position,
    RecordDamaged,
    checksum_of,
    decode_claim,
    decode_position,
    decode_record,
    encode_claim,
    encode_position,
    encode_record,
)
from penstock.errors import StoreFormatError

checksums = st.integers(0, 2**32 - 1)


@given(
    st.sampled_from(KINDS),
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    checksums,
    st.binary(max_size=200),
)
def test_a_record_is_read_as_it_was_written(
    kind: int, term: int, number: int, before: int, body: bytes
) -> None:
    data = encode_record(kind, term, number, before, body)
    record = decode_record(data)
    assert record == (kind, term, number, before, checksum_of(data), body)
    assert len(data) == HEAD_BYTES + len(body)


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_record(COMMIT, 3, 17, 0xDEADBEEF, b"a body of some length")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RecordDamaged):
            decode_record(bytes(flipped))


@given(st.binary(max_size=60))
def test_other_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(RecordDamaged):
        decode_record(data)


def test_a_record_that_is_cut_or_continued_is_noticed() -> None:
    data = encode_record(COMMIT, 1, 1, 0, b"body")
    for length in range(len(data)):
        with pytest.raises(RecordDamaged):
            decode_record(data[:length])
    with pytest.raises(RecordDamaged):
        decode_record(data + b"\0")


@pytest.mark.parametrize(("place", "value"), [(4, 2), (5, max(KINDS) + 1)])
def test_a_record_of_a_later_version_is_told_from_a_damaged_one(place: int, value: int) -> None:
    data = bytearray(encode_record(COMMIT, 1, 1, 0, b"body"))
    data[place] = value
    head, body = bytes(data[: HEAD_BYTES - 4]), bytes(data[HEAD_BYTES:])
    checksum = zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little")
    with pytest.raises(StoreFormatError, match="use the version that wrote it") as refused:
        decode_record(head + checksum + body)
    assert not isinstance(refused.value, RecordDamaged)


def test_equal_bodies_have_other_checksums_in_other_places() -> None:
    first = encode_record(COMMIT, 1, 1, 0, b"same")
    assert checksum_of(first) != checksum_of(encode_record(COMMIT, 1, 1, 1, b"same"))
    assert checksum_of(first) != checksum_of(encode_record(COMMIT, 1, 2, 0, b"same"))
    assert checksum_of(first) != checksum_of(encode_record(COMMIT, 2, 1, 0, b"same"))


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = Claim("a", "20270115T080000-00000000", "h:1", "h:2", "1.0", "0011")
    assert decode_claim(encode_claim(claim)) == claim
    with pytest.raises(RecordDamaged, match="claim"):
        decode_claim(b"\xc1")


@given(st.integers(0, 2**64 - 1), checksums, st.integers(0, 2**64 - 1), checksums)
def test_a_position_is_read_as_it_was_written(
    sequence: int, term: int, number: int, checksum: int
) -> None:
    position = Position(sequence, term, number, checksum)
    assert decode_position(encode_position(position)) == position


@pytest.mark.parametrize("length", [0, 23, 25])
def test_a_position_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(StoreFormatError, match="position"):
        decode_position(bytes(length))
