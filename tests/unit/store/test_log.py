"""Messages ↔ chunks, as the engine knows them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.log_columns import Columns, columns_of
from penstock.engine.values.message import Message
from penstock.engine.values.steady_clock import Leads
from penstock.store.chunk import LOG_SCHEMA, decode_chunk
from penstock.store.log import chunk_from_columns, messages_from_chunk


def test_rows_are_picked_from_a_chunk() -> None:
    messages = [
        Message(f"t/{n}", bytes([n]), n % 3, n == 2, "ü", 10**15 + n, b"\x01\x01" * (n % 2), 40 + n)
        for n in range(5)
    ]
    batch = decode_chunk(b"".join(chunk_from_columns(columns_of(messages))))
    picked = messages_from_chunk(batch, 40, [4, 1], Leads([]))
    assert [message.offset for message in picked] == [44, 41]
    for message in picked:
        expected = messages[message.offset - 40]
        assert (message.topic, message.payload, message.qos) == (
            expected.topic,
            expected.payload,
            expected.qos,
        )
        assert (message.retain, message.client_id) == (expected.retain, expected.client_id)
        assert message.received_at_us == expected.received_at_us
        assert message.properties == expected.properties


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MESSAGES = st.builds(
    Message,
    topic=TEXT,
    payload=st.binary(max_size=40),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    client_id=TEXT,
    received_at_us=st.integers(0, 2**62),
    properties=st.binary(max_size=0) | st.just(b"\x01\x01"),
    internal=st.booleans(),
)


@given(st.lists(MESSAGES, min_size=1, max_size=40))
def test_a_chunk_is_what_arrow_makes_of_the_same_values(messages: list[Message]) -> None:
    rows = [
        {
            "received_at": message.received_at_us,
            "topic": message.topic,
            "payload": message.payload,
            "qos": message.qos,
            "retain": message.retain,
            "client_id": message.client_id,
            "properties": message.properties or None,
            "internal": message.internal,
        }
        for message in messages
    ]
    chunk = b"".join(chunk_from_columns(columns_of(messages)))
    expected = pa.RecordBatch.from_pylist(rows, schema=LOG_SCHEMA)
    assert chunk == expected.serialize().to_pybytes()
    batch = decode_chunk(chunk)
    batch.validate(full=True)
    assert batch.equals(expected)


def test_columns_have_a_limit_and_stay_whole_at_it() -> None:
    columns = Columns(10)
    columns.add(Message("t", b"1234", client_id="c"))
    for large in (
        Message("t", b"1234"),
        Message("ttttt", b""),
        Message("t", b"", 0, False, "cccc"),
    ):
        with pytest.raises(OverflowError, match="more than 2 GiB"):
            columns.add(large)
    columns.add(Message("t", b"12", client_id="c"))
    batch = decode_chunk(b"".join(chunk_from_columns(columns)))
    assert batch.column("payload").to_pylist() == [b"1234", b"12"]
    assert batch.column("client_id").to_pylist() == ["c", "c"]
