"""The message queue: deliveries that wait for the window, or for the client.

::

      new ──▶ [ lane of the highest priority ·· head ] ─╮
      new ──▶ [ lane of topics without one   ·· head ] ─┴▶ in-flight window
                        │                      highest first; first in, first out in a lane;
                        │                      lanes of equal rank by log offset
                        ╰─ full: ``mqueue_overflow`` says which message is dropped

The queue holds at most ``max_len`` messages and ``max_bytes`` of them (0 = no limit). The policies
for a new message that does not fit:

=============== ========================================================================
``drop_oldest`` it is queued; QoS 0 is dropped first, else the oldest of the lowest priority
``drop_newest`` it is dropped
``reject``      the router refuses it before any session gets it; QoS 0 is dropped
``spill``       it is queued, because it is in the log; QoS 0 is dropped. A session that is not
                stored has no messages in the log: there the oldest is dropped, as above, and
                a queue without any limit is full at the length of a lane's head
=============== ========================================================================

A topic has one priority, so its messages keep their order. The caller counts dropped messages.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from penstock.engine.memory.pool import Pool
from penstock.engine.session.lane import HEAD_LEN_MAX, Lane, LanesByOffset
from penstock.engine.values.limits import DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.priorities import PRIORITY_MASK, PRIORITY_MAX, PRIORITY_SHIFT


@mypyc_attr(acyclic=True)
@final
class MessageQueue:
    """The queue of one session or group.

    Args:
        limits: the limits and the overflow policy.
        is_stored: whether the queue is stored, so that its messages are in the log.
        account: the memory account in which the deliveries count.
    """

    def __init__(self, limits: EngineLimits, is_stored: bool, account: Pool | None = None) -> None:
        self.size_bytes = 0  # of the queued messages
        self.has_overflowed = False  # a message did not fit; ``congestion`` resets it
        self._account = account or Pool()
        self._is_connected = not is_stored  # the client of a stored session may be offline
        self._first = Lane(0, 0, self._account, self._is_connected)
        self._lanes = {0: self._first}  # by number
        self._ranks: list[LanesByOffset] = []  # highest first; none while there is one lane
        self._count = 0
        self._qos0_count = 0
        self._is_stored = is_stored
        self.set_limits(limits)

    def set_limits(self, limits: EngineLimits) -> None:
        """Set the limits of the listener that the client uses."""
        self._default_rank = limits.mqueue_default_priority
        self.set_bounds(limits.max_mqueue_len, limits.max_mqueue_bytes, limits.mqueue_overflow)
        if self._first.rank != self._default_rank:
            for lane in self._lanes.values():
                lane.rank = self._rank(lane.number)
            self._ranks = []
            if len(self._lanes) > 1:
                for lane in self._lanes.values():
                    self._rank_of(lane).add(lane)

    def set_bounds(self, max_len: int, max_bytes: int, overflow: str) -> None:
        """Set the limits of length and bytes (0 = none) and the overflow policy."""
        self.max_len = max_len
        self.max_bytes = max_bytes
        self._drops_oldest = overflow == DROP_OLDEST
        self.rejects = overflow == REJECT  # with none of these flags: DROP_NEWEST
        self.spills = False
        if overflow == SPILL:
            self.spills = self._is_stored
            self._drops_oldest = not self._is_stored
            if max_len == 0 and max_bytes == 0:
                self.max_len = HEAD_LEN_MAX  # messages that are not in the log need a limit

    def become_stored(self) -> None:
        """Store messages that are queued from now on; the bodies of earlier ones stay in memory."""
        self._is_stored = True
        for lane in self._lanes.values():
            lane.keep_bodies()
        for rank in self._ranks:
            rank.mark_unsorted()

    def __len__(self) -> int:
        return self._count

    @property
    def lane_count(self) -> int:
        """Return the number of lanes, empty ones included."""
        return len(self._lanes)

    @property
    def first_lane(self) -> Lane:
        """Return the lane with number 0."""
        return self._first

    @property
    def qos0_count(self) -> int:
        """Return the number of queued QoS 0 deliveries."""
        return self._qos0_count

    def is_half_full(self, len_max: int) -> bool:
        """Return whether half of a limit is used.

        A queue without a limit of its length takes ``len_max`` for that limit.
        """
        if 2 * len(self) >= (self.max_len or len_max):
            return True
        return 0 < self.max_bytes <= 2 * self.size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a message of this size fits within both limits."""
        if 0 < self.max_len <= len(self):
            return False
        return not 0 < self.max_bytes < self.size_bytes + size_bytes

    def fits_when_empty(self, size_bytes: int) -> bool:
        """Return whether a message of this size would fit if the queue were empty."""
        return not 0 < self.max_bytes < size_bytes

    def must_refuse(self, size_bytes: int) -> bool:
        """Return whether the policy is to refuse a message of this size for which there is no room.

        One that would not fit into an empty queue is dropped instead: its publisher would wait for
        ever.
        """
        return self.rejects and self.fits_when_empty(size_bytes)

    def make_room(self, qos: int, size_bytes: int, priority: int, dropped: list[Delivery]) -> bool:
        """Make room for a new message that does not fit; return whether it may be queued.

        If the policy drops others for it, they are removed from the queue and added to ``dropped``;
        none of them has a higher priority.
        """
        self.has_overflowed = True
        if self.spills:
            return qos > 0 and self._account.has_room_for_packed()
        if not self._drops_oldest or 0 < self.max_bytes < size_bytes:
            return False
        while not self.has_room(size_bytes):
            removed = self._drop_one(self._rank(priority))
            if removed is None:
                return False
            dropped.append(removed)
        return True

    def trim(self, dropped: list[Delivery]) -> None:
        """Remove deliveries beyond the limits, if the policy drops the oldest, and add them to
        ``dropped``. "spill" does so, too, in a session that is not stored."""
        while self._drops_oldest and (
            0 < self.max_len < len(self) or 0 < self.max_bytes < self.size_bytes
        ):
            removed = self._drop_one(PRIORITY_MAX)
            if removed is None:
                return
            dropped.append(removed)

    def push(self, delivery: Delivery, number: int = 0) -> None:
        """Append ``delivery`` to the lane ``number``: a priority, 0..255, and a slot."""
        self.size_bytes += delivery.size_bytes
        self._count += 1
        if delivery.qos == 0:
            self._qos0_count += 1
        lane = self._first if number == 0 else self._lane(number)
        lane.push(delivery)
        if self._ranks:
            self._rank_of(lane).update(lane)

    def head(self) -> Delivery | None:
        """Return the next delivery to send, and leave it in place; None if there is none."""
        lane = self._next()
        return None if lane is None else lane.head()

    def rank_of_head(self) -> int:
        """Return the rank of the next delivery to send; the queue must not be empty."""
        lane = self._next()
        assert lane is not None
        return lane.rank

    def oldest(self) -> Delivery | None:
        """Return the delivery with the lowest log offset, of any priority, and leave it in place;
        None if the queue is empty."""
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
        """Remove and return the next delivery to send. The queue must not be empty.

        Raises:
            IndexError: the queue is empty.
        """
        lane = self._next()
        if lane is None:
            raise IndexError("the message queue is empty")
        return self._count_removed(lane, lane.pop())

    def first_qos0(self) -> Delivery | None:
        """Return the next QoS 0 delivery, even behind QoS 1 and 2, and leave it in place; None if
        there is none."""
        lane = self._next_qos0()
        return None if lane is None else lane.first_qos0()

    def take_qos0(self) -> None:
        """Remove the delivery that ``first_qos0`` returns."""
        lane = self._next_qos0()
        taken = None if lane is None else lane.drop_qos0()
        if lane is not None and taken is not None:
            self._count_removed(lane, taken)

    def qos0_offsets_without_body(self, limit: int) -> list[int]:
        """Return the log offsets of the next QoS 0 deliveries without a body in memory, at most
        ``limit``."""
        lane = self._next_qos0()
        return [] if lane is None else lane.qos0_offsets_without_body(limit)

    def lowest_offset(self, is_unordered: bool) -> int:
        """Return the lowest log offset that the queue needs, or -1.

        Args:
            is_unordered: whether offsets in a lane may not ascend, because members returned
                deliveries to their group.
        """
        lowest = -1
        for lane in self._lanes.values():
            offset = lane.lowest_offset(is_unordered, self._is_stored)
            if offset >= 0 and (lowest < 0 or offset < lowest):
                lowest = offset
        return lowest

    def offsets_without_body(self, limit: int) -> list[int]:
        """Return the log offsets of the next deliveries without a body in memory.

        Return at most ``limit``, with at most ``FETCHED_BYTES_MAX`` bytes, or a single larger one.
        """
        lane = self._next()
        return [] if lane is None else lane.offsets_without_body(limit)

    def supply(self, bodies: dict[int, Message]) -> None:
        """Set ``bodies``, by log offset, of the next deliveries."""
        for lane in self._lanes.values():
            lane.supply(bodies)

    def evict_to_log(self) -> None:
        """Release the bodies that the log has."""
        for lane in self._lanes.values():
            lane.evict_to_log()

    def client_disconnected(self) -> None:
        """Release bodies and pack deliveries: the client, or every member of the group, is
        offline."""
        self._is_connected = False
        for lane in self._lanes.values():
            lane.evict_to_log()
            lane.client_disconnected()

    def client_connected(self) -> None:
        """Keep bodies in memory again: the client, or a member of the group, is connected."""
        self._is_connected = True
        for lane in self._lanes.values():
            lane.client_connected()

    def restore(self, run: PackedRun, from_sequence: int) -> None:
        """Restore the deliveries of a stored run from the sequence ``from_sequence`` on."""
        position = max(0, from_sequence - run.first)
        if position < len(run):
            lane = self._lane(run.first >> PRIORITY_SHIFT)
            lane.restore(run, position)
            self._count += len(run) - position
            if self._ranks:
                self._rank_of(lane).mark_unsorted()
            self.size_bytes += run.size_bytes(position)

    def leave_account(self) -> None:
        """Subtract all deliveries from the account: the session or group ended."""
        for lane in self._lanes.values():
            lane.leave_account()

    def waiting(self, limit: int) -> list[Delivery]:
        """Return the next deliveries, at most ``limit``, and leave them in place.

        Packed deliveries are returned as copies.
        """
        found: list[Delivery] = []
        for lane in sorted(self._lanes.values(), key=_emptied_first):
            lane.append_waiting(found, limit)
        return found

    def lanes(self) -> list[Lane]:
        """Return all lanes."""
        return list(self._lanes.values())

    def has_in_lane(self, number: int) -> bool:
        """Return whether the lane ``number`` has deliveries."""
        lane = self._lanes.get(number)
        return lane is not None and lane.count > 0

    def remove(self, lane: Lane, delivery: Delivery) -> bool:
        """Remove ``delivery`` from ``lane``; return whether it was the head of the lane."""
        is_head = lane.head() is delivery
        if is_head:
            lane.pop()
        else:
            lane.remove(delivery)
        self._count_removed(lane, delivery)
        return is_head

    def deliveries_between(self, first: int, end: int) -> list[Delivery]:
        """Return the deliveries with sequences from ``first`` to below ``end``, all of one lane."""
        return self._lane(first >> PRIORITY_SHIFT).deliveries_between(first, end)

    def _next(self) -> Lane | None:
        """Return the lane whose head is sent next; None if the queue is empty."""
        if not self._ranks:
            return self._first if self._first.count > 0 else None
        for rank in self._ranks:
            lane = rank.first()
            if lane is not None:
                return lane
        return None

    def _next_qos0(self) -> Lane | None:
        """Return the lane whose first QoS 0 delivery is sent next; None if none waits."""
        if self._qos0_count == 0:
            return None
        if not self._ranks:
            return self._first
        for rank in self._ranks:
            lane = rank.first_with_qos0()
            if lane is not None:
                return lane
        return None

    def _drop_one(self, rank_max: int) -> Delivery | None:
        """Remove and return one delivery of a rank up to ``rank_max``; None if there is none.

        A QoS 0 delivery is removed first, else the oldest delivery of the lowest rank.
        """
        if not self._ranks:
            lane = self._first
            if lane.rank > rank_max or lane.count == 0:
                return None
            dropped = lane.drop_qos0()
            return self._count_removed(lane, lane.pop() if dropped is None else dropped)
        lowest: Lane | None = None
        for rank in reversed(self._ranks):
            if rank.rank > rank_max:
                break
            found = rank.first_with_qos0() if self._qos0_count > 0 else None
            dropped = None if found is None else found.drop_qos0()
            if found is not None and dropped is not None:
                return self._count_removed(found, dropped)
            if lowest is None:
                lowest = rank.first()
        return None if lowest is None else self._count_removed(lowest, lowest.pop())

    def _count_removed(self, lane: Lane, delivery: Delivery) -> Delivery:
        """Subtract ``delivery``, which was removed from ``lane``, and return it."""
        self.size_bytes -= delivery.size_bytes
        self._count -= 1
        assert min(self._count, self.size_bytes) >= 0, "a delivery was removed twice"
        if delivery.qos == 0:
            self._qos0_count -= 1
        if self._ranks:
            self._rank_of(lane).update(lane)
        return delivery

    def _rank(self, number: int) -> int:
        return (number & PRIORITY_MASK) or self._default_rank

    def _rank_of(self, lane: Lane) -> LanesByOffset:
        """Return the lanes of the rank of ``lane``; create them if there are none."""
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
            lane = Lane(number, self._rank(number), self._account, self._is_connected)
            self._lanes[number] = lane
            if not self._ranks:
                self._rank_of(self._first).add(self._first)
            self._rank_of(lane).add(lane)
        return lane


def _emptied_first(lane: Lane) -> int:
    return -lane.rank


def _highest_first(rank: LanesByOffset) -> int:
    return -rank.rank
