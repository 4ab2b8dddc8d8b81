"""The durable form of a session's queue: numbered deliveries, written in segments.

::

        gone        segment   segment    joined since the last commit
      ─────────────┬─[4 ·· 9]─[10 · 12]─ 13 14 15 ─┐
                  head                             next

Every stored delivery has a sequence number, and they ascend. All below ``head`` are in
the window or gone. Those that joined the queue in one commit and still wait at its end
are one segment; a segment leaves the store when the head has passed it.
"""

from __future__ import annotations

from collections import deque
from typing import final

from penstock.engine.message import Delivery
from penstock.engine.records import QueueEntry, SharedEntry


@final
class StoredQueue:
    """Sequence numbers and segments of one stored session."""

    def __init__(self) -> None:
        self.next_sequence = 1
        self.head = 1
        self._joined: list[Delivery] = []  # queued since the last snapshot
        self._segments: deque[tuple[int, int]] = deque()  # stored: (first, last sequence)

    def number(self) -> int:
        """The sequence of one more delivery."""
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        return sequence

    def joined(self, delivery: Delivery) -> None:
        """``delivery`` joined the queue."""
        self._joined.append(delivery)

    def passed(self, sequence: int) -> None:
        """The delivery with this sequence is in the window, or gone; 0 is not stored."""
        if sequence >= self.head:
            self.head = sequence + 1

    def renumber(self, waiting: list[Delivery]) -> None:
        """Some left from the middle of the queue: what stays begins anew, without holes."""
        self._joined = []
        self.head = self.next_sequence
        for delivery in waiting:
            if delivery.sequence > 0:
                delivery.sequence = self.number()
                self._joined.append(delivery)

    def take_segment(self) -> tuple[list[QueueEntry], list[SharedEntry]]:
        """What joined since the last call and still waits: the next segment."""
        joined = self._joined
        self._joined = []
        head = self.head
        segment: list[QueueEntry] = []
        shared: list[SharedEntry] = []
        for item in joined:
            if item.sequence >= head:
                segment.append(
                    (item.sequence, item.offset, item.qos, item.retain, item.subscription_ids)
                )
                if item.shared is not None:
                    shared.append(item.shared.entry(item.sequence))
        if segment:
            self._segments.append((segment[0][0], segment[-1][0]))
        return segment, shared

    def take_finished(self) -> list[int]:
        """First sequences of the segments that may leave the store."""
        finished: list[int] = []
        while self._segments and self._segments[0][1] < self.head:
            finished.append(self._segments.popleft()[0])
        return finished

    def restore(self, head: int, next_sequence: int, segments: list[tuple[int, int]]) -> None:
        """Take up what the store holds."""
        self.head = head
        self.next_sequence = next_sequence
        self._segments.extend(segments)
