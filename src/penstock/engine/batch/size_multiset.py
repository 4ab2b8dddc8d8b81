"""The sizes of the messages that wait in one line, of which the smallest is wanted."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import final

from penstock.engine.limits import OUT_OF_DATE_MAX


@final
class WaitingSizes:
    """A multiset of sizes in bytes."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # how many there are of each size
        self._heap: list[int] = []  # all sizes, and some that were removed

    def add(self, size_bytes: int) -> None:
        """Add one size."""
        count = self._counts.get(size_bytes, 0)
        self._counts[size_bytes] = count + 1
        if count == 0:
            heappush(self._heap, size_bytes)

    def remove(self, size_bytes: int) -> None:
        """Remove one size, which must be there."""
        count = self._counts[size_bytes] - 1
        if count > 0:
            self._counts[size_bytes] = count
            return
        del self._counts[size_bytes]
        if len(self._heap) > 2 * len(self._counts) + OUT_OF_DATE_MAX:
            self._heap = list(self._counts)
            heapify(self._heap)

    def smallest(self) -> int:
        """Return the smallest size; 0 if there is none."""
        heap = self._heap
        while heap and heap[0] not in self._counts:
            heappop(heap)
        return heap[0] if heap else 0
