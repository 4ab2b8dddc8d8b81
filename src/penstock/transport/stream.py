"""The common part of wires over a stream socket: pausing and resuming to read.

::

      wire ─── transport ──────────── socket        plain: the transport reads the socket
      wire ─── TLS ─── below ──────── socket        TLS: the transport below reads the socket

While reading is paused, all bytes and the end of the stream stay in the system's buffer. With TLS
the transport *below* must pause: if TLS itself were paused, the event loop would still read the
socket, and at the end of the stream TLS would discard bytes that are not read yet.
"""

from __future__ import annotations

import asyncio

from penstock.transport.hang_up import peer_state
from penstock.transport.unacknowledged import unacknowledged_bytes


class StreamWire(asyncio.Protocol):
    """The base of wires over a stream socket: it pauses and resumes reading.

    Attributes:
        below: with TLS, the transport below, which reads the socket; set before
            ``connection_made``. None without TLS.
    """

    def __init__(self) -> None:
        self.below: asyncio.Transport | None = None
        self._transport: asyncio.Transport | None = None
        self._is_reading = True
        self._is_blocked = False  # see ``_block_reading``

    def pause_reading(self) -> None:
        """Pause reading, for the endpoint."""
        if self._transport is not None and self._is_reading:
            self._is_reading = False
            if not self._is_blocked:
                (self.below or self._transport).pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, for the endpoint."""
        if self._transport is not None and not self._is_reading:
            self._is_reading = True
            if not self._is_blocked:
                (self.below or self._transport).resume_reading()

    def _block_reading(self) -> None:
        """Read nothing until ``_unblock_reading``, even if the endpoint resumes reading."""
        if self._transport is not None and not self._is_blocked:
            self._is_blocked = True
            if self._is_reading:
                (self.below or self._transport).pause_reading()

    def _unblock_reading(self) -> None:
        """Read again unless the endpoint paused reading: the last bytes are handled."""
        if self._transport is not None and self._is_blocked:
            self._is_blocked = False
            if self._is_reading:
                (self.below or self._transport).resume_reading()

    def peer_state(self) -> int:
        """Return ``ESTABLISHED``, ``FINISHED`` or ``BROKEN`` (see ``hang_up``)."""
        return peer_state(self._transport)

    def unwritten_bytes(self) -> int:
        """Return the number of written bytes that the peer has not acknowledged, in this process
        and in the system."""
        return self.buffered_bytes() + unacknowledged_bytes(self._transport)

    def buffered_bytes(self) -> int:
        """Return the number of written bytes that the system has not taken yet."""
        if self._transport is None:
            return 0
        size_bytes = self._transport.get_write_buffer_size()
        return size_bytes + (self.below.get_write_buffer_size() if self.below is not None else 0)

    def _forget_below(self) -> None:
        """Drop the transports, which refer to this wire: the connection is closed."""
        self._transport = None
        self.below = None

    def _end(self, transport: asyncio.Transport) -> None:
        """Close ``transport``; resume reading, so that TLS gets the peer's close_notify."""
        transport.close()
        below = self.below
        is_paused = self._is_blocked or not self._is_reading
        if below is not None and is_paused and not below.is_closing():
            self._is_reading = True
            self._is_blocked = False
            below.resume_reading()
