"""Detection of a message at which the remote broker of a bridge ends every connection.

Before MQTT 5 a broker cannot refuse a message: if a message is too large for it, or its topic is
not allowed, the broker ends the connection. The message is sent first on the next connection, so
that no message behind it is ever acknowledged. It is the first unacknowledged message, because the
peer handles messages in order.

::

      ended by the peer ─▶ first unacknowledged ── another than before ─▶ count 1
                                     ╰─ the same ─▶ count 2: alone in the next window
                                                    count 3: dropped

On the third connection the message is sent alone, so that no other message can be the cause. A bad
network does not have this effect: it ends connections at any message, and after an acknowledgement
another message is the first, so that the count begins anew.
"""

from __future__ import annotations

from typing import final

from penstock.engine.values.message import Delivery


@final
class PoisonMessageDetector:
    """Counts the successive connections of one session that the peer ended at the same message.

    Args:
        ends_max: the number of connections after which the message is dropped, 1 or more.
    """

    def __init__(self, ends_max: int) -> None:
        self._ends_max = ends_max
        self._delivery: Delivery | None = None
        self._ends = 0
        self._capacity = 0  # capacity of the window while it is narrowed to 1; else 0

    def begin_connection(self, capacity: int) -> int:
        """Begin a connection; return the capacity of its window: ``capacity``, or 1 for the last
        trial."""
        self._capacity = capacity if self._ends == self._ends_max - 1 and self._ends > 0 else 0
        return 1 if self._capacity > 0 else capacity

    def widen(self, capacity: int) -> int:
        """Return the capacity of the window after an acknowledgement; ``capacity`` is the present
        one."""
        wide = self._capacity or capacity
        self._capacity = 0
        return wide

    def note_end(self, delivery: Delivery | None) -> bool:
        """Note that the peer ended a connection; return whether ``delivery`` is to be dropped.

        Args:
            delivery: the first message that was sent on the connection and not acknowledged; None
                if there is none, which changes nothing.
        """
        if delivery is None:
            return False
        if delivery is not self._delivery:
            self._delivery = delivery
            self._ends = 0
        self._ends += 1
        if self._ends < self._ends_max:
            return False
        self._delivery = None
        self._ends = 0
        return True
