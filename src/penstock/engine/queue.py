"""The message queue: deliveries that wait for the window, or for the client.

::

      new ──▶ [ lane of the highest priority ·· head ] ─╮
      new ──▶ [ lane of topics without one   ·· head ] ─┴▶ in-flight window
                        │                      highest first; first in, first out in a lane;
                        │                      of equal ones (``shared_lanes``), by log offset
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

PRIORITY_SHIFT: Final = 48  # a sequence number carries the number of its lane above this bit
SLOT_SHIFT: Final = 8  # and that the slot above this one (``shared_lanes``), below the priority
PRIORITY_MASK: Final = (1 << SLOT_SHIFT) - 1

NO_BOUND: Final = 2**61  # as a room in bytes


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
            for lane in self._lanes:
                lane.rank = self._rank(lane.number)
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

    def room_bytes(self) -> int:
        """The size of the largest message that ``has_room``; below 0 if none has."""
        if 0 < self.max_len <= len(self):
            return -1
        return self.max_bytes - self.size_bytes if self.max_bytes > 0 else NO_BOUND

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
            goes = self._drop_for(self._rank(priority))
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

    def push(self, delivery: Delivery, number: int = 0) -> None:
        """Append ``delivery`` to the lane of this number: a priority, 0..255, and a slot."""
        self.size_bytes += delivery.size_bytes
        lane = self._first if number == 0 else self._lane(number)
        lane.push(delivery)

    def head(self) -> Delivery | None:
        """The next delivery to send, left in place."""
        lane = self._next()
        return None if lane is None else lane.head()

    def oldest(self) -> Delivery | None:
        """The delivery that is first in the log, of whatever priority, left in place."""
        found: Delivery | None = None
        for lane in self._lanes:
            head = lane.head()
            if head is not None and (found is None or head.offset < found.offset):
                found = head
        return found

    def pop(self) -> Delivery:
        """Take the next delivery to send. The queue must not be empty."""
        lane = self._next()
        if lane is None:
            raise IndexError("the message queue is empty")
        return self._taken(lane.pop())

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
            offset = lane.lowest_offset(mixed, self._stored)
            if offset >= 0 and (lowest < 0 or offset < lowest):
                lowest = offset
        return lowest

    def without_body(self, limit: int) -> list[int]:
        """Log offsets of the next deliveries whose body is not in memory, at most ``limit``."""
        lane = self._next()
        return [] if lane is None else lane.without_body(limit)

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

    def slots(self) -> set[int]:
        """Those in which something waits, but for 0."""
        return {lane.number >> SLOT_SHIFT for lane in self._lanes if lane.count > 0} - {0}

    def in_slot(self, slot: int, limit: int) -> list[Delivery]:
        """The next deliveries of one slot themselves, for a session that may give some away."""
        found: list[Delivery] = []
        for lane in self._lanes:
            if lane.number >> SLOT_SHIFT == slot and lane.count > 0:
                found.extend(lane.unpacked(limit - len(found)))
                if len(found) >= limit:
                    break
        return found

    def take(self, gone: set[Delivery], slots: set[int]) -> list[Delivery]:
        """Take those of ``gone`` that stand at the head of a lane, and them out of ``gone``."""
        taken: list[Delivery] = []
        for lane in self._lanes:
            if lane.number >> SLOT_SHIFT not in slots:
                continue
            head = lane.head()
            while head is not None and head in gone:
                gone.remove(head)
                taken.append(self._taken(lane.pop()))
                head = lane.head()
        return taken

    def remove(self, gone: set[Delivery], slots: set[int]) -> list[Delivery]:
        """Take ``gone``, some of ``in_slot``, out of the middle."""
        removed: list[Delivery] = []
        for lane in self._lanes:
            if gone and lane.number >> SLOT_SHIFT in slots and lane.count > 0:
                removed.extend(lane.remove(gone))
        for delivery in removed:
            self.size_bytes -= delivery.size_bytes
        return removed

    def forget_slots(self) -> None:
        """Nothing waits but in slot 0."""
        self._lanes = [
            lane for lane in self._lanes if lane.count > 0 or lane.number <= PRIORITY_MASK
        ]

    def between(self, first: int, end: int) -> list[Delivery]:
        """What waits with sequences from ``first`` to below ``end``, all of one lane."""
        return self._lane(first >> PRIORITY_SHIFT).between(first, end)

    def _next(self) -> Lane | None:
        """The lane whose head is sent next."""
        if len(self._lanes) == 1:
            return self._first if self._first.count > 0 else None
        found: Lane | None = None
        lowest = 0
        for lane in self._lanes:
            if lane.count == 0:
                continue
            if found is not None and lane.rank != found.rank:
                break
            head = lane.head()
            assert head is not None
            if found is None or head.offset < lowest:
                found = lane
                lowest = head.offset
        return found

    def _drop_for(self, rank: int) -> Delivery | None:
        """Take out QoS 0 first, else the oldest of the lowest lane that is not above ``rank``."""
        lowest: Lane | None = None
        for lane in reversed(self._lanes):
            if lane.rank > rank:
                break
            dropped = lane.drop_qos0()
            if dropped is not None:
                return self._taken(dropped)
            if lane.count > 0 and (lowest is None or _is_older(lane, lowest)):
                lowest = lane
        return None if lowest is None else self._taken(lowest.pop())

    def _taken(self, delivery: Delivery) -> Delivery:
        self.size_bytes -= delivery.size_bytes
        return delivery

    def _rank(self, number: int) -> int:
        return (number & PRIORITY_MASK) or self._default_rank

    def _lane(self, number: int) -> Lane:
        for lane in self._lanes:
            if lane.number == number:
                return lane
        lane = Lane(number, self._rank(number), self._kept)
        self._lanes.append(lane)
        self._lanes.sort(key=_emptied_first)
        return lane


def _emptied_first(lane: Lane) -> int:
    return -lane.rank


def _is_older(lane: Lane, other: Lane) -> bool:
    """Of two lanes with something in them: whether the first of ``lane`` came before."""
    if lane.rank != other.rank:
        return False
    mine, its = lane.head(), other.head()
    return mine is not None and its is not None and mine.offset < its.offset
