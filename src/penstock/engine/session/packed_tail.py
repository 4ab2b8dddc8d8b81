"""The tail of a lane: deliveries behind its head whose bodies are in the log, packed in runs.

::

      new ──▶ [ run · run · run ]──▶ moved to the head in portions
                  ╰ between runs: deliveries that are not packed, of QoS 0 or not in the log

The body of a packed delivery is in the log only, see ``packed_run``.
"""

from __future__ import annotations

from collections import deque
from typing import final

from penstock.engine.values.fifo import Fifo
from penstock.engine.values.message import Delivery
from penstock.engine.values.packed_run import PackedRun


@final
class PackedTail:
    """The deliveries behind the head of a lane; a lane without any has no tail."""

    def __init__(self) -> None:
        self._runs: deque[PackedRun] = deque()
        self._at = 0  # position in the first run
        self._between: deque[tuple[int, Delivery]] = deque()  # (sequence that follows, delivery)

    @property
    def is_empty(self) -> bool:
        """Return whether the tail has no runs; then it has no deliveries at all."""
        return len(self._runs) == 0

    def packed_count(self) -> int:
        """Return how many deliveries are packed in runs."""
        return sum([len(run) for run in self._runs]) - self._at

    def push(self, delivery: Delivery) -> bool:
        """Append ``delivery``; return whether it was packed.

        The first delivery of a tail must have a sequence number.
        """
        runs = self._runs
        if delivery.sequence == 0:
            self._between.append((runs[-1].end, delivery))
            return False
        if not runs or not runs[-1].put(delivery):
            assert not runs or delivery.sequence >= runs[-1].end, "sequences ascend in a lane"
            run = PackedRun(delivery.sequence)
            run.put(delivery)
            runs.append(run)
        return True

    def restore(self, run: PackedRun, position: int) -> None:
        """Append a run of the store; the deliveries of the first run before ``position`` are left
        out."""
        if not self._runs:
            self._at = position
        self._runs.append(run)

    def unpack(self, head: Fifo[Delivery], count_max: int) -> int:
        """Move the next deliveries to ``head``, at most ``count_max`` packed ones; return how many
        packed ones were moved."""
        between = self._between
        run = self._runs[0]
        start = self._at
        stop = min(len(run), start + count_max)
        for position in range(start, stop):
            while between and between[0][0] <= run.first + position:
                head.append(between.popleft()[1])
            head.append(run.delivery(position))
        self._at = stop
        if stop == len(run):
            self._runs.popleft()
            self._at = 0
        if not self._runs:
            for _, delivery in between:
                head.append(delivery)
            between.clear()
        return stop - start

    def lowest_offset(self, is_unordered: bool, is_stored: bool) -> int:
        """Return the lowest log offset that is needed, or -1; see
        ``MessageQueue.lowest_offset``."""
        if not is_unordered:
            return self._runs[0].offsets[self._at]
        lowest = -1
        for _, delivery in self._between:
            is_lower = lowest < 0 or delivery.offset < lowest
            if is_lower and delivery.offset >= 0 and delivery.needs_log(is_stored):
                lowest = delivery.offset
        at = self._at
        for run in self._runs:
            offset = min(run.offsets[at:])
            if lowest < 0 or offset < lowest:
                lowest = offset
            at = 0
        return lowest

    def deliveries_between(self, first: int, end: int) -> list[Delivery]:
        """Return copies of the packed deliveries with sequences from ``first`` to below ``end``."""
        found: list[Delivery] = []
        at = self._at
        for run in self._runs:
            if run.first >= end:
                break
            start = max(at, first - run.first)
            stop = min(len(run), end - run.first)
            found.extend([run.delivery(position) for position in range(start, stop)])
            at = 0
        return found

    def unpacked_deliveries(self) -> list[Delivery]:
        """Return the deliveries that are not packed, left in place; some may be marked as gone."""
        return [delivery for _, delivery in self._between]

    def delete_removed(self) -> None:
        """Remove the deliveries that are marked as gone."""
        self._between = deque([pair for pair in self._between if not pair[1].is_removed])

    def append_waiting(self, found: list[Delivery], limit: int) -> None:
        """Append the next deliveries to ``found``, until ``found`` has ``limit``; deliveries that
        are not packed come first."""
        for _, delivery in self._between:
            if not delivery.is_removed and len(found) < limit:
                found.append(delivery)
        at = self._at
        for run in self._runs:
            stop = min(len(run), at + limit - len(found))
            found.extend([run.delivery(position) for position in range(at, stop)])
            at = 0
