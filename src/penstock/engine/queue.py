"""The message queue: deliveries that wait for the window, or for the client.

::

      new ──▶ [ lane of the highest priority ·· head ] ─╮
      new ──▶ [ lane of topics without one   ·· head ] ─┴▶ in-flight window
                        │                      highest first; first in, first out in a lane
                        ╰─ full: ``mqueue_overflow`` says what goes

The queue holds at most ``max_len`` messages and ``max_bytes`` of them (0 = no limit).
What happens to one that does not fit:

=============== ========================================================================
``drop_oldest`` it is queued; QoS 0 goes first, else the oldest of the lowest priority
``drop_newest`` it is dropped
``reject``      the router refuses it before anyone gets it; QoS 0 is dropped
``spill``       it is queued, for the log holds it; QoS 0 is dropped. A session that is not
                stored has nothing in the log: there the oldest goes, as above. Without any
                limit the queue is full at the length of a lane's head
=============== ========================================================================

A topic has one priority, so its messages keep their order. The caller counts what is dropped.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.kept import Kept
from penstock.engine.lane import HEAD_LEN_MAX, Lane
from penstock.engine.limits import DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.message import Delivery, Message
from penstock.engine.priorities import PRIORITY_MAX
from penstock.engine.runs import Run

PRIORITY_SHIFT: Final = 48  # a sequence number carries the priority of its lane above this bit


@final
class MessageQueue:
    """The queue of one session.

    Args:
        limits: bounds and policy.
        stored: whether the session is, so that the log holds its messages.
        kept: what the queues of all sessions hold in memory.
    """

    def __init__(self, limits: EngineLimits, stored: bool, kept: Kept | None = None) -> None:
        self.size_bytes = 0  # of the messages that wait
        self.overflowed = False  # a message did not fit, since somebody looked
        self._kept = kept or Kept()
        self._first = Lane(0, 0, self._kept)
        self._lanes = [self._first]  # highest rank first
        self._stored = stored
        self.bound(limits)

    def bound(self, limits: EngineLimits) -> None:
        """Other bounds hold from here on: those of the listener the client came through."""
        self.max_len = limits.max_mqueue_len
        self.max_bytes = limits.max_mqueue_bytes
        self._default_rank = limits.mqueue_default_priority
        self._drops_oldest = limits.mqueue_overflow == DROP_OLDEST
        self.rejects = limits.mqueue_overflow == REJECT
        self.spills = False
        if limits.mqueue_overflow == SPILL:
            self.spills = self._stored
            self._drops_oldest = not self._stored
            if self.max_len == 0 and self.max_bytes == 0:
                self.max_len = HEAD_LEN_MAX  # what the log does not hold has a limit
        if self._first.rank != self._default_rank:
            self._first.rank = self._default_rank
            self._lanes.sort(key=_emptied_first)

    def __len__(self) -> int:
        if len(self._lanes) == 1:
            return self._first.count
        return sum([lane.count for lane in self._lanes])

    @property
    def qos0_count(self) -> int:
        """QoS 0 deliveries that wait."""
        if len(self._lanes) == 1:
            return self._first.qos0_count
        return sum([lane.qos0_count for lane in self._lanes])

    def is_half_full(self, len_max: int) -> bool:
        """Whether half of its bounds is taken; ``len_max`` counts where it has none in messages."""
        if 2 * len(self) >= (self.max_len or len_max):
            return True
        return 0 < self.max_bytes <= 2 * self.size_bytes

    def has_room(self, size_bytes: int, taken: int = 0) -> bool:
        """Whether a message of this size fits within both bounds, after ``taken`` like it."""
        if 0 < self.max_len <= len(self) + taken:
            return False
        return not 0 < self.max_bytes < self.size_bytes + (taken + 1) * size_bytes

    def ever_fits(self, size_bytes: int, taken: int) -> bool:
        """Whether ``has_room`` would say so if the queue were empty."""
        if 0 < self.max_len <= taken:
            return False
        return not 0 < self.max_bytes < (taken + 1) * size_bytes

    def make_room(self, qos: int, size_bytes: int, priority: int, dropped: list[Delivery]) -> bool:
        """Whether a new message that does not fit is queued all the same, by the policy.

        What has to go for it is taken out and added to ``dropped``. Nothing of a higher
        priority goes for it.
        """
        self.overflowed = True
        if self.spills:
            return qos > 0 and self._kept.has_room_to_pack()
        if not self._drops_oldest or 0 < self.max_bytes < size_bytes:
            return False
        while not self.has_room(size_bytes):
            goes = self._drop_for(self._default_rank if priority == 0 else priority)
            if goes is None:
                return False
            dropped.append(goes)
        return True

    def trim(self, dropped: list[Delivery]) -> None:
        """Take out what other, smaller bounds leave no room for, where the oldest goes."""
        while self._drops_oldest and (
            0 < self.max_len < len(self) or 0 < self.max_bytes < self.size_bytes
        ):
            goes = self._drop_for(PRIORITY_MAX)
            if goes is None:
                return
            dropped.append(goes)

    def push(self, delivery: Delivery, priority: int = 0) -> None:
        """Append ``delivery`` to the lane of ``priority``, 0..255."""
        self.size_bytes += delivery.size_bytes
        lane = self._first if priority == 0 else self._lane(priority)
        lane.push(delivery)

    def head(self) -> Delivery | None:
        """The next delivery to send, left in place."""
        for lane in self._lanes:
            if lane.count > 0:
                return lane.head()
        return None

    def pop(self) -> Delivery:
        """Take the next delivery to send. The queue must not be empty."""
        for lane in self._lanes:
            if lane.count > 0:
                return self._taken(lane.pop())
        raise IndexError("the message queue is empty")

    def first_qos0(self) -> Delivery | None:
        """The next QoS 0 delivery, wherever it stands, left in place."""
        for lane in self._lanes:
            found = lane.first_qos0()
            if found is not None:
                return found
        return None

    def take_qos0(self) -> None:
        """Take ``first_qos0`` out."""
        for lane in self._lanes:
            taken = lane.drop_qos0()
            if taken is not None:
                self._taken(taken)
                return

    def qos0_without_body(self, limit: int) -> list[int]:
        """Log offsets of ``first_qos0`` and what follows it, whose body is not in memory."""
        for lane in self._lanes:
            if lane.qos0_count > 0:
                return lane.qos0_without_body(limit)
        return []

    def lowest_offset(self, mixed: bool) -> int:
        """The lowest log offset in the queue, or -1 when it needs nothing from the log.

        Args:
            mixed: offsets may not ascend: some came from another member of a group.
        """
        lowest = -1
        for lane in self._lanes:
            offset = lane.lowest_offset(mixed)
            if offset >= 0 and (lowest < 0 or offset < lowest):
                lowest = offset
        return lowest

    def without_body(self, limit: int) -> list[int]:
        """Log offsets of the next deliveries whose body is not in memory, at most ``limit``."""
        for lane in self._lanes:
            if lane.count > 0:
                return lane.without_body(limit)
        return []

    def supply(self, bodies: dict[int, Message]) -> None:
        """Give the next deliveries their bodies, by log offset, as far as they are known."""
        for lane in self._lanes:
            lane.supply(bodies)

    def rest_in_log(self) -> None:
        """Let go of the bodies the log has."""
        for lane in self._lanes:
            lane.rest_in_log()

    def restore(self, run: Run, from_sequence: int) -> None:
        """Put back what the store holds of one run, as far as it has not left the queue."""
        position = max(0, from_sequence - run.first)
        if position < len(run):
            self._lane(run.first >> PRIORITY_SHIFT).restore(run, position)
            self.size_bytes += run.size_bytes(position)

    def ended(self) -> None:
        """The session is over, and nobody asks for what waits."""
        for lane in self._lanes:
            lane.ended()

    def waiting(self, limit: int) -> list[Delivery]:
        """The next deliveries, left in place; those that are packed as copies."""
        found: list[Delivery] = []
        for lane in self._lanes:
            lane.show(found, limit)
        return found

    def unpacked(self) -> list[Delivery]:
        """All deliveries themselves, for a session that may have to give some away."""
        found: list[Delivery] = []
        for lane in self._lanes:
            found.extend(lane.unpacked())
        return found

    def remove(self, gone: set[Delivery]) -> None:
        """Take ``gone``, some of ``unpacked``, out of the middle."""
        for lane in self._lanes:
            for delivery in lane.remove(gone):
                self.size_bytes -= delivery.size_bytes

    def priorities(self) -> list[int]:
        """Of the lanes there are."""
        return [lane.priority for lane in self._lanes]

    def lane(self, priority: int) -> list[Delivery]:
        """The deliveries of one priority, next first."""
        return self._lane(priority).unpacked()

    def _drop_for(self, rank: int) -> Delivery | None:
        """Take out QoS 0 first, else the oldest of the lowest lane that is not above ``rank``."""
        lowest: Lane | None = None
        for lane in reversed(self._lanes):
            if lane.rank > rank:
                break
            dropped = lane.drop_qos0()
            if dropped is not None:
                return self._taken(dropped)
            if lowest is None and lane.count > 0:
                lowest = lane
        return None if lowest is None else self._taken(lowest.pop())

    def _taken(self, delivery: Delivery) -> Delivery:
        self.size_bytes -= delivery.size_bytes
        return delivery

    def _lane(self, priority: int) -> Lane:
        for lane in self._lanes:
            if lane.priority == priority:
                return lane
        lane = Lane(priority, priority, self._kept)
        self._lanes.append(lane)
        self._lanes.sort(key=_emptied_first)
        return lane


def _emptied_first(lane: Lane) -> int:
    return -lane.rank
