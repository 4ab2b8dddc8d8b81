"""The columns of a commit's messages, against what Arrow's layout says of them."""

import struct
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.log_columns import Columns, FlagColumn, TextColumn, columns_of
from penstock.engine.values.message import Message

LARGE = b"x" * 65_536
ORDER = "<" if sys.byteorder == "little" else ">"


def joined(column: TextColumn) -> bytes:
    data = column.data()
    return data if isinstance(data, bytes) else b"".join(data)


@given(st.lists(st.sampled_from([b"", b"a", b"four", LARGE[:-1], LARGE]), max_size=12))
def test_positions_say_where_each_value_is(values: list[bytes]) -> None:
    column = TextColumn()
    for value in values:
        column.add(value)
    positions = struct.unpack(f"{ORDER}{len(values) + 1}i", column.positions())
    data = joined(column)
    assert [data[a:b] for a, b in pairwise(positions)] == values
    assert (positions[0], positions[-1]) == (0, len(data))


def test_a_large_value_is_a_piece_and_no_copy() -> None:
    column = TextColumn()
    for value in (b"a", LARGE, b"b"):
        column.add(value)
    pieces = column.data()
    assert isinstance(pieces, list)
    assert pieces == [b"a", LARGE, b"b"]
    assert pieces[1] is LARGE


@given(st.lists(st.booleans(), max_size=40))
def test_flags_are_bits_the_lowest_first(flags: list[bool]) -> None:
    column = FlagColumn()
    for flag in flags:
        column.add(flag)
    data = column.data()
    assert len(data) == (len(flags) + 7) // 8
    assert int.from_bytes(data, "little") == sum(flag << place for place, flag in enumerate(flags))
    assert column.true_count == sum(flags)


def test_each_message_is_in_all_columns() -> None:
    messages = [
        Message("t/1", b"one", 2, True, "ü", 10**15, b"\x01\x01"),
        Message("t/2", b"", 0, False, "c", 10**15 + 1),
    ]
    columns = columns_of(messages)
    assert (joined(columns.topics), joined(columns.payloads)) == (b"t/1t/2", b"one")
    assert (joined(columns.client_ids), joined(columns.properties)) == ("üc".encode(), b"\x01\x01")
    assert (columns.has_properties.data(), columns.retained.data()) == (b"\x01", b"\x01")
    assert columns.qos() == b"\x02\x00"
    assert struct.unpack(f"{ORDER}2q", columns.received_at()) == (10**15, 10**15 + 1)
    assert columns.newest_us() == 10**15 + 1
    assert columns.size_bytes == 6 + 3 + 3 + 2


def test_a_message_that_would_be_too_much_is_in_no_column() -> None:
    columns = Columns(10)
    columns.add(Message("t", b"1234", client_id="c"))
    with pytest.raises(OverflowError, match="2 GiB"):
        columns.add(Message("t", b"1234"))
    assert (columns.count, columns.size_bytes, columns.qos()) == (1, 6, b"\x00")
    assert joined(columns.topics) == b"t"
    columns.add(Message("t", b"123"))  # up to the last byte
    assert (columns.count, columns.size_bytes) == (2, 10)
