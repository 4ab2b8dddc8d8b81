"""The stored form of a commit's messages."""

from __future__ import annotations

import pytest

from penstock.errors import StoreFormatError
from penstock.store.chunk import (
    decode_chunk,
    decode_key,
    encode_key,
)


@pytest.mark.parametrize("value", [b"", b"\x00", b"garbage" * 20, encode_key(7)])
def test_a_value_that_is_no_chunk_is_said_to_be_none(value: bytes) -> None:
    with pytest.raises(StoreFormatError, match="a chunk of the log cannot be read"):
        decode_chunk(value)


def test_keys_sort_as_their_offsets_do() -> None:
    offsets = [0, 1, 255, 256, 2**32, 2**63]
    assert sorted(map(encode_key, reversed(offsets))) == [encode_key(n) for n in offsets]
    assert [decode_key(encode_key(n)) for n in offsets] == offsets
    with pytest.raises(StoreFormatError, match="a key of the log has 3 bytes where 8 belong"):
        decode_key(b"abc")
