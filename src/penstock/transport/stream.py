"""The common part of wires over a stream socket: pausing and resuming to read.

::

      wire ─── transport ──────────── socket        plain: the transport reads the socket
      wire ─── TLS ─── below ──────── socket        TLS: the transport below reads the socket

While reading is paused, all bytes and the end of the stream stay in the system's buffer. With TLS
the transport *below* must pause: if TLS itself were paused, the event loop would still read the
socket, and at the end of the stream TLS would discard bytes that are not read yet.

A socket that is closed while its peer still sends is *reset*: what was written to it and is under
way is discarded, and a client whose next write fails does not look for what it has received. A
client that publishes all the time would not see its last acknowledgements. So a wire whose peer may
still send *lingers*: it sends the end of the stream first, and what arrives is discarded until
the peer closes too, or has its bytes and sends nothing for ``LINGER_S``. TLS does so by itself,
with close_notify.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.transport.hang_up import peer_state, send_end
from penstock.transport.unacknowledged import unacknowledged_bytes

LINGER_S: Final = 1.0  # that a peer has to close its side, once it has all bytes and is silent
_LINGER_STEP_S: Final = 0.25


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
        self._lingers_for_s = LINGER_S  # once it is closed

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

    def _end(self, transport: asyncio.Transport, lingers: bool) -> None:
        """Close ``transport`` once everything is sent.

        With ``lingers`` send the end of the stream, and close when the peer has closed, or has
        sent nothing for ``LINGER_S``; the caller discards what arrives (``_note_discarded``).
        """
        if lingers and self.below is None and transport.can_write_eof():
            if not transport.is_closing():
                send_end(transport)
                self._linger(transport)
        else:
            transport.close()
        below = self.below
        if lingers and below is None:
            below = transport
        is_paused = self._is_blocked or not self._is_reading
        if below is not None and is_paused and not below.is_closing():
            self._is_reading = True
            self._is_blocked = False
            below.resume_reading()

    def _note_discarded(self) -> None:
        """Note that the peer still sends, after ``_end``."""
        self._lingers_for_s = LINGER_S

    def _linger(self, transport: asyncio.Transport) -> None:
        if self._transport is None:  # closed by the peer
            return
        if self._lingers_for_s <= 0.0:
            transport.close()
            return
        if self.unwritten_bytes() == 0:
            self._lingers_for_s -= _LINGER_STEP_S
        asyncio.get_running_loop().call_later(_LINGER_STEP_S, self._linger, transport)
