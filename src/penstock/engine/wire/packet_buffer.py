"""Encoded packets that are sent together: appended one by one, and taken out as a few pieces.

::

      add, add_ack, add_publish ─▶ [ parts … | writer ] ─ take_pieces ─▶ bytes for the socket

A small packet is written directly into the buffer and never becomes an object of its own. A larger
payload is a part, which is copied once, when the parts are joined. A very large payload is a piece
of its own, which is never copied, even if many subscribers get it.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr, u8

from penstock.protocol.encode import append_publish_head
from penstock.protocol.kinds import PUBREL

_PART_BYTES_MIN: Final = 4096
_PIECE_BYTES_MIN: Final = 262_144


@mypyc_attr(acyclic=True)
@final
class PacketBuffer:
    """Encoded packets of one link. An empty buffer takes little memory."""

    def __init__(self) -> None:
        self.count: i64 = 0  # packets
        self._writer: BytesWriter | None = None
        self._parts: list[bytes] | None = None  # sent before the content of the writer

    def size_bytes(self) -> int:
        """Return the bytes of all packets."""
        size_bytes = 0 if self._writer is None else len(self._writer)
        if self._parts is not None:
            for part in self._parts:
                size_bytes += len(part)
        return size_bytes

    def add(self, frames: bytes, count: int = 1) -> None:
        """Append ``frames``, which contain ``count`` packets."""
        self.count += count
        if len(frames) < _PART_BYTES_MIN:
            writer = self._writer
            if writer is None:
                writer = self._writer = BytesWriter()
            writer.write(frames)
        else:
            self._add_part(frames)

    def add_all(self, other: PacketBuffer) -> None:
        """Move the packets of ``other`` to the end of this buffer."""
        self.count += other.count
        for piece in other.take_pieces():
            self.add(piece, 0)

    def add_ack(self, packet_type: i64, packet_id: i64) -> None:
        """Append a PUBACK, PUBREC, PUBREL or PUBCOMP without reason code and properties: four
        bytes."""
        writer = self._writer
        if writer is None:
            writer = self._writer = BytesWriter()
        writer.append(u8(packet_type << 4 | (0x02 if packet_type == PUBREL else 0)))
        writer.append(2)
        writer.append(u8(packet_id >> 8))
        writer.append(u8(packet_id & 0xFF))
        self.count += 1

    def add_publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        version: int,
        properties: bytes,
        size_bytes_max: int,
    ) -> i64:
        """Append a PUBLISH; see ``append_publish_head``.

        Returns:
            Its size in bytes; 0: it is larger than ``size_bytes_max``, and not appended.

        Raises:
            LocalProtocolError: the packet violates the protocol, or is larger than MQTT allows.
        """
        writer = self._writer
        if writer is None:
            writer = self._writer = BytesWriter()
        size_bytes = append_publish_head(
            writer,
            topic,
            len(payload),
            qos,
            retain,
            dup,
            packet_id,
            version,
            properties,
            size_bytes_max,
        )
        if size_bytes == 0:
            return 0
        self.count += 1
        if len(payload) < _PART_BYTES_MIN:
            writer.write(payload)
        else:
            self._add_part(payload)
        return size_bytes

    def take_pieces(self) -> list[bytes]:
        """Return all packets in pieces, to be sent one after the other, and empty the buffer."""
        self.count = 0
        writer = self._writer
        parts = self._parts
        data = b"" if writer is None else writer.getvalue()
        self._writer = None
        if parts is None:
            return [data]
        self._parts = None
        parts.append(data)
        pieces: list[bytes] = []
        begin = 0
        for place in range(len(parts)):
            if len(parts[place]) >= _PIECE_BYTES_MIN:
                if place > begin:
                    pieces.append(b"".join(parts[begin:place]))
                pieces.append(parts[place])
                begin = place + 1
        pieces.append(b"".join(parts[begin:]))
        return pieces

    def _add_part(self, part: bytes) -> None:
        parts = self._parts
        if parts is None:
            parts = self._parts = []
        writer = self._writer
        if writer is not None and len(writer) > 0:
            parts.append(writer.getvalue())
        self._writer = None
        parts.append(part)
