"""The message numbers (sequences) that one subscriber received from one publisher: duplicates, gaps
and order.

::

      sequences   0 1 2 3 │ 4 5 │ 6 7 8 9 │ 10 …
                  received│ gap │received │ next: in order
                             ╰─ out of order, and the gap shrinks; a sequence in no gap: duplicate

While messages come in order and none is lost, one number is the whole state. The latest
``GAPS_MAX`` gaps are tracked; a sequence in an older gap counts as lost for good, and as a
duplicate if it is received after all.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

GAPS_MAX: Final = 10_000


@final
class SequenceTracker:
    """Tracks the sequences of one publisher, from 0, as they arrive.

    Attributes:
        next_sequence: the sequence after the greatest received.
        received: the number of different sequences received.
        duplicated: the number of sequences received again.
        out_of_order: how many of ``received`` came after a greater one.
    """

    def __init__(self) -> None:
        self.next_sequence = 0
        self.received = 0
        self.duplicated = 0
        self.out_of_order = 0
        self._starts: list[int] = []  # starts of gaps, ascending
        self._ends: list[int] = []  # ends of the same gaps, exclusive
        self._untracked_count = 0  # sequences in gaps that are no longer tracked

    def receive(self, sequence: int) -> bool:
        """Record a sequence; return whether it was received for the first time."""
        if sequence >= self.next_sequence:
            if sequence > self.next_sequence:
                self._open_gap(sequence)
            self.next_sequence = sequence + 1
        elif self._fill_gap(sequence):
            self.out_of_order += 1
        else:
            self.duplicated += 1
            return False
        self.received += 1
        return True

    def missing(self, end: int) -> int:
        """Return how many sequences below ``end`` were not received; all sequences of gaps that are
        no longer tracked count as missing."""
        count = self._untracked_count + max(0, end - self.next_sequence)
        for start, gap_end in zip(self._starts, self._ends, strict=True):
            count += max(0, min(gap_end, end) - start)
        return count

    def _open_gap(self, end: int) -> None:
        self._starts.append(self.next_sequence)
        self._ends.append(end)
        if len(self._starts) > GAPS_MAX:
            self._untracked_count += self._ends.pop(0) - self._starts.pop(0)

    def _fill_gap(self, sequence: int) -> bool:
        """Remove ``sequence`` from its gap; return whether it was in a gap."""
        index = bisect_right(self._starts, sequence) - 1
        if index < 0 or sequence >= self._ends[index]:
            return False
        start, end = self._starts[index], self._ends[index]
        left = [(start, sequence)] if start < sequence else []
        right = [(sequence + 1, end)] if sequence + 1 < end else []
        self._starts[index : index + 1] = [first for first, _ in left + right]
        self._ends[index : index + 1] = [last for _, last in left + right]
        return True
