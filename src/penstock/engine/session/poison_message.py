"""Detection of a message at which the remote broker of a bridge ends every connection.

Before MQTT 5 a broker cannot refuse a message: one that is too large for it, or whose topic it does
not allow, makes it end the connection. The message is the first that is sent on the next
connection, so that no message behind it is ever acknowledged. It is the first unacknowledged one,
because the peer handles them in order.

::

      ended by the peer ─▶ first unacknowledged ── another than before ─▶ 1
                                     ╰─ the same ─▶ 2: alone in the next window
                                                    3: dropped

On the third connection it is sent by itself, so that no other message can be the cause. A bad
network is not mistaken for that: it ends connections at any message, and after an acknowledgement
another message is the first, so that the count begins anew.
"""

from __future__ import annotations

from typing import final

from penstock.engine.message import Delivery


@final
class PoisonMessageDetector:
    """The number of successive connections of one session that the peer ended at the same message.

    Args:
        ends_max: the number of ends after which the message is dropped, 1 or more.
    """

    def __init__(self, ends_max: int) -> None:
        self._ends_max = ends_max
        self._delivery: Delivery | None = None
        self._ends = 0
        self._capacity = 0  # capacity of the window while it is narrowed to 1; else 0

    def begin(self, capacity: int) -> int:
        """Begin a connection; return the capacity of its window: 1 for the last trial."""
        self._capacity = capacity if self._ends == self._ends_max - 1 and self._ends > 0 else 0
        return 1 if self._capacity > 0 else capacity

    def widen(self, capacity: int) -> int:
        """Return the capacity of the window, now ``capacity``, after an acknowledgement."""
        wide = self._capacity or capacity
        self._capacity = 0
        return wide

    def ended_at(self, delivery: Delivery | None) -> bool:
        """Note that the peer ended a connection; return whether ``delivery`` is to be dropped.

        Args:
            delivery: the first message that was sent on it and not acknowledged; None if there is
                none, which tells nothing.
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
