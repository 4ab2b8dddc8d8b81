"""The message queue: deliveries that wait for the window, or for the client.

::

      new ──▶ [ tail ········ head ] ──▶ in-flight window      first in, first out
                        │
                        ╰─ full: one is dropped, QoS 0 before the others, then the oldest

The queue holds at most ``max_len`` deliveries (0 = no limit). When a new one does not
fit, the oldest QoS 0 delivery goes; when there is none, the oldest delivery (seed
"In-flight and Message Queue": the new message is always kept). The caller counts it.
"""

from __future__ import annotations

from collections import deque
from typing import final

from penstock.engine.message import Delivery, Message


@final
class MessageQueue:
    """A bounded first-in-first-out queue of deliveries.

    Args:
        max_len: messages, 0 = no limit.
    """

    def __init__(self, max_len: int) -> None:
        self.max_len = max_len
        self._waiting: deque[Delivery] = deque()
        self.qos0_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, delivery: Delivery) -> Delivery | None:
        """Append ``delivery``; return the one that had to go for it, if any."""
        dropped: Delivery | None = None
        if 0 < self.max_len <= len(self._waiting):
            dropped = self._drop_oldest()
        self._waiting.append(delivery)
        if delivery.qos == 0:
            self.qos0_count += 1
        return dropped

    def has_room(self) -> bool:
        """Whether one more delivery fits and none must go for it."""
        return self.max_len <= 0 or len(self._waiting) < self.max_len

    def head(self) -> Delivery | None:
        """The next delivery to send, left in place."""
        return self._waiting[0] if self._waiting else None

    def pop(self) -> Delivery:
        """Take the next delivery to send. The queue must not be empty."""
        delivery = self._waiting.popleft()
        if delivery.qos == 0:
            self.qos0_count -= 1
        return delivery

    def lowest_offset(self, mixed: bool) -> int:
        """The lowest log offset in the queue, or -1 when it needs nothing from the log.

        Args:
            mixed: offsets may not ascend: some came from another member of a group.
        """
        lowest = -1
        for delivery in self._waiting:
            offset = delivery.offset
            if offset >= 0 and (delivery.sequence > 0 or delivery.message is None):
                if lowest < 0 or offset < lowest:
                    lowest = offset
                if not mixed:
                    break
        return lowest

    def without_body(self, limit: int) -> list[int]:
        """Log offsets of the first deliveries whose body is not in memory, at most ``limit``."""
        offsets: list[int] = []
        for delivery in self._waiting:
            if len(offsets) >= limit or delivery.message is not None:
                break
            offsets.append(delivery.offset)
        return offsets

    def supply(self, bodies: dict[int, Message]) -> None:
        """Give the first deliveries their bodies, by log offset, as far as they are known."""
        for delivery in self._waiting:
            if delivery.message is None:
                body = bodies.get(delivery.offset)
                if body is None:
                    break
                delivery.message = body

    def waiting(self) -> list[Delivery]:
        """All deliveries, next first."""
        return list(self._waiting)

    def without(self, gone: set[Delivery]) -> list[Delivery]:
        """Remove ``gone``; what stays, next first."""
        kept: deque[Delivery] = deque()
        for delivery in self._waiting:
            if delivery not in gone:
                kept.append(delivery)
            elif delivery.qos == 0:
                self.qos0_count -= 1
        self._waiting = kept
        return list(kept)

    def _drop_oldest(self) -> Delivery:
        if self.qos0_count > 0:
            for position, delivery in enumerate(self._waiting):
                if delivery.qos == 0:
                    del self._waiting[position]
                    self.qos0_count -= 1
                    return delivery
        return self.pop()
