"""The queue of one shared subscription: messages wait in it until a member has room.

::

      put ──────▶ [ slot 0, or by hash 1 ·· 126 ] ─╮
      put_back ─▶ [ slot 127: the front         ] ─┴▶ find the first for this member ─▶ take

It is a session's queue with other lanes, stored in the same way: docs/decisions/group_queues.md. A
slot has one lane for each priority; of equal priority, the lane of the front comes first. A member
skips messages that it may not take, so messages are also removed from the middle of a lane. A
member takes no message without a body in memory: such bodies are requested from the log, and
``supply`` lets the group offer the messages.

The queue of a group without stored sessions is in memory only. It is stored from the first member
with a stored session on, until the group ends.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.engine_context import EngineContext, GroupSource
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.group_members import FRONT, Member
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.lane import Lane
from penstock.engine.values import drop_reasons
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import (
    DROP_NEWEST,
    DROP_OLDEST,
    FETCHED_BYTES_MAX,
    NEVER_EXPIRES_S,
    REJECT,
    SPILL,
    EngineLimits,
)
from penstock.engine.values.message import Delivery, Message, routing_key_of
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.priorities import PRIORITY_MASK, PRIORITY_SHIFT, SLOT_SHIFT
from penstock.engine.values.records import GROUP_KEY_PREFIX, SessionRecord, SessionState

SCAN_MAX: Final = 1000  # messages of a lane that are checked for a member
LOOKS_PER_UNIT: Final = 8  # checked messages that count as one unit of ``work_budget``

_BODIES_AT_ONCE_MAX: Final = 256


@final
class GroupBounds:
    """The limits of a group's queue: the sums of its members' limits, and a common policy."""

    def __init__(self) -> None:
        self._members = 0
        self._len = 0  # sum of the members' limits
        self._len_without_limit = 0  # number of members without such a limit
        self._bytes = 0  # sum of the members' limits
        self._bytes_without_limit = 0  # number of members without such a limit
        self._members_keeping_qos0 = 0  # number of members with ``mqueue_store_qos0``
        self._by_policy = {DROP_OLDEST: 0, DROP_NEWEST: 0, REJECT: 0, SPILL: 0}

    def count(self, limits: EngineLimits, step: int) -> None:
        """Add a member with these limits (``step`` 1), or remove one (-1)."""
        self._members += step
        self._len += step * limits.max_mqueue_len
        self._bytes += step * limits.max_mqueue_bytes
        if limits.max_mqueue_len == 0:
            self._len_without_limit += step
        if limits.max_mqueue_bytes == 0:
            self._bytes_without_limit += step
        if limits.mqueue_store_qos0:
            self._members_keeping_qos0 += step
        self._by_policy[limits.mqueue_overflow] += step

    @property
    def len_max(self) -> int:
        """Return how many messages may wait; 0 = no limit."""
        return 0 if self._len_without_limit > 0 else self._len

    @property
    def bytes_max(self) -> int:
        """Return how many bytes of messages may wait; 0 = no limit."""
        return 0 if self._bytes_without_limit > 0 else self._bytes

    @property
    def keeps_qos0(self) -> bool:
        """Return whether any member's limits let QoS 0 wait (``mqueue_store_qos0``)."""
        return self._members_keeping_qos0 > 0

    @property
    def overflow(self) -> str:
        """Return the overflow policy of the group, which follows from those of its members.

        It is ``REJECT`` if all members have that policy; else the first of ``SPILL``,
        ``DROP_OLDEST`` and ``DROP_NEWEST`` that a member has.
        """
        policies = self._by_policy
        if policies[REJECT] == self._members:
            return REJECT
        for policy in (SPILL, DROP_OLDEST):
            if policies[policy] > 0:
                return policy
        return DROP_NEWEST


@final
class GroupQueue(StoredState):
    """The queue of one shared subscription.

    Args:
        topic_filter: ``$share/{group}/{filter}``.
        owner: the group, which offers queued messages to its members once bodies were read.
        context: the parts of the broker that it acts on.
        limits: the limits of its first member, with the priorities of topics.
        drops: the counts of dropped messages.
        account: the account of its first member, in which it counts.
    """

    def __init__(
        self,
        topic_filter: str,
        owner: GroupSource,
        context: EngineContext,
        limits: EngineLimits,
        drops: Drops,
        account: Pool,
    ) -> None:
        self.name = topic_filter  # in events, drops and the store
        self.account = account
        self.backlog = Backlog(topic_filter, False, context, limits, drops, account, True)
        self.backlog.is_offline = False  # a member is connected: bodies stay in memory
        self.number = 0  # key of its stored state; 0 = it is not stored
        self.bounds = GroupBounds()
        self.requested_offsets: list[int] = []  # log offsets of the requested bodies
        self._owner: GroupSource | None = owner
        self._requested: list[tuple[Lane, Delivery]] = []  # deliveries whose bodies are requested
        self._fetching_bytes = 0  # counted in the budget for these bodies
        self._ordered_lanes: list[Lane] = []  # all lanes, in the order of the search
        self._queue = self.backlog.queue
        self._found_lane = self._queue.first_lane  # the lane of the delivery that ``find`` found
        self._context = context
        self._drops = drops
        account.count_group(1)
        self.backlog.owner = self  # until ``end``

    @property
    def is_online(self) -> bool:
        """Return whether a member is connected."""
        return not self.backlog.is_offline

    @property
    def queue_length(self) -> int:
        """Return the number of queued messages."""
        return len(self._queue)

    def has_memory(self) -> bool:
        """Return whether memory has room for one more QoS 1 or 2 message."""
        return self.backlog.has_memory()

    def recheck_blocked_publishers(self) -> None:
        """Check every publisher that this queue blocks again: limits, subscriptions or permissions
        changed."""
        self.backlog.recheck_blocked_publishers()

    # -- the group ---------------------------------------------------------------------

    def update_bounds(self) -> None:
        """Apply the limits and the policy of ``bounds``; no queued message is dropped."""
        bounds = self.bounds
        self._queue.set_bounds(bounds.len_max, bounds.bytes_max, bounds.overflow)
        self.recheck_blocked_publishers()

    def store(self) -> None:
        """Store messages that are queued from now on, because a member has a stored session."""
        if not self.backlog.is_stored:
            self._become_stored(self._context.batch.take_number())
            self._context.batch.put_session(
                SessionRecord(
                    GROUP_KEY_PREFIX + self.name,
                    self.number,
                    NEVER_EXPIRES_S,
                    0,
                    is_owner_known=True,
                    account=self.account.key,
                )
            )

    def _become_stored(self, number: int) -> None:
        self.number = number
        self.backlog.is_stored = True
        self._queue.become_stored()

    def go_offline(self) -> None:
        """Release bodies that are in the log: no member is connected any more."""
        self.backlog.is_offline = True
        self._stop_fetching()
        if self.backlog.is_stored:
            self._queue.client_disconnected()

    def go_online(self) -> None:
        """Keep bodies in memory again: a member is connected."""
        self.backlog.is_offline = False
        self._queue.client_connected()

    def end(self) -> None:
        """Drop and count all queued messages, because the last member left."""
        self._stop_fetching()
        self._owner = None
        self.backlog.drop_all([])
        self.account.count_group(-1)
        if self.backlog.is_stored:
            self._context.batch.end_session(GROUP_KEY_PREFIX + self.name, self.number)
        self.backlog.is_stored = False
        self.recheck_blocked_publishers()
        self.backlog.owner = None

    # -- messages ----------------------------------------------------------------------

    def put(self, message: Message, slot: int, is_planned: bool) -> bool:
        """Queue ``message``, or drop a message as the overflow policy says; return whether the
        queue grew.

        A message that ``is_planned`` was accepted by ``Router.plan``, so it is queued even if other
        messages took the room since then.
        """
        delivery = Delivery(message, message.offset, message.qos, message.retain)
        delivery.size_bytes = message.size_bytes()
        before = len(self._queue)
        is_promised = is_planned and message.qos > 0 and self._queue.rejects
        if is_promised and self._queue.fits_when_empty(delivery.size_bytes):
            self._append(delivery, slot << SLOT_SHIFT | self.backlog.priority_of(message))
        else:
            self.backlog.enqueue_in_lane(
                delivery, slot << SLOT_SHIFT | self.backlog.priority_of(message)
            )
        return len(self._queue) > before

    def put_back(self, delivery: Delivery, priority: int) -> None:
        """Queue a delivery that a member did not acknowledge at the front, regardless of the
        limits."""
        message = delivery.message
        if (
            message is not None
            and self.backlog.is_stored
            and delivery.qos > 0
            and delivery.offset < 0
        ):
            if message.offset >= 0:
                message = message.copy_for_session()
            self._context.batch.append(message)
            delivery.message = message
            delivery.offset = message.offset
        self._context.batch.note_moved(delivery.offset)
        self._append(delivery, FRONT << SLOT_SHIFT | priority)

    def find(self, taker: Member) -> Delivery | None:
        """Return the first message that ``taker`` may take, left in place, with its body; None if
        there is none.

        Return None also while bodies that ``taker`` may need are being read from the log. Messages
        that no member may receive are dropped.
        """
        if self._fetching_bytes > 0 or len(self._queue) == 0:
            return None
        looked_at = 0
        found: Delivery | None = None
        waits = False
        freed = False
        for lane in self._lanes():
            if lane.count == 0:
                continue
            to_scan = SCAN_MAX if taker.may_scan_lane(lane.number >> SLOT_SHIFT) else 1
            position = 0
            while to_scan > 0:
                delivery = lane.peek(position)
                if delivery is None:
                    break
                position += 1
                if delivery.is_removed:
                    continue
                to_scan -= 1
                looked_at += 1
                routing_key = delivery.routing_key
                if routing_key is None and delivery.message is not None:
                    routing_key = routing_key_of(delivery.message)
                if routing_key is None or taker.may_take(
                    routing_key, delivery.qos, delivery.size_bytes
                ):
                    if delivery.message is None:
                        self._request_bodies(lane, position - 1)
                        waits = True
                    else:
                        found = delivery
                        self._found_lane = lane
                    break
                if taker.is_for_nobody(routing_key):
                    self._note_removed(delivery, self._queue.remove(lane, delivery))
                    reason = drop_reasons.NO_PERMISSION
                    self._drops.count_delivery(reason, self.name, delivery, True)
                    position = 0  # positions change if the head was removed
                    freed = True
                elif self.backlog.is_stored:
                    delivery.routing_key = (
                        routing_key  # for later, when its body may be in the log only
                    )
            if found is not None or waits:
                break
        turn = self._context.turn
        turn.counters.group_deliveries_checked += looked_at
        turn.work_budget.work_done += looked_at // LOOKS_PER_UNIT
        if freed:
            self.backlog.wake_blocked_publishers()
        return found

    @property
    def found_slot(self) -> int:
        """Return the slot of the delivery that ``find`` returned last."""
        return self._found_lane.number >> SLOT_SHIFT

    def take(self, delivery: Delivery) -> None:
        """Remove ``delivery``, which the last call of ``find`` returned."""
        at_head = self._queue.remove(self._found_lane, delivery)
        self._note_removed(delivery, at_head)
        self._context.batch.note_moved(delivery.offset)
        self.backlog.wake_blocked_publishers()

    def _note_removed(self, delivery: Delivery, at_head: bool) -> None:
        delivery.is_removed = True  # a body that is being read for it is ignored
        if at_head:
            self.backlog.note_dequeued(delivery)
        elif delivery.sequence > 0:
            self.backlog.stored_queue.note_removed(delivery.sequence)
            self.backlog.mark_changed()

    def rank_and_offset_of_first(self) -> tuple[int, int]:
        """Return the rank and the log offset of the first message; the queue must not be empty."""
        rank = -1
        offset = 0
        for lane in self._lanes():
            if lane.count > 0:
                if rank >= 0 and lane.rank < rank:
                    break
                head = lane.head()
                if head is not None and (rank < 0 or head.offset < offset):
                    rank = lane.rank
                    offset = head.offset
        return rank, offset

    def must_queue(self, slot: int, message: Message) -> bool:
        """Return whether a new ``message`` for this slot must wait behind queued ones.

        It must while bodies are being read, because a member takes those messages once they are
        read. Otherwise no member with room may take any queued message, and ``message`` may
        overtake them; but with a hash strategy, messages of one slot and priority keep their order.
        """
        queue = self._queue
        if self._fetching_bytes > 0:
            return len(queue) > 0
        if slot == 0 or len(queue) == 0:
            return False
        priority = self.backlog.priority_of(message)
        front = FRONT << SLOT_SHIFT | priority
        return queue.has_in_lane(slot << SLOT_SHIFT | priority) or queue.has_in_lane(front)

    def has_any(self, at_qos_0: bool) -> bool:
        """Return whether the queue has a message; with ``at_qos_0``, a message of QoS 0."""
        return (self._queue.qos0_count if at_qos_0 else len(self._queue)) > 0

    def has_room(self, size_bytes: int) -> bool:
        """Return whether the queue has room for a QoS 1 or 2 message of this size."""
        return self.has_memory() and self._queue.has_room(size_bytes)

    def is_full(self, size_bytes: int) -> bool:
        """Return whether a message of this size must be refused, unless a member can take it."""
        return self._queue.must_refuse(size_bytes) and not self.has_room(size_bytes)

    def refuses(self, size_bytes: int) -> bool:
        """Return whether a message of this size must be refused: neither the queue nor a member has
        room."""
        if not self.is_full(size_bytes) or self._owner is None:
            return False
        return not self.has_memory() or not self._owner.has_free_member()

    def watch_links(self) -> None:
        """Have the members without room in their links resumed when there is room again."""
        if self._owner is not None:
            self._owner.watch_links()

    def lowest_offset(self) -> int:
        """Return the lowest log offset that the queue needs, or -1."""
        return self._queue.lowest_offset(True)

    def priority_of(self, message: Message) -> int:
        """Return the priority of ``message`` in this queue."""
        return self.backlog.priority_of(message)

    def wake_blocked_publishers(self) -> None:
        """Wake the publishers that this queue blocks: there may be room, maybe only in a member."""
        self.backlog.wake_blocked_publishers()

    # -- inside ------------------------------------------------------------------------

    def _append(self, delivery: Delivery, number: int) -> None:
        if self._context.events is not None:
            self._context.events.note_queued(self.name, delivery, len(self._queue) + 1)
        self.backlog.push(delivery, number)

    def _lanes(self) -> list[Lane]:
        """Return all lanes: the highest priority first; of equal priority, the front first."""
        queue = self._queue
        if len(self._ordered_lanes) != queue.lane_count:
            self._ordered_lanes = queue.lanes()
            self._ordered_lanes.sort(key=_search_order)
        return self._ordered_lanes

    # -- bodies from the log -----------------------------------------------------------

    def _request_bodies(self, lane: Lane, position: int) -> None:
        """Request the bodies of deliveries of ``lane`` from ``position`` on, if memory has room."""
        asked: list[tuple[Lane, Delivery]] = []
        offsets: list[int] = []
        size_bytes = 0
        while len(asked) < _BODIES_AT_ONCE_MAX:
            delivery = lane.peek(position)
            if delivery is None:
                break
            position += 1
            if delivery.is_removed or delivery.message is not None:
                continue
            size_bytes += delivery.size_bytes
            if asked and size_bytes > FETCHED_BYTES_MAX:
                break
            asked.append((lane, delivery))
            offsets.append(delivery.offset)
        size_bytes = max(size_bytes, FETCHED_BYTES_MAX)
        if self.account.has_room_for_fetching(size_bytes):
            self._fetching_bytes = size_bytes
            self.account.count_fetching(size_bytes)
            self._requested = asked
            self.requested_offsets = offsets
            self._context.batch.body_requests.append((self, offsets))

    def _stop_fetching(self) -> None:
        self.account.count_fetching(-self._fetching_bytes)
        self._fetching_bytes = 0
        self._requested = []
        self.requested_offsets = []

    def purpose(self) -> str:
        """Return what the bodies are for, as words for a log line."""
        return f"shared subscription {self.name}"

    def needs_bodies(self, offsets: list[int]) -> bool:
        """Return whether ``offsets`` is the latest request of this queue."""
        return offsets is self.requested_offsets

    def supply(self, offsets: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Take the requested bodies, by log offset; drop messages that retention removed."""
        if offsets is not self.requested_offsets:
            return
        requested = self._requested
        self._stop_fetching()
        gone: list[Delivery] = []
        for lane, delivery in requested:
            if delivery.is_removed or delivery.message is not None:
                continue
            body = bodies.get(delivery.offset)
            if body is None:
                self._note_removed(delivery, self._queue.remove(lane, delivery))
                gone.append(delivery)
            else:
                lane.attach_body(delivery, body)
                delivery.routing_key = routing_key_of(body)
        if gone:
            count = len(gone)
            self._drops.count_known(drop_reasons.RETENTION, self.name, gone, count, True)
            self.backlog.wake_blocked_publishers()
        if self._owner is not None:
            self._owner.offer(now)
        if self.backlog.is_stored and not self.account.has_room_for_bodies():
            self._queue.evict_to_log()

    # -- durable form ------------------------------------------------------------------

    def snapshot(self) -> SessionState | None:
        """Return the progress to store, with the changes since the last snapshot; None if the queue
        is not stored."""
        self.backlog.is_changed = False
        if not self.backlog.is_stored:
            return None
        stored = self.backlog.stored_queue
        first = stored.first
        segments = stored.take_segments(self._queue)
        return SessionState(
            self.number,
            first.head,
            first.next_sequence,
            [],
            [],
            segments,
            stored.take_finished(),
            stored.entries(),
            [],
            window_len=0,  # a group has neither a window nor inbound messages
            inbound_len=0,
        )

    def restore(
        self,
        record: SessionRecord,
        progress: SessionState | None,
        queue: list[PackedRun],
        segments: list[int],
    ) -> None:
        """Restore the queue from the store; no member is connected.

        Args:
            record: the record of the queue.
            progress: its latest progress; None if there is none.
            queue: the queued deliveries, by ascending sequence.
            segments: first sequences of the stored segments, ascending.
        """
        self._become_stored(record.number)
        self.go_offline()
        stored = self.backlog.stored_queue
        progress = progress or SessionState(record.number, 1, 1, [], [], [], [], [], [])
        stored.restore(progress, queue, segments)
        for run in queue:
            self._queue.restore(run, stored.lane(run.first >> PRIORITY_SHIFT).head)


def _search_order(lane: Lane) -> tuple[int, int, int]:
    slot = lane.number >> SLOT_SHIFT
    return -lane.rank, 0 if slot == FRONT else 1, lane.number & PRIORITY_MASK
