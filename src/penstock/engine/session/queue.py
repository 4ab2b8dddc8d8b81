"""The message queue: deliveries that wait for the window, or for the client.

::

      new ──▶ [ lane of the highest priority ·· head ] ─╮
      new ──▶ [ lane of topics without one   ·· head ] ─┴▶ in-flight window
                        │                      highest first; first in, first out in a lane;
                        │                      of equal ones by log offset
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

from penstock.engine.batch.packed_run import PackedRun
from penstock.engine.limits import DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.memory.accounts import Account
from penstock.engine.memory.budget import MemoryBudget
from penstock.engine.message import Delivery, Message
from penstock.engine.priorities import PRIORITY_MAX
from penstock.engine.session.lane import HEAD_LEN_MAX, Lane
from penstock.engine.session.lanes_by_offset import LanesByOffset

PRIORITY_SHIFT: Final = 48  # a sequence number carries the number of its lane above this bit
SLOT_SHIFT: Final = 8  # and that the slot above this one (``group_queue``), below the priority
PRIORITY_MASK: Final = (1 << SLOT_SHIFT) - 1


@final
class MessageQueue:
    """The queue of one session.

    Args:
        limits: bounds and policy.
        stored: whether the session is, so that the log holds its messages.
        account: the account of its user's queues.
    """

    def __init__(self, limits: EngineLimits, stored: bool, account: Account | None = None) -> None:
        self.size_bytes = 0  # of the messages that wait
        self.overflowed = False  # a message did not fit, since somebody looked
        self._account = account or Account("", MemoryBudget())
        self._wakes = not stored  # a stored session may be away
        self._first = Lane(0, 0, self._account, self._wakes)
        self._lanes = {0: self._first}  # by number
        self._ranks: list[LanesByOffset] = []  # highest first; none while there is one lane
        self._count = 0
        self._qos0_count = 0
        self._stored = stored
        self.bound(limits)

    def bound(self, limits: EngineLimits) -> None:
        """Take over other bounds: those of the listener that the client came through."""
        self._default_rank = limits.mqueue_default_priority
        self.bound_to(limits.max_mqueue_len, limits.max_mqueue_bytes, limits.mqueue_overflow)
        if self._first.rank != self._default_rank:
            for lane in self._lanes.values():
                lane.rank = self._rank(lane.number)
            self._ranks = []
            if len(self._lanes) > 1:
                for lane in self._lanes.values():
                    self._rank_of(lane).add(lane)

    def bound_to(self, max_len: int, max_bytes: int, overflow: str) -> None:
        """Let these bounds and this policy hold from here on."""
        self.max_len = max_len
        self.max_bytes = max_bytes
        self._drops_oldest = overflow == DROP_OLDEST
        self.rejects = overflow == REJECT
        self.spills = False
        if overflow == SPILL:
            self.spills = self._stored
            self._drops_oldest = not self._stored
            if max_len == 0 and max_bytes == 0:
                self.max_len = HEAD_LEN_MAX  # what the log does not hold has a limit

    def become_stored(self) -> None:
        """Rely on the log for what comes from now on; it may not have what waits already."""
        self._stored = True
        for lane in self._lanes.values():
            lane.keep_bodies()
        for rank in self._ranks:
            rank.restored()

    def __len__(self) -> int:
        return self._count

    @property
    def lane_count(self) -> int:
        """Return how many lanes there are, empty ones too."""
        return len(self._lanes)

    @property
    def first_lane(self) -> Lane:
        """Return the lane 0."""
        return self._first

    @property
    def qos0_count(self) -> int:
        """QoS 0 deliveries that wait."""
        return self._qos0_count

    def is_half_full(self, len_max: int) -> bool:
        """Return whether half of its bounds is taken; ``len_max`` counts where it has none in
        messages."""
        if 2 * len(self) >= (self.max_len or len_max):
            return True
        return 0 < self.max_bytes <= 2 * self.size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a message of this size fits within both bounds."""
        if 0 < self.max_len <= len(self):
            return False
        return not 0 < self.max_bytes < self.size_bytes + size_bytes

    def ever_fits(self, size_bytes: int) -> bool:
        """Return whether ``has_room`` would say so if the queue were empty."""
        return not 0 < self.max_bytes < size_bytes

    def make_room(self, qos: int, size_bytes: int, priority: int, dropped: list[Delivery]) -> bool:
        """Return whether a new message that does not fit is queued all the same, by the policy.

        What has to go for it is taken out and added to ``dropped``. Nothing of a higher
        priority goes for it.
        """
        self.overflowed = True
        if self.spills:
            return qos > 0 and self._account.has_room_to_pack()
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
        self._count += 1
        if delivery.qos == 0:
            self._qos0_count += 1
        lane = self._first if number == 0 else self._lane(number)
        lane.push(delivery)
        if self._ranks:
            self._rank_of(lane).settle(lane)

    def head(self) -> Delivery | None:
        """Return the next delivery to send, left in place."""
        lane = self._next()
        return None if lane is None else lane.head()

    def rank_of_head(self) -> int:
        """Return the rank of what is sent next; something must wait."""
        lane = self._next()
        assert lane is not None
        return lane.rank

    def oldest(self) -> Delivery | None:
        """Return the delivery that is first in the log, of whatever priority, left in place."""
        if not self._ranks:
            return self._first.head()
        found: Delivery | None = None
        for rank in self._ranks:
            lane = rank.first()
            head = None if lane is None else lane.head()
            if head is not None and (found is None or head.offset < found.offset):
                found = head
        return found

    def pop(self) -> Delivery:
        """Take the next delivery to send. The queue must not be empty."""
        lane = self._next()
        if lane is None:
            raise IndexError("the message queue is empty")
        return self._left(lane, lane.pop())

    def first_qos0(self) -> Delivery | None:
        """Return the next QoS 0 delivery, wherever it stands, left in place."""
        lane = self._next_qos0()
        return None if lane is None else lane.first_qos0()

    def take_qos0(self) -> None:
        """Take ``first_qos0`` out."""
        lane = self._next_qos0()
        taken = None if lane is None else lane.drop_qos0()
        if lane is not None and taken is not None:
            self._left(lane, taken)

    def qos0_without_body(self, limit: int) -> list[int]:
        """Log offsets of ``first_qos0`` and what follows it, whose body is not in memory."""
        lane = self._next_qos0()
        return [] if lane is None else lane.qos0_without_body(limit)

    def lowest_offset(self, mixed: bool) -> int:
        """Return the lowest log offset in the queue, or -1 when it needs nothing from the log.

        Args:
            mixed: offsets may not ascend: some came back to a group.
        """
        lowest = -1
        for lane in self._lanes.values():
            offset = lane.lowest_offset(mixed, self._stored)
            if offset >= 0 and (lowest < 0 or offset < lowest):
                lowest = offset
        return lowest

    def without_body(self, limit: int) -> list[int]:
        """Log offsets of the next deliveries whose body is not in memory: at most ``limit``, and
        of so many bytes, or of one."""
        lane = self._next()
        return [] if lane is None else lane.without_body(limit)

    def supply(self, bodies: dict[int, Message]) -> None:
        """Give the next deliveries their bodies, by log offset, as far as they are known."""
        for lane in self._lanes.values():
            lane.supply(bodies)

    def evict_to_log(self) -> None:
        """Let go of the bodies the log has."""
        for lane in self._lanes.values():
            lane.evict_to_log()

    def sleep(self) -> None:
        """Pack what waits: the client is away, and the session stored."""
        self._wakes = False
        for lane in self._lanes.values():
            lane.evict_to_log()
            lane.sleep()

    def wake(self) -> None:
        """Keep bodies in memory again: the client is back."""
        self._wakes = True
        for lane in self._lanes.values():
            lane.wake()

    def restore(self, run: PackedRun, from_sequence: int) -> None:
        """Put back what the store holds of one run, as far as it has not left the queue."""
        position = max(0, from_sequence - run.first)
        if position < len(run):
            lane = self._lane(run.first >> PRIORITY_SHIFT)
            lane.restore(run, position)
            self._count += len(run) - position
            if self._ranks:
                self._rank_of(lane).restored()
            self.size_bytes += run.size_bytes(position)

    def ended(self) -> None:
        """Forget what waits: the session is over."""
        for lane in self._lanes.values():
            lane.ended()

    def waiting(self, limit: int) -> list[Delivery]:
        """Return the next deliveries, left in place; those that are packed as copies."""
        found: list[Delivery] = []
        for lane in sorted(self._lanes.values(), key=_emptied_first):
            lane.show(found, limit)
        return found

    def lanes(self) -> list[Lane]:
        """Return all lanes."""
        return list(self._lanes.values())

    def is_in(self, number: int) -> bool:
        """Return whether anything waits in the lane of this number."""
        lane = self._lanes.get(number)
        return lane is not None and lane.count > 0

    def take_out(self, lane: Lane, delivery: Delivery) -> bool:
        """Remove ``delivery`` from ``lane``; return whether it was the head of the lane."""
        is_head = lane.head() is delivery
        if is_head:
            lane.pop()
        else:
            lane.take_out(delivery)
        self._left(lane, delivery)
        return is_head

    def take_out_shared(self, number: int, sequences: set[int]) -> list[Delivery]:
        """Take out of one lane what an earlier store has there for groups."""
        lane = self._lane(number)
        taken: list[Delivery] = []
        position = 0
        while len(taken) < len(sequences):
            delivery = lane.look(position)
            if delivery is None:
                break
            position += 1
            if not delivery.gone and delivery.sequence in sequences:
                taken.append(delivery)
        for delivery in taken:
            self.take_out(lane, delivery)
        return taken

    def between(self, first: int, end: int) -> list[Delivery]:
        """Return what waits with sequences from ``first`` to below ``end``, all of one lane."""
        return self._lane(first >> PRIORITY_SHIFT).between(first, end)

    def _next(self) -> Lane | None:
        """Return the lane whose head is sent next."""
        if not self._ranks:
            return self._first if self._first.count > 0 else None
        for rank in self._ranks:
            lane = rank.first()
            if lane is not None:
                return lane
        return None

    def _next_qos0(self) -> Lane | None:
        """Return the lane whose QoS 0 is sent next."""
        if self._qos0_count == 0:
            return None
        if not self._ranks:
            return self._first
        for rank in self._ranks:
            lane = rank.first_with_qos0()
            if lane is not None:
                return lane
        return None

    def _drop_for(self, rank_max: int) -> Delivery | None:
        """Take out QoS 0 first, else the oldest of the lowest rank, none above ``rank_max``."""
        if not self._ranks:
            lane = self._first
            if lane.rank > rank_max or lane.count == 0:
                return None
            dropped = lane.drop_qos0()
            return self._left(lane, lane.pop() if dropped is None else dropped)
        lowest: Lane | None = None
        for rank in reversed(self._ranks):
            if rank.rank > rank_max:
                break
            found = rank.first_with_qos0() if self._qos0_count > 0 else None
            dropped = None if found is None else found.drop_qos0()
            if found is not None and dropped is not None:
                return self._left(found, dropped)
            if lowest is None:
                lowest = rank.first()
        return None if lowest is None else self._left(lowest, lowest.pop())

    def _left(self, lane: Lane, delivery: Delivery) -> Delivery:
        """Count ``delivery`` out, which left ``lane``."""
        self.size_bytes -= delivery.size_bytes
        self._count -= 1
        assert min(self._count, self.size_bytes) >= 0, "a delivery left twice"
        if delivery.qos == 0:
            self._qos0_count -= 1
        if self._ranks:
            self._rank_of(lane).settle(lane)
        return delivery

    def _rank(self, number: int) -> int:
        return (number & PRIORITY_MASK) or self._default_rank

    def _rank_of(self, lane: Lane) -> LanesByOffset:
        """Return the rank of ``lane``, made if it is not there."""
        for rank in self._ranks:
            if rank.rank == lane.rank:
                return rank
        made = LanesByOffset(lane.rank)
        self._ranks.append(made)
        self._ranks.sort(key=_highest_first)
        return made

    def _lane(self, number: int) -> Lane:
        lane = self._lanes.get(number)
        if lane is None:
            lane = Lane(number, self._rank(number), self._account, self._wakes)
            self._lanes[number] = lane
            if not self._ranks:
                self._rank_of(self._first).add(self._first)
            self._rank_of(lane).add(lane)
        return lane


def _emptied_first(lane: Lane) -> int:
    return -lane.rank


def _highest_first(rank: LanesByOffset) -> int:
    return -rank.rank
