"""Messages ↔ chunks: the rows of the log as the engine knows them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.engine.message import Message
from penstock.store.chunk import decode_chunk, encode_chunk


def chunk_of(messages: Sequence[Message]) -> bytes:
    """The chunk that holds ``messages`` (at least one), in their order."""
    return encode_chunk(
        [message.received_at_us for message in messages],
        [message.topic for message in messages],
        [message.payload for message in messages],
        [message.qos for message in messages],
        [message.retain for message in messages],
        [message.client_id for message in messages],
        [message.properties or None for message in messages],
        [message.internal for message in messages],
    )


def messages_of(batch: pa.RecordBatch, base_offset: int, rows: Sequence[int]) -> list[Message]:
    """The messages in ``rows`` of the chunk that starts at ``base_offset``."""
    table = batch.take(pa.array(rows, type=pa.int64())).to_pylist()
    return [
        Message(
            values["topic"],
            values["payload"],
            values["qos"],
            values["retain"],
            values["client_id"],
            values["received_at"],
            values["properties"] or b"",
            base_offset + row,
            values["internal"],
        )
        for row, values in zip(rows, table, strict=True)
    ]


def rehearse() -> None:
    """Write and read a chunk that nobody keeps.

    Arrow's first conversion loads modules for a quarter of a second; better before the
    first message than while it waits for its acknowledgement.
    """
    messages_of(decode_chunk(chunk_of([Message("rehearsal", b"")])), 0, [0])
