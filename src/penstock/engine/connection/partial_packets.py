"""Memory for large packets that have arrived in part: one budget for all connections.

::

      length known ── room ────▶ length reserved ── packet complete, or connection ended ─▶ released
           ╰──── no room ─▶ in line, not read ──▶ first in line, and room ─▶ length reserved

A packet reserves its whole length at once, so that a packet that is being read can always be
completed. While nothing is reserved, there is room for any length. A connection with a reservation
whose packet is not complete by its deadline is closed and counted if other connections wait.
Packets of up to ``FREE_BYTES`` need no reservation.
"""

from __future__ import annotations

from typing import final

from penstock.engine.connection.connection import Connection
from penstock.engine.wire.link import Turn


@final
class PartialPacketBudget:
    """The budget of one broker for packets that have arrived in part.

    Args:
        turn: resumes the connections that may continue.
        bytes_max: limit of all reservations together, in bytes; 0 = no limit.
    """

    def __init__(self, turn: Turn, bytes_max: int) -> None:
        self.size_bytes = 0  # of all reservations
        self.closed_count = 0  # connections whose packet was not complete in time
        self._turn = turn
        self._bytes_max = bytes_max
        self._reservations: dict[Connection, tuple[int, float]] = {}  # (bytes, deadline; 0 = none)
        self._line: dict[Connection, None] = {}  # connections that wait for room, in order

    def reserve(self, connection: Connection, size_bytes: int, deadline_s: float) -> bool:
        """Reserve memory for a packet; return whether there was room.

        If not, ``connection`` is resumed when it may call this again.

        Args:
            connection: the connection that receives the packet.
            size_bytes: length of the whole packet, above ``FREE_BYTES``.
            deadline_s: when it must be complete, monotonic seconds; 0 = no deadline.
        """
        if self._bytes_max == 0 or connection in self._reservations:
            return True
        is_first = not self._line or next(iter(self._line)) is connection
        has_room = self.size_bytes == 0 or self.size_bytes + size_bytes <= self._bytes_max
        if not is_first or not has_room:
            self._line[connection] = None
            return False
        self._line.pop(connection, None)
        self._reservations[connection] = (size_bytes, deadline_s)
        self.size_bytes += size_bytes
        self._wake_first()
        return True

    def release(self, connection: Connection) -> None:
        """Release the reservation of ``connection``, or its place in line: its packet is complete,
        or the connection ended."""
        reserved = self._reservations.pop(connection, None)
        if reserved is not None:
            self.size_bytes -= reserved[0]
            assert self.size_bytes >= 0, "more bytes were given back than were reserved"
        elif connection in self._line:
            del self._line[connection]
        else:
            return
        self._wake_first()

    def overdue_connections(self, now_s: float) -> list[Connection]:
        """Return the connections whose deadline passed while others wait; the caller closes them.

        Connections that the broker itself does not read (``is_reading_paused``) are not returned.
        """
        if not self._line:
            return []
        late: list[Connection] = []
        for connection, (_, deadline_s) in self._reservations.items():
            if 0.0 < deadline_s <= now_s and not connection.is_reading_paused:
                late.append(connection)
        self.closed_count += len(late)
        return late

    def _wake_first(self) -> None:
        for connection in self._line:
            self._turn.waiting.until_turn(connection)
            return
