"""The lanes of one rank in a queue: which of them has the oldest delivery at its head.

::

      lane 0        ·· 9  4 ─╮
      slot 1's lane ·· 8  2 ─┼─▶ heap of heads: 2 (slot 1), 4 (lane 0), 7 (slot 2) ─▶ first
      slot 2's lane ·· ·  7 ─╯

A queue may have as many as 128 lanes of a rank (``group_queue``), and looks for the oldest for each
message: a heap by log offset finds it without a look at the others. What is out of date in there is
passed over when it comes to the top, and thrown out when it is too much.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from penstock.engine.limits import OUT_OF_DATE_MAX
from penstock.engine.session.lane import Lane

_NONE: Final = -2  # as the offset of an entry


@final
class LanesByOffset:
    """The lanes that are emptied together, by log offset.

    Args:
        rank: of the lanes; greater ones are emptied first.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lanes: dict[int, Lane] = {}  # by number
        self._with_qos0: dict[int, Lane] = {}  # those in which any QoS 0 waits
        self._heap: list[tuple[int, int]] = []  # (offset of a head, number of its lane)
        self._unsorted = False  # lanes were added or restored: their heads are not in the heap

    def add(self, lane: Lane) -> None:
        """Add ``lane``; whatever it holds is looked at when somebody asks."""
        lane.rank = self.rank
        lane.entry_offset = _NONE
        self.lanes[lane.number] = lane
        self._unsorted = True

    def remove(self, lane: Lane) -> None:
        """Forget an empty lane."""
        self.lanes.pop(lane.number, None)

    def restored(self) -> None:
        """Note that a lane got what the store holds, which stays packed until somebody asks."""
        self._unsorted = True

    def settle(self, lane: Lane) -> None:
        """Sort ``lane`` in again: a delivery joined or left it."""
        if self._unsorted:
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
        """Return the lane whose head comes first in the log; None when nothing waits."""
        if self._unsorted:
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
                self.settle(lane)
        return None

    def first_with_qos0(self) -> Lane | None:
        """Return a lane in which QoS 0 waits, the same until that changes; None: there is none."""
        if self._unsorted:
            self._sort()
        for lane in self._with_qos0.values():
            return lane
        return None

    def _sort(self) -> None:
        """Make the heap anew."""
        self._unsorted = False
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
