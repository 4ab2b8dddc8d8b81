"""The common part of wires over a stream: the socket below, and whether it is read.

::

      wire ─── transport ──────────── socket        plain: the transport reads the socket
      wire ─── TLS ─── below ──────── socket        TLS: the one below it does; each has a buffer

To read nothing is to leave everything in the system's buffer, the end of the stream too. It is
the transport *below* TLS that must pause: were TLS itself paused, the loop would go on reading
the socket, and an end it finds makes TLS throw away bytes that are not read yet.
"""

from __future__ import annotations

import asyncio

from penstock.transport.hang_up import peer_state
from penstock.transport.unacknowledged import unacknowledged_bytes


class StreamWire(asyncio.Protocol):
    """The base of wires over a stream socket: it starts and stops reading.

    Attributes:
        below: the transport that reads the socket, where it is another one; set before
            ``connection_made``.
    """

    def __init__(self) -> None:
        self.below: asyncio.Transport | None = None
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._blocked = False  # what was read last is not handled yet: see ``_block_reading``

    def pause_reading(self) -> None:
        """Stop reading."""
        if self._transport is not None and self._reading:
            self._reading = False
            if not self._blocked:
                (self.below or self._transport).pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None and not self._reading:
            self._reading = True
            if not self._blocked:
                (self.below or self._transport).resume_reading()

    def _block_reading(self) -> None:
        """Read nothing until ``_unblock_reading``, whatever the user of the wire wants."""
        if self._transport is not None and not self._blocked:
            self._blocked = True
            if self._reading:
                (self.below or self._transport).pause_reading()

    def _unblock_reading(self) -> None:
        """Read again as the user of the wire wants: the bytes read last are handled."""
        if self._transport is not None and self._blocked:
            self._blocked = False
            if self._reading:
                (self.below or self._transport).resume_reading()

    def peer_state(self) -> int:
        """Return whether the peer hung up while it was not read."""
        return peer_state(self._transport)

    def unwritten_bytes(self) -> int:
        """Return how many bytes the peer has not taken yet, here and in the system."""
        return self.buffered_bytes() + unacknowledged_bytes(self._transport)

    def buffered_bytes(self) -> int:
        """Return how many bytes the system has not taken yet."""
        if self._transport is None:
            return 0
        size_bytes = self._transport.get_write_buffer_size()
        return size_bytes + (self.below.get_write_buffer_size() if self.below is not None else 0)

    def _forget_below(self) -> None:
        """Forget the transport below, which refers to this wire: the connection is gone."""
        self._transport = None
        self.below = None

    def _end(self, transport: asyncio.Transport) -> None:
        """Close ``transport``, which is read again for the peer's half of TLS's goodbye."""
        transport.close()
        below = self.below
        is_paused = self._blocked or not self._reading
        if below is not None and is_paused and not below.is_closing():
            self._reading = True
            self._blocked = False
            below.resume_reading()
