"""The lanes of one rank in a queue, sorted by the log offset of their heads.

::

      lane 0        ·· 9  4 ─╮
      slot 1's lane ·· 8  2 ─┼─▶ heap of heads: 2 (slot 1), 4 (lane 0), 7 (slot 2) ─▶ first
      slot 2's lane ·· ·  7 ─╯

A queue may have 128 lanes of one rank (``group_queue``), and needs the oldest head for each
message; a heap finds it without a search of all lanes. Out-of-date entries of the heap are skipped
when they come to the top, and removed when there are too many.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from penstock.engine.session.lane import Lane
from penstock.engine.values.limits import OUT_OF_DATE_MAX

_NONE: Final = -2  # as the offset of an entry


@final
class LanesByOffset:
    """The lanes of one rank, whose deliveries are sent in the order of their log offsets.

    Args:
        rank: the rank of the lanes; deliveries of a greater rank are sent first.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lanes: dict[int, Lane] = {}  # by number
        self._with_qos0: dict[int, Lane] = {}  # lanes with QoS 0 deliveries
        self._heap: list[tuple[int, int]] = []  # (offset of a head, number of its lane)
        self._is_unsorted = False  # lanes were added or restored: their heads are not in the heap

    def add(self, lane: Lane) -> None:
        """Add ``lane``; its head is sorted in when ``first`` is called next."""
        lane.rank = self.rank
        lane.entry_offset = _NONE
        self.lanes[lane.number] = lane
        self._is_unsorted = True

    def remove(self, lane: Lane) -> None:
        """Remove ``lane``, which must be empty."""
        self.lanes.pop(lane.number, None)

    def mark_unsorted(self) -> None:
        """Sort all lanes when ``first`` is called next: a lane got deliveries from the store."""
        self._is_unsorted = True

    def update(self, lane: Lane) -> None:
        """Sort ``lane`` in again: a delivery was added to it or removed."""
        if self._is_unsorted:
            return
        if lane.qos0_count > 0:
            self._with_qos0[lane.number] = lane
        elif self._with_qos0:
            self._with_qos0.pop(lane.number, None)
        head = lane.head()
        if head is not None and head.offset != lane.entry_offset:
            lane.entry_offset = head.offset
            heappush(self._heap, (head.offset, lane.number))
            if len(self._heap) > 2 * len(self.lanes) + OUT_OF_DATE_MAX:
                self._sort()

    def first(self) -> Lane | None:
        """Return the lane whose head has the lowest log offset; None if all lanes are empty."""
        if self._is_unsorted:
            self._sort()
        heap = self._heap
        while heap:
            offset, number = heap[0]
            lane = self.lanes.get(number)
            if lane is not None and lane.entry_offset == offset:
                head = lane.head()
                if head is not None and head.offset == offset:
                    return lane
                lane.entry_offset = _NONE
            heappop(heap)
            if lane is not None:
                self.update(lane)
        return None

    def first_with_qos0(self) -> Lane | None:
        """Return a lane with QoS 0 deliveries, the same one while it has any; None if no lane has
        any."""
        if self._is_unsorted:
            self._sort()
        for lane in self._with_qos0.values():
            return lane
        return None

    def _sort(self) -> None:
        """Build the heap from the heads of all lanes."""
        self._is_unsorted = False
        self._heap = []
        self._with_qos0 = {}
        for lane in self.lanes.values():
            lane.entry_offset = _NONE
            if lane.qos0_count > 0:
                self._with_qos0[lane.number] = lane
            head = lane.head()
            if head is not None:
                lane.entry_offset = head.offset
                self._heap.append((head.offset, lane.number))
        heapify(self._heap)
