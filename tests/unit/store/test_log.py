"""Messages ↔ chunks, as the engine knows them."""

from penstock.engine.message import Message
from penstock.store.chunk import decode_chunk
from penstock.store.log import chunk_of, messages_of


def test_rows_are_picked_from_a_chunk() -> None:
    messages = [
        Message(f"t/{n}", bytes([n]), n % 3, n == 2, "ü", 10**15 + n, b"\x01\x01" * (n % 2), 40 + n)
        for n in range(5)
    ]
    batch = decode_chunk(chunk_of(messages))
    picked = messages_of(batch, 40, [4, 1])
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
