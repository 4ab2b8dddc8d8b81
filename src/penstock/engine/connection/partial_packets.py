"""Memory for large packets that have arrived in part: one budget for all connections.

::

      length known ── there is room ──▶ RESERVES its length ── whole, or lost ─▶ given back
           ╰──── none ─▶ in line, not read ──▶ the first, once there is room ──╯

A packet reserves its whole length at once, so that a connection that has begun can finish, and none
waits for one that waits itself. While no connection has memory, there is room for any length.
A connection that has memory while others wait, and whose packet is not whole by its deadline, is
closed and counted. Packets of up to ``FREE_BYTES`` take nothing from the budget.
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
        bytes_max: bytes of all packets that may arrive at the same time; 0 = no limit.
    """

    def __init__(self, turn: Turn, bytes_max: int) -> None:
        self.size_bytes = 0  # whole length of all packets that may arrive
        self.closed = 0  # connections whose packet was not whole in time
        self._turn = turn
        self._bytes_max = bytes_max
        self._reserved: dict[Connection, tuple[int, float]] = {}  # bytes, and deadline; 0 = none
        self._line: dict[Connection, None] = {}

    def take(self, user: Connection, size_bytes: int, deadline_s: float) -> bool:
        """Return whether a packet of this length may be read; if not, ``user`` is resumed to ask
        again.

        Args:
            user: the connection that receives the packet.
            size_bytes: length of the whole packet, above ``FREE_BYTES``.
            deadline_s: when it must be whole, monotonic seconds; 0 = no deadline.
        """
        if self._bytes_max == 0 or user in self._reserved:
            return True
        is_first = not self._line or next(iter(self._line)) is user
        has_room = self.size_bytes == 0 or self.size_bytes + size_bytes <= self._bytes_max
        if not is_first or not has_room:
            self._line[user] = None
            return False
        self._line.pop(user, None)
        self._reserved[user] = (size_bytes, deadline_s)
        self.size_bytes += size_bytes
        self._wake_first()
        return True

    def give_back(self, user: Connection) -> None:
        """Return the memory of ``user`` to the budget: its packet is whole, or its connection
        ended."""
        reserved = self._reserved.pop(user, None)
        if reserved is not None:
            self.size_bytes -= reserved[0]
            assert self.size_bytes >= 0, "more bytes were given back than were reserved"
        elif user in self._line:
            del self._line[user]
        else:
            return
        self._wake_first()

    def overdue(self, now_s: float) -> list[Connection]:
        """Return the connections past their deadline while others wait; the caller closes them.

        A connection that the broker itself does not read (``reading_paused``) is not among them.
        """
        if not self._line:
            return []
        late: list[Connection] = []
        for user, (_, deadline_s) in self._reserved.items():
            if 0.0 < deadline_s <= now_s and not user.reading_paused:
                late.append(user)
        self.closed += len(late)
        return late

    def _wake_first(self) -> None:
        for user in self._line:
            self._turn.resume_later(user)
            return
