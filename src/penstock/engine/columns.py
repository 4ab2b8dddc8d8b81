"""The messages of one commit, column by column, as Arrow lays columns out in memory.

One pass over the messages fills all buffers; the store wraps them into an Arrow record batch
(``store.chunk``) without looking at a message again. Per column, of ``n`` messages:

========== =====================================================================
numbers    ``n`` values one after the other: 8 bytes (time), 1 byte (QoS)
flags      one bit a message, the lowest bit of a byte first
text       ``n`` + 1 positions of 4 bytes, and the bytes between them, joined;
           properties have a bit more, clear where a message has none
========== =====================================================================

Numbers have the byte order of the machine, as in every Arrow buffer; see
https://arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import sys
from typing import Final, final

from librt.strings import (
    BytesWriter,
    write_i32_be,
    write_i32_le,
    write_i64_be,
    write_i64_le,
)
from mypy_extensions import i32, i64, u8

from penstock.engine.message import Message

_IS_LITTLE: Final = sys.byteorder == "little"
_POSITION_MAX: Final = 2**31 - 1


@final
class Text:
    """A column of texts or bytes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._positions = BytesWriter()
        self._end: i64 = 0
        _write_i32(self._positions, 0)

    def add(self, part: bytes) -> None:
        """The value of the next message.

        Raises:
            OverflowError: the column would have more than 2 GiB.
        """
        end = self._end + len(part)
        if end > _POSITION_MAX:
            raise OverflowError("the messages of one commit have more than 2 GiB")
        self._end = end
        self.parts.append(part)
        _write_i32(self._positions, i32(end))

    def positions(self) -> bytes:
        """Where each value begins, and where the last one ends."""
        return self._positions.getvalue()

    def data(self) -> bytes:
        """All values."""
        return b"".join(self.parts)


@final
class Flags:
    """A column of truth values."""

    def __init__(self) -> None:
        self._bits = BytesWriter()
        self._open: i64 = 0  # of the byte that is not full
        self._length: i64 = 0
        self.true = 0  # how many are

    def add(self, flag: bool) -> None:
        """The value of the next message."""
        place = self._length & 7
        if flag:
            self.true += 1
            self._open |= 1 << place
        self._length += 1
        if place == 7:
            self._bits.append(u8(self._open))
            self._open = 0

    def data(self) -> bytes:
        """All bits; those behind the last value are clear."""
        if self._length & 7:
            return self._bits.getvalue() + bytes((self._open,))
        return self._bits.getvalue()


@final
class Columns:
    """The columns of ``messages``: what the log holds of each."""

    def __init__(self, messages: list[Message]) -> None:
        received_at = BytesWriter()
        qos = BytesWriter()
        self.topics = Text()
        self.payloads = Text()
        self.client_ids = Text()
        self.properties = Text()
        self.has_properties = Flags()
        self.retained = Flags()
        self.internal = Flags()
        client_id = ""
        encoded = b""
        for message in messages:
            _write_i64(received_at, message.received_at_us)
            self.topics.add(message.topic_bytes)
            self.payloads.add(message.payload)
            qos.append(message.qos)
            self.retained.add(message.retain)
            if message.client_id is not client_id:  # runs of one client's messages are common
                client_id = message.client_id
                encoded = client_id.encode()
            self.client_ids.add(encoded)
            self.properties.add(message.properties)
            self.has_properties.add(len(message.properties) > 0)
            self.internal.add(message.internal)
        self.received_at = received_at.getvalue()
        self.qos = qos.getvalue()


def _write_i32(writer: BytesWriter, value: i32) -> None:
    if _IS_LITTLE:
        write_i32_le(writer, value)
    else:
        write_i32_be(writer, value)


def _write_i64(writer: BytesWriter, value: i64) -> None:
    if _IS_LITTLE:
        write_i64_le(writer, value)
    else:
        write_i64_be(writer, value)
