"""The stored form of a commit's messages."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreFormatError
from penstock.store.chunk import (
    LOG_SCHEMA,
    decode_chunk,
    decode_key,
    encode_chunk,
    encode_key,
)

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.binary(),
        st.integers(0, 2),
        st.booleans(),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | st.binary(),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


@given(ROWS)
def test_what_was_stored_comes_back(rows: list[tuple[object, ...]]) -> None:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, LOG_SCHEMA, strict=True)
    ]
    batch = decode_chunk(encode_chunk(arrays))
    assert batch.schema == LOG_SCHEMA
    assert [tuple(row.values()) for row in batch.to_pylist()] == rows


@pytest.mark.parametrize("value", [b"", b"\x00", b"garbage" * 20, encode_key(7)])
def test_what_is_no_chunk_is_said_to_be_none(value: bytes) -> None:
    with pytest.raises(StoreFormatError, match="a chunk of the log cannot be read"):
        decode_chunk(value)


def test_keys_sort_as_their_offsets_do() -> None:
    offsets = [0, 1, 255, 256, 2**32, 2**63]
    assert sorted(map(encode_key, reversed(offsets))) == [encode_key(n) for n in offsets]
    assert [decode_key(encode_key(n)) for n in offsets] == offsets
    with pytest.raises(StoreFormatError, match="a key of the log has 3 bytes where 8 belong"):
        decode_key(b"abc")
