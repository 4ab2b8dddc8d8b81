"""Lanes of a stored queue for what came through shared subscriptions: one set for each of them.

::

      lane      0 ·· 255       by priority: ordinary subscriptions
              256 ·· 511       by priority: the shared subscription in slot 1
                  ···
            32512 ·· 32767                                        slot 127

What other members of a group take over is then the head of a lane, or stands behind what is too
large for them: nobody looks through the rest of the queue, and little that stays is stored anew
(``stored_queue``). A slot whose lanes are empty may serve another subscription.

Mixed with the ordinary ones is what no slot is left for, what a session that is not stored
holds, and what an older Penstock stored.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.queue import PRIORITY_SHIFT, SLOT_SHIFT, MessageQueue
from penstock.engine.runs import Run

SLOTS: Final = 127


@final
class SharedLanes:
    """The slots of one session's queue, by shared subscription.

    Args:
        queue: the queue.
    """

    def __init__(self, queue: MessageQueue) -> None:
        self.mixed = False  # ordinary lanes may hold some too
        self._queue = queue
        self._slots: dict[str, int] = {}

    def slot(self, topic_filter: str) -> int:
        """The slot for one more delivery of this shared subscription; 0 if none is left."""
        slot = self._slots.get(topic_filter)
        if slot is not None:
            return slot
        if len(self._slots) >= SLOTS:
            if not self._queue.slot_emptied:
                self.mixed = True
                return 0
            self._queue.slot_emptied = False
            used = self._queue.slots()
            self._slots = {name: known for name, known in self._slots.items() if known in used}
            if len(self._slots) >= SLOTS:
                self.mixed = True
                return 0
        taken = set(self._slots.values())
        slot = 1
        while slot in taken:
            slot += 1
        self._slots[topic_filter] = slot
        return slot

    def restore(self, run: Run) -> None:
        """The store holds ``run`` of what waits."""
        slot = run.first >> PRIORITY_SHIFT >> SLOT_SHIFT
        if slot == 0:
            self.mixed = self.mixed or run.is_shared()
            return
        for kind in run.table:
            if kind[3] is not None:
                self._slots[kind[3][0]] = slot

    def names(self) -> set[str]:
        """The shared subscriptions that have a slot."""
        return set(self._slots)

    def slots_of(self, filters: set[str] | None) -> list[int]:
        """The slots of these shared subscriptions, of all if None."""
        return [slot for name, slot in self._slots.items() if filters is None or name in filters]
