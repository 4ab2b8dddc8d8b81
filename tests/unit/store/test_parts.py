"""Large values are cut into parts, and heads tell them from others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.log_columns import columns_of
from penstock.engine.values.message import Message
from penstock.errors import StoreFormatError
from penstock.store import records
from penstock.store.archive import ARCHIVE_SCHEMA, encode_piece, make_pieces
from penstock.store.chunk import chunk_note, decode_chunk, encode_key, summarize_chunk
from penstock.store.log import chunk_from_columns
from penstock.store.parts import (
    PART_BYTES,
    LargeValue,
    new_write_id,
    part_range,
    part_range_of,
    read_head,
)

sizes = st.one_of(
    st.integers(0, 9), st.integers(PART_BYTES - 2, PART_BYTES + 2), st.just(3 * PART_BYTES)
)


@given(st.lists(sizes, min_size=1, max_size=4).filter(any))
def test_parts_are_the_pieces_cut_anew(lengths: list[int]) -> None:
    pieces = [bytes([65 + n]) * length for n, length in enumerate(lengths)]
    run = new_write_id()
    large = LargeValue("log", encode_key(7), pieces, run, b"note")
    parts = list(large.parts())
    assert b"".join(part for _, part in parts) == b"".join(pieces)
    assert {len(part) for _, part in parts[:-1]} <= {PART_BYTES}
    assert 0 < len(parts[-1][1]) <= PART_BYTES
    head = read_head(large.head)
    assert head == (run, len(parts), sum(lengths), b"note")
    keys = [key for key, _ in parts]
    begin, end = part_range("log", encode_key(7), run)
    assert keys == sorted(keys)
    assert begin < keys[0] <= keys[-1] < end
    assert part_range_of(keys[-1]) == (begin, end)
    assert b"l" + encode_key(7) < keys[0] < b"l" + encode_key(8)


def test_no_value_that_may_be_large_looks_like_a_head() -> None:
    chunk = b"".join(chunk_from_columns(columns_of([Message("t", b"x")])))
    nothing = pa.Table.from_batches([], schema=ARCHIVE_SCHEMA)
    piece = make_pieces(2**56 - 1, 2**56, nothing)[0]
    for value in (
        chunk,
        b"".join(encode_piece(piece)),
        records.encode_message(Message("t", b"x")),
        b"",
    ):
        assert read_head(value) is None


@pytest.mark.parametrize("value", [b"\xc1", b"\xc1\x02" + bytes(30), b"\xc1\x01" + bytes(9)])
def test_a_value_that_begins_as_a_head_and_is_none_is_refused(value: bytes) -> None:
    with pytest.raises(StoreFormatError, match="head of a large value"):
        read_head(value)


def test_facts_of_a_chunk_are_the_same_from_its_head() -> None:
    messages = [Message("t", bytes(n), received_at_us=100 + n) for n in (70_000, 3, 65_536, 0)]
    columns = columns_of(messages)
    pieces = chunk_from_columns(columns)
    chunk = b"".join(pieces)
    note = chunk_note(columns.count, columns.newest_us())
    for value in (chunk, LargeValue("log", b"", pieces, new_write_id(), note).head):
        facts = summarize_chunk(value)
        assert (facts.rows, facts.newest_us, facts.size_bytes) == (4, 100, len(chunk))
        assert (facts.batch is None) == (value is not chunk)
    payloads = [message.payload for message in messages]
    assert decode_chunk(chunk).column("payload").to_pylist() == payloads
    assert any(piece is payloads[0] for piece in pieces)  # and not a copy of it


@pytest.mark.parametrize("topic", ["", "t", "t" * 31, "t" * 32, "ü" * 300, "t" * 65_535])
@pytest.mark.parametrize("properties", [b"", b"\x01\x01", bytes(70_000)])
def test_pieces_of_a_retained_message_are_its_record(topic: str, properties: bytes) -> None:
    message = Message(topic, b"\xc4\x00" * 40_000, 1, True, "c", 10**15, b"", lead_us=-5)
    message.properties = properties
    pieces = records.message_fragments(message)
    assert b"".join(pieces) == records.encode_message(message)
    assert any(piece is message.payload for piece in pieces)
