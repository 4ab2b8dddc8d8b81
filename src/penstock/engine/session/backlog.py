"""The backlog of one client: its queue, the drops from it, and its sequence numbers in the store.

::

      message ── room ──▶ queue ── head ─▶ dequeued, to the window
         │                  │
         │ no room          ╰ a message in the log has a sequence number (``stored_queue``), and
         ▼                    while the client is offline no body in memory
      overflow policy (``queue``) ─▶ this message or queued ones are dropped and counted
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.lane import HEAD_LEN_MAX
from penstock.engine.session.queue import MessageQueue
from penstock.engine.session.stored_queue import StoredQueue
from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.priorities import PRIORITY_MASK

_DEAD_LETTERS_MAX: Final = 10_000  # dead letters of one session, or group, that ends


@final
class Backlog:
    """The message queue of one client or group, with its rules of dropping.

    Args:
        client_id: the client identifier, or the topic filter of a group.
        is_stored: whether the session outlives its connection.
        context: the parts of the broker that it acts on.
        limits: the limits of the queue.
        drops: the counts of dropped messages.
        account: the account in which its messages count.
        is_of_group: whether it is the queue of a group.
    """

    def __init__(
        self,
        client_id: str,
        is_stored: bool,
        context: EngineContext,
        limits: EngineLimits,
        drops: Drops,
        account: Pool,
        is_of_group: bool = False,
    ) -> None:
        # The session or group queue of this backlog, which is marked as changed. It sets this
        # field, and clears it when it ends, so that the two do not keep each other in memory.
        self.owner: StoredState | None = None
        self.client_id = client_id
        self._of_group = is_of_group
        self.is_stored = is_stored
        self.account = account
        self.limits = limits
        self.queue = MessageQueue(limits, is_stored, account)
        self.stored_queue = StoredQueue()
        self.is_offline = True  # no receiver is connected: bodies are left in the log
        self.is_changed = False  # whether the durable form changed since the last snapshot
        self._priorities = limits.priorities
        self._context = context
        self._drops = drops

    def count_qos0_dropped(self) -> None:
        """Count the queued QoS 0 messages as dropped: the server shuts down and does not store
        them."""
        lost = self.queue.qos0_count
        reason = drop_reasons.QOS0_OFFLINE
        self._drops.count(reason, self.client_id, "", lost, self._of_group)

    def drop_all(self, in_flight: list[Delivery]) -> None:
        """Drop and count the messages ``in_flight`` and the queued ones: the owner ended."""
        queue = self.queue
        ended = drop_reasons.SESSION_ENDED
        drop_handler = self._drops.drop_handler
        if drop_handler is not None:
            qos0_left = queue.qos0_count
            waited = queue.waiting(_DEAD_LETTERS_MAX + qos0_left)  # QoS 0 may have no dead letters
            for delivery in in_flight:
                drop_handler.on_drop(ended, self.client_id, delivery)
            for delivery in waited:
                drop_handler.on_drop(ended, self.client_id, delivery)
                if delivery.qos == 0:
                    qos0_left -= 1
            drop_handler.on_unknown_drops(
                self.client_id, len(queue) - len(waited) - qos0_left, qos0_left
            )
        known: list[Delivery] = []
        if self._drops.events is not None:
            known = in_flight + queue.waiting(_DEAD_LETTERS_MAX)
        count = len(in_flight) + len(queue)
        self._drops.count_known(ended, self.client_id, known, count, self._of_group)
        queue.leave_account()

    @property
    def queue_bytes(self) -> int:
        """Return the size of the queued messages in bytes."""
        return self.queue.size_bytes

    @property
    def queue_length_max(self) -> int:
        """Return how many messages may wait; 0 = no limit."""
        return self.queue.max_len

    @property
    def queue_bytes_max(self) -> int:
        """Return how many bytes of messages may wait; 0 = no limit."""
        return self.queue.max_bytes

    def set_limits(self, limits: EngineLimits) -> None:
        """Set the limits; if the policy drops the oldest, drop messages beyond them."""
        self.limits = limits
        self._priorities = limits.priorities
        self.queue.set_limits(limits)
        dropped: list[Delivery] = []
        self.queue.trim(dropped)
        self._drop_overflow(dropped)

    def mark_changed(self) -> None:
        """Mark the owner as changed, so that the next commit stores its durable form."""
        if self.is_stored and not self.is_changed and self.owner is not None:
            self.is_changed = True
            self._context.batch.changed_states.append(self.owner)

    def priority_of(self, message: Message) -> int:
        """Return the priority of ``message`` in this queue."""
        return 0 if self._priorities is None else self._priorities.priority_of(message.topic)

    def enqueue(self, delivery: Delivery, message: Message, is_planned: bool) -> None:
        """Queue a message that was just published, in the lane of its priority."""
        delivery.size_bytes = message.size_bytes()
        self.enqueue_in_lane(delivery, self.priority_of(message), is_planned)

    def enqueue_in_lane(self, delivery: Delivery, number: int, is_planned: bool = False) -> None:
        """Queue ``delivery`` in the lane ``number``, or drop a message as the overflow policy says.

        A delivery that ``is_planned`` was accepted by ``Router.plan``, so it is queued even if
        other copies of its message took the memory meanwhile.
        """
        if delivery.qos == 0 and not self.account.has_room_for_qos0():
            self.count_dropped(drop_reasons.MEMORY_FULL, delivery)
            return
        is_short = not self.account.has_room_for_bodies()
        if (
            delivery.qos > 0
            and (is_short or self.is_offline or len(self.queue) >= HEAD_LEN_MAX)
            and not self.has_memory()
            and not (is_planned and self.queue.rejects)
        ):
            self.count_dropped(drop_reasons.MEMORY_FULL, delivery)
            return
        if not self._make_room(delivery.qos, delivery.size_bytes, number & PRIORITY_MASK):
            self.count_dropped(drop_reasons.QUEUE_FULL, delivery)
            return
        if self._context.events is not None:
            self._context.events.note_queued(self.client_id, delivery, len(self.queue) + 1)
        if self._context.recorder is not None and not self._of_group:
            self._context.recorder.note_queued(self.client_id, delivery.offset)
        self.push(delivery, number)

    def push(self, delivery: Delivery, number: int) -> None:
        """Append ``delivery`` to the lane ``number``, regardless of the limits."""
        if self.is_stored:
            if delivery.qos > 0 and delivery.offset >= 0:
                lane = self.stored_queue.lane(number)
                delivery.sequence = lane.next_sequence_number()
                lane.note_enqueued(delivery)
                self.mark_changed()
            if self.is_offline or not self.account.has_room_for_bodies():
                delivery.evict_to_log()
        self.queue.push(delivery, number)

    def has_memory(self) -> bool:
        """Return whether memory has room for one more QoS 1 or 2 message in this queue."""
        if self.is_stored and (self.is_offline or len(self.queue) >= HEAD_LEN_MAX):
            return self.account.has_room_for_packed()
        return self.account.has_room_for_waiting()

    def _make_room(self, qos: int, size_bytes: int, priority: int) -> bool:
        """Make room for a new message, by dropping others if the policy is to; return whether the
        new message may be queued."""
        queue = self.queue
        if queue.has_room(size_bytes):
            return True
        dropped: list[Delivery] = []
        queued = queue.make_room(qos, size_bytes, priority, dropped)
        self._drop_overflow(dropped)
        return queued

    def _drop_overflow(self, dropped: list[Delivery]) -> None:
        if dropped:
            self.wake_blocked_publishers()
        for delivery in dropped:
            delivery.is_removed = True  # a body that is being read for it is ignored
            self.note_dropped(delivery)
            self.count_dropped(drop_reasons.QUEUE_FULL, delivery)

    def wake_blocked_publishers(self) -> None:
        """Wake the publishers that this queue blocks: there may be room."""
        blocked = self._context.blocked_publishers
        if blocked.count > 0 and self.owner is not None:
            blocked.wake(self.owner)

    def recheck_blocked_publishers(self) -> None:
        """Check every publisher that this queue blocks again: limits, subscriptions or permissions
        changed."""
        if self.owner is not None:
            self._context.blocked_publishers.wake(self.owner, True)

    def note_dequeued(self, delivery: Delivery) -> None:
        """Note that ``delivery`` left the queue."""
        if delivery.sequence > 0:
            self.stored_queue.note_dequeued(delivery.sequence)
            self.mark_changed()

    def note_dropped(self, delivery: Delivery) -> None:
        """Note that ``delivery`` was dropped from the head of a lane: in the store all before it is
        gone, too. From the middle, it is ``StoredQueue.note_removed``.

        Until the drop is stored, no message of the queue is sent before the commit that records it.
        """
        if delivery.sequence > 0:
            self.note_dequeued(delivery)
            self.stored_queue.first.wait_for_drop(self._context.batch.latest_sealed + 1)

    def count_dropped_message(self, reason: int, message: Message, qos: int) -> None:
        """Count a message that was not queued as dropped."""
        self.count_dropped(reason, Delivery(message, message.offset, qos))

    def count_dropped(self, reason: int, delivery: Delivery) -> None:
        """Count ``delivery`` as dropped."""
        self._drops.drop(reason, self.client_id, delivery, self._of_group)
