"""The durable form of a session's queue: numbered deliveries, written in segments.

::

        gone        segment   segment    joined since the last commit
      ─────────────┬─[4 ·· 9]─[10 · 12]─ 13 14 15 ─┐
                  head                             next

Every stored delivery has a sequence number, and in one lane (priority) they ascend
without a gap while they wait. All below ``head`` are in the window or gone. Those that
joined the queue in one commit and still wait at its end are a segment; a segment leaves
the store when the head has passed it. A lane's numbers carry its own in their upper
bits, so that lanes never share one, and each finds its lane again.
"""

from __future__ import annotations

from array import array
from typing import Final, final

from penstock.engine.message import Delivery
from penstock.engine.queue import PRIORITY_SHIFT
from penstock.engine.records import LaneEntry
from penstock.engine.runs import Run

_PASSED_MAX: Final = 1024  # segments that are gone, kept in the array


@final
class StoredLane:
    """Sequence numbers and segments of one lane.

    Args:
        number: the lane's: a priority, 0..255, and a slot (``queue``).
    """

    def __init__(self, number: int) -> None:
        self.lane = number
        self.next_sequence = (number << PRIORITY_SHIFT) + 1
        self.head = self.next_sequence
        self._joined: list[Delivery] = []  # queued since the last snapshot
        self._firsts: array[int] = array("q")  # first sequences of the stored segments
        self._at = 0  # those before are gone
        self._last = 0  # sequence of the last stored delivery

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
        """Some left from the middle of the lane: what stays begins anew, without holes."""
        self._joined = []
        self.head = self.next_sequence
        for delivery in waiting:
            if delivery.sequence > 0:
                delivery.sequence = self.number()
                self._joined.append(delivery)

    def take_segments(self, segments: list[Run]) -> None:
        """Add to ``segments`` what joined since the last call and still waits."""
        joined = self._joined
        if not joined:
            return
        self._joined = []
        head = self.head
        run: Run | None = None
        for item in joined:
            if item.sequence >= head and (run is None or not run.put(item)):
                run = Run(item.sequence)
                run.put(item)
                segments.append(run)
                self._firsts.append(run.first)
        if run is not None:
            self._last = run.end - 1

    def take_finished(self, finished: list[int]) -> None:
        """Add to ``finished`` the first sequences of segments that may leave the store."""
        firsts = self._firsts
        while self._at < len(firsts):
            at_last = self._at == len(firsts) - 1
            end = self._last + 1 if at_last else firsts[self._at + 1]
            if end > self.head:
                break
            finished.append(firsts[self._at])
            self._at += 1
        if self._at == len(firsts) or self._at > _PASSED_MAX + len(firsts) // 2:
            del firsts[: self._at]
            self._at = 0

    def restore_segment(self, first: int, end: int) -> None:
        """A segment the store holds; ``end`` follows the last delivery of all of them."""
        self._firsts.append(first)
        self._last = end - 1


@final
class StoredQueue:
    """The lanes of one session; there are no others than the first until they are used.

    ``first`` is the lane 0.
    """

    def __init__(self) -> None:
        self.first = StoredLane(0)
        self._others: dict[int, StoredLane] | None = None  # by number

    def lane(self, number: int) -> StoredLane:
        """The lane of this number."""
        if number == 0:
            return self.first
        if self._others is None:
            self._others = {}
        lane = self._others.get(number)
        if lane is None:
            lane = StoredLane(number)
            self._others[number] = lane
        return lane

    def passed(self, sequence: int) -> None:
        """The delivery with this sequence, above 0, is in the window, or gone."""
        self.lane(sequence >> PRIORITY_SHIFT).passed(sequence)

    def take_segments(self) -> list[Run]:
        """What joined since the last call and still waits."""
        segments: list[Run] = []
        self.first.take_segments(segments)
        for lane in self._other_lanes():
            lane.take_segments(segments)
        return segments

    def take_finished(self) -> list[int]:
        """The first sequences of segments that may leave the store."""
        finished: list[int] = []
        self.first.take_finished(finished)
        for lane in self._other_lanes():
            lane.take_finished(finished)
        return finished

    def entries(self) -> list[LaneEntry]:
        """The durable form of the lanes beside the first."""
        return [(lane.lane, lane.head, lane.next_sequence) for lane in self._other_lanes()]

    def _other_lanes(self) -> list[StoredLane]:
        return [] if self._others is None else list(self._others.values())
