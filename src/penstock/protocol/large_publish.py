"""A large PUBLISH, whose payload is assembled while it arrives, not at the end.

::

    ├─ header, topic, packet identifier, properties ─┼───────────── payload ─────────────┤ next
      front: decoded when the packet is whole          grows with each read, never copied again

Joining the reads and slicing the payload took 0.1 s each for 100 MB, in one piece, and no other
client was served meanwhile. Here each read is copied once, when it arrives. ``BytesIO.getvalue``
returns its bytes without copying them.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final, final

from mypy_extensions import i64

from penstock.protocol.fixed_header import QOS_FLAGS
from penstock.protocol.kinds import V5

LARGE_BYTES: Final = 262_144
"""Size in bytes above which a PUBLISH that has not arrived whole is assembled by this module."""

FRONT_BYTES_MAX: Final = 65_548
"""Bytes of a PUBLISH that suffice to find the start of its payload: a fixed header of 5, a topic of
65,535 with its length, a packet identifier, 4 for the length of its properties."""


@final
class LargePublish:
    """A large PUBLISH of which a part has arrived.

    Args:
        received: the bytes that have arrived; at least the front.
        front_bytes: the number of bytes before the payload.
        size_bytes: the size of the whole packet.

    Attributes:
        front: the bytes before the payload.
    """

    def __init__(self, received: bytes, front_bytes: int, size_bytes: int) -> None:
        self.front = received[:front_bytes]
        self._missing: i64 = size_bytes - front_bytes
        self._payload = BytesIO()
        self.add(received, front_bytes)

    def add(self, data: bytes, begin: int = 0) -> int:
        """Add the bytes of the packet in ``data``, from ``begin`` on; return the index of their end
        in ``data``."""
        end = min(len(data), begin + int(self._missing))
        self._payload.write(data if end - begin == len(data) else memoryview(data)[begin:end])
        self._missing -= end - begin
        return end

    def is_whole(self) -> bool:
        """Return whether the packet has arrived whole."""
        return self._missing == 0

    def payload(self) -> bytes:
        """Return the payload; the packet must have arrived whole."""
        return self._payload.getvalue()


def payload_begin(buffer: bytes, position: i64, body: i64, version: int) -> i64:
    """Return the index of a PUBLISH's payload; 0 if too few of its bytes have arrived.

    The fields before the payload are not checked here, but when the packet is decoded.

    Args:
        buffer: the bytes with the beginning of the packet.
        position: the index of the packet in ``buffer``.
        body: the index of the end of its fixed header.
        version: the protocol level, 3 to 5.
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
