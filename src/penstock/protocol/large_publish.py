"""A large PUBLISH as it arrives: its payload is assembled while it comes, not at the end.

::

    ├─ header, topic, packet identifier, properties ─┼───────────── payload ─────────────┤ next
      front: looked at when the packet is whole        grows with each read, never copied

To join the reads and to cut the payload out of them took 0.1 s each for 100 MB, in one
piece, and no other client was served meanwhile. Here each read is copied once, when it comes.
``BytesIO`` hands out the bytes that it holds without copying them.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final, final

from mypy_extensions import i64

from penstock.protocol.fixed_header import QOS_FLAGS
from penstock.protocol.kinds import V5

LARGE_BYTES: Final = 262_144
"""A PUBLISH of more bytes that has not arrived whole is read like this."""

TELLING_BYTES: Final = 65_548
"""Bytes of a PUBLISH that always tell where its payload begins: a fixed header of 5, a topic of
65,535 with its length, a packet identifier, 4 for the length of its properties."""


@final
class LargePublish:
    """A large PUBLISH of which a part is here.

    Args:
        begun: the bytes that are here; more than its front.
        front_bytes: the place where its payload begins.
        size_bytes: the size of the whole packet.
    """

    def __init__(self, begun: bytes, front_bytes: int, size_bytes: int) -> None:
        self.front = begun[:front_bytes]
        self._missing: i64 = size_bytes - front_bytes
        self._payload = BytesIO()
        self.add(begun, front_bytes)

    def add(self, data: bytes, begin: int = 0) -> int:
        """Take more of the packet from ``data``, starting at ``begin``; return where the packet
        ends there."""
        end = min(len(data), begin + int(self._missing))
        self._payload.write(data if end - begin == len(data) else memoryview(data)[begin:end])
        self._missing -= end - begin
        return end

    def is_whole(self) -> bool:
        """Return whether all of the packet is here."""
        return self._missing == 0

    def payload(self) -> bytes:
        """Return the payload of a PUBLISH that is whole."""
        return self._payload.getvalue()


def payload_begin(buffer: bytes, position: i64, body: i64, version: int) -> i64:
    """Return the index of a PUBLISH's payload; 0 while too few of its bytes have arrived.

    The fields that tell it are checked when the packet is read.

    Args:
        buffer: the bytes with the beginning of the packet.
        position: the place where the packet begins.
        body: the place where its fixed header ends.
        version: protocol level.
    """
    limit: i64 = len(buffer)
    at = body + 2
    if at > limit:
        return 0
    high: i64 = buffer[at - 2]
    low: i64 = buffer[at - 1]
    at += high << 8 | low
    if buffer[position] & QOS_FLAGS != 0:
        at += 2
    if version != V5:
        return at
    length: i64 = 0
    shift: i64 = 0
    while shift <= 21:
        if at >= limit:
            return 0
        digit: i64 = buffer[at]
        at += 1
        length |= (digit & 0x7F) << shift
        if digit < 0x80:
            break
        shift += 7
    return at + length
