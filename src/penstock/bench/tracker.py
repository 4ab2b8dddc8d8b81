"""The sequences that one subscriber received from one publisher: repeats, gaps and order.

::

      sequences   0 1 2 3 │ 4 5 │ 6 7 8 9 │ 10 …
                  received│ gap │received │ next: in order
                             ╰─ out of order, and the gap is smaller; what is in no gap: twice

Where order holds and nothing is lost, one number is enough. The latest ``GAPS_MAX`` gaps are kept;
a sequence in an older one is lost for good, and would count as a duplicate if it came.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

GAPS_MAX: Final = 10_000


@final
class Tracker:
    """Tracks the sequences of one publisher, from 0, as they arrive.

    Attributes:
        next: the sequence after the greatest received.
        received: the number of different sequences received.
        duplicated: the number of sequences received again.
        out_of_order: how many of ``received`` came after a greater one.
    """

    def __init__(self) -> None:
        self.next = 0
        self.received = 0
        self.duplicated = 0
        self.out_of_order = 0
        self._starts: list[int] = []  # of gaps, ascending
        self._ends: list[int] = []  # ends of those gaps, exclusive
        self._forgotten = 0  # sequences in gaps that are no longer tracked

    def take(self, sequence: int) -> bool:
        """Record a sequence; return whether it came for the first time."""
        if sequence >= self.next:
            if sequence > self.next:
                self._open_gap(sequence)
            self.next = sequence + 1
        elif self._close_gap(sequence):
            self.out_of_order += 1
        else:
            self.duplicated += 1
            return False
        self.received += 1
        return True

    def missing(self, end: int) -> int:
        """Return how many sequences below ``end`` did not come, all of the forgotten gaps among
        them."""
        count = self._forgotten + max(0, end - self.next)
        for start, gap_end in zip(self._starts, self._ends, strict=True):
            count += max(0, min(gap_end, end) - start)
        return count

    def _open_gap(self, end: int) -> None:
        self._starts.append(self.next)
        self._ends.append(end)
        if len(self._starts) > GAPS_MAX:
            self._forgotten += self._ends.pop(0) - self._starts.pop(0)

    def _close_gap(self, sequence: int) -> bool:
        """Remove ``sequence`` from its gap; return whether it was in one."""
        at = bisect_right(self._starts, sequence) - 1
        if at < 0 or sequence >= self._ends[at]:
            return False
        start, end = self._starts[at], self._ends[at]
        left = [(start, sequence)] if start < sequence else []
        right = [(sequence + 1, end)] if sequence + 1 < end else []
        self._starts[at : at + 1] = [first for first, _ in left + right]
        self._ends[at : at + 1] = [last for _, last in left + right]
        return True
