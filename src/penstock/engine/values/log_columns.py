"""The messages of one commit, column by column, as Arrow lays out columns in memory.

A message is added when it is appended to the log, so it need not stay in memory until its commit is
written; the store wraps the buffers into an Arrow record batch (``store.chunk``). The content of a
column of ``n`` messages:

========== =====================================================================
numbers    ``n`` values one after the other: 8 bytes (time), 1 byte (QoS)
flags      one bit a message, the lowest bit of a byte first
text       ``n`` + 1 positions of 4 bytes, and all bytes, joined; properties
           have flags in addition, false where a message has no properties
========== =====================================================================

A large value is not copied into its column: the column becomes a list of pieces, of which the value
is one.

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

from penstock.engine.values.message import Message

_IS_LITTLE: Final = sys.byteorder == "little"
_POSITION_MAX: Final = 2**31 - 1
_LARGE_BYTES: Final = 65_536  # a value of this size or more is a piece of its own


@final
class TextColumn:
    """A column of strings or bytes, as Arrow stores them: 32-bit positions and the joined bytes."""

    def __init__(self) -> None:
        self._values = BytesWriter()
        self._pieces: list[bytes] = []  # the data before ``_values``
        self._pieces_bytes: i64 = 0
        self._positions = BytesWriter()
        _write_i32(self._positions, 0)

    def add(self, value: bytes) -> None:
        """Append the value of the next message. ``Columns`` bounds the sum of all values."""
        if len(value) < _LARGE_BYTES:
            self._values.write(value)
        else:
            self._pieces.append(self._values.getvalue())
            self._pieces.append(value)
            self._pieces_bytes += len(self._values) + len(value)
            self._values = BytesWriter()
        _write_i32(self._positions, i32(self._pieces_bytes + len(self._values)))

    def positions(self) -> bytes:
        """Return the positions, 4 bytes each: the beginning of each value, and the end of the
        last."""
        return self._positions.getvalue()

    def data(self) -> bytes | list[bytes]:
        """Return all values, joined; as a list of pieces if one of them is large."""
        values = self._values.getvalue()
        return values if self._pieces_bytes == 0 else [*self._pieces, values]


@final
class FlagColumn:
    """A column of Booleans, as a bitmap."""

    def __init__(self) -> None:
        self._bits = BytesWriter()
        self._partial_byte: i64 = 0  # bits of the last byte, which is incomplete
        self._length: i64 = 0
        self.true_count = 0  # count of true values

    def add(self, flag: bool) -> None:
        """Append the value of the next message."""
        place = self._length & 7
        if flag:
            self.true_count += 1
            self._partial_byte |= 1 << place
        self._length += 1
        if place == 7:
            self._bits.append(u8(self._partial_byte))
            self._partial_byte = 0

    def data(self) -> bytes:
        """Return the bitmap; unused bits of the last byte are 0."""
        if self._length & 7:
            return self._bits.getvalue() + bytes((self._partial_byte,))
        return self._bits.getvalue()


@final
class Columns:
    """The columns of the messages that one commit appends to the log.

    Args:
        bytes_max: limit of all text columns together, in bytes; Arrow's positions have 32 bits.
    """

    def __init__(self, bytes_max: int = _POSITION_MAX) -> None:
        self.count = 0  # messages
        self._bytes_max = bytes_max
        self._bytes_left: i64 = bytes_max
        self.topics = TextColumn()
        self.payloads = TextColumn()
        self.client_ids = TextColumn()
        self.properties = TextColumn()
        self.has_properties = FlagColumn()
        self.retained = FlagColumn()
        self.internal = FlagColumn()
        self._received_at = BytesWriter()
        self._qos = BytesWriter()
        self._client_id = ""  # client identifier of the latest message, encoded in ``_encoded``
        self._encoded = b""

    def add(self, message: Message) -> None:
        """Append a message to all columns.

        Raises:
            OverflowError: the text columns would exceed ``bytes_max``; the message is not added.
        """
        if message.client_id is not self._client_id:  # runs of one client's messages are common
            self._client_id = message.client_id
            self._encoded = message.client_id.encode()
        left = self._bytes_left - len(message.topic_bytes) - len(message.payload)
        left -= len(self._encoded) + len(message.properties)
        if left < 0:
            raise OverflowError("the messages of one commit have more than 2 GiB")
        self._bytes_left = left
        self.topics.add(message.topic_bytes)
        self.payloads.add(message.payload)
        self.client_ids.add(self._encoded)
        self.properties.add(message.properties)
        self.has_properties.add(len(message.properties) > 0)
        self.retained.add(message.retain)
        self.internal.add(message.internal)
        _write_i64(self._received_at, message.received_at_us)
        self._qos.append(message.qos)
        self.count += 1

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all text columns together."""
        return self._bytes_max - int(self._bytes_left)

    def newest_us(self) -> int:
        """Return the time at which the latest message was received, microseconds since the Unix
        epoch. There must be a message."""
        return int.from_bytes(self._received_at.getvalue()[-8:], sys.byteorder)

    def received_at(self) -> bytes:
        """Return the column of receive times: 8 bytes each, microseconds since the Unix epoch."""
        return self._received_at.getvalue()

    def qos(self) -> bytes:
        """Return the column of QoS as published, 1 byte each."""
        return self._qos.getvalue()


def columns_of(messages: list[Message]) -> Columns:
    """Return the columns of ``messages``."""
    columns = Columns()
    for message in messages:
        columns.add(message)
    return columns


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
