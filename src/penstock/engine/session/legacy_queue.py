"""Deliveries of shared subscriptions that a store of an older version has in a member's queue.

::

      member's queue ─▶ runs ── the group exists ─────────▶ group's queue
                          ╰──── the group ended ──────────▶ the session's own lane

Today such deliveries wait in the queue of their group (docs/decisions/group_queues.md). A start
moves them there, oldest first, and removes them from the member's queue, both in the first commit.
"""

from __future__ import annotations

from typing import final

from penstock.engine.batch.packed_run import PackedRun
from penstock.engine.message import Delivery
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.queue import PRIORITY_MASK, PRIORITY_SHIFT, SLOT_SHIFT


@final
class LegacyQueue:
    """The deliveries of shared subscriptions in the queue of one member.

    Args:
        backlog: the backlog of the member's session.
    """

    def __init__(self, backlog: Backlog) -> None:
        self.runs: list[LegacyRun] = []
        self._backlog = backlog

    def add(self, run: PackedRun, head: int) -> None:
        """Add the deliveries of ``run`` from sequence ``head`` on, if some are of a group."""
        if run.end > head and run.is_shared():
            self.runs.append(LegacyRun(self, run, head))

    def enqueue(self, delivery: Delivery) -> None:
        """Append ``delivery`` to the session's own queue: its group does not exist any more."""
        if delivery.sequence >> PRIORITY_SHIFT >> SLOT_SHIFT > 0:
            priority = delivery.sequence >> PRIORITY_SHIFT & PRIORITY_MASK
            own = Delivery(
                None, delivery.offset, delivery.qos, delivery.retain, delivery.subscription_ids
            )
            own.size_bytes = delivery.size_bytes
            self._backlog.push(own, priority)

    def drop(self) -> None:
        """Remove the deliveries that were moved to groups from the member's queue."""
        stored_queue = self._backlog.stored_queue
        self._backlog.mark_changed()
        mixed: dict[int, set[int]] = {}
        for run in self.runs:
            if run.lane >> SLOT_SHIFT > 0:
                lane = stored_queue.lane(run.lane)
                lane.head = lane.next_sequence
            else:
                mixed.setdefault(run.lane, set()).update(run.moved_sequences)
        for number, sequences in mixed.items():
            for delivery in self._backlog.queue.remove_shared(number, sequences):
                stored_queue.note_removed(delivery.sequence)


@final
class LegacyRun:
    """A cursor over the deliveries of shared subscriptions in one run of a member's queue.

    Args:
        queue: the queue that the run belongs to.
        run: the deliveries; some may be of ordinary subscriptions of the member.
        head: the first sequence that still waits.
    """

    def __init__(self, queue: LegacyQueue, run: PackedRun, head: int) -> None:
        self.queue = queue
        self.lane = run.first >> PRIORITY_SHIFT
        self.priority = self.lane & PRIORITY_MASK
        self.moved_sequences: set[int] = (
            set()
        )  # sequences of the deliveries that were moved to groups
        self._run = run
        self._end = len(run)  # without deliveries that are added later
        self._position = max(0, head - run.first) - 1

    def advance(self) -> bool:
        """Move to the next shared delivery; return whether there is one."""
        run = self._run
        self._position += 1
        while self._position < self._end:
            if run.table[run.kinds[self._position]][3] is not None:
                return True
            self._position += 1
        return False

    @property
    def offset(self) -> int:
        """Return the log offset of the delivery at the cursor."""
        return self._run.offsets[self._position]

    def delivery(self) -> Delivery:
        """Return the delivery at the cursor."""
        return self._run.delivery(self._position)
