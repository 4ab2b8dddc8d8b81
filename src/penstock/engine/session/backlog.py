"""The backlog of one client: its queue, what is dropped of it, and its numbers in the store.

::

      joins ── there is room ──▶ queue ── head ─▶ passed on, to the window
        │                          │
        │                          ╰ what the log holds has a sequence (``stored_queue``), and
        ▼                            while the client is away no body in memory
      none ── the overflow policy (``queue``) ─▶ it, or others for it: dropped and counted
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.effects import Effects
from penstock.engine.limits import EngineLimits
from penstock.engine.memory.accounts import Account
from penstock.engine.message import Delivery, Message
from penstock.engine.reporting import drop_counts as reasons_to_drop
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.lane import HEAD_LEN_MAX
from penstock.engine.session.queue import PRIORITY_MASK, MessageQueue
from penstock.engine.session.stored_queue import StoredQueue

_DEAD_LETTERS_MAX: Final = 10_000  # of one session, or group, that ends


@final
class Backlog:
    """The queue of one client or group at work: messages wait in it, or are dropped.

    Args:
        client_id: the client identifier, or the filter of a group.
        stored: whether it outlives its connection.
        effects: the parts of the broker that it acts on.
        limits: bounds.
        drops: the counts of dropped messages.
        account: the account in which its messages count.
    """

    def __init__(
        self,
        client_id: str,
        stored: bool,
        effects: Effects,
        limits: EngineLimits,
        drops: Drops,
        account: Account,
    ) -> None:
        # Whose queue this is: a session or a group's queue, to be marked as changed. It sets this
        # itself, and None when it ends, because the two would keep each other in memory.
        self.owner: StoredState | None = None
        self.client_id = client_id
        self.stored = stored
        self.account = account
        self.limits = limits
        self.queue = MessageQueue(limits, stored, account)
        self.stored_queue = StoredQueue()
        self.away = True  # nobody takes from the queue for now: bodies rest in the log
        self.changed = False  # the durable form did, since the last snapshot
        self._priorities = limits.priorities
        self._effects = effects
        self._drops = drops

    def lose_qos0(self) -> None:
        """Count the QoS 0 messages that wait as dropped: the server shuts down and stores none."""
        lost = self.queue.qos0_count
        self._drops.count(reasons_to_drop.QOS0_OFFLINE, self.client_id, "", lost)

    def drop_all(self, in_flight: list[Delivery]) -> None:
        """Drop and count what was on its way and what waits: the owner ended."""
        queue = self.queue
        ended = reasons_to_drop.SESSION_ENDED
        drop_handler = self._drops.drop_handler
        if drop_handler is not None:
            qos0_left = queue.qos0_count
            waited = queue.waiting(_DEAD_LETTERS_MAX + qos0_left)  # QoS 0 may make no letters
            for delivery in in_flight:
                drop_handler.on_drop(ended, self.client_id, delivery)
            for delivery in waited:
                drop_handler.on_drop(ended, self.client_id, delivery)
                if delivery.qos == 0:
                    qos0_left -= 1
            drop_handler.lose(self.client_id, len(queue) - len(waited) - qos0_left, qos0_left)
        known: list[Delivery] = []
        if self._drops.events is not None:
            known = in_flight + queue.waiting(_DEAD_LETTERS_MAX)
        count = len(in_flight) + len(queue)
        self._drops.count_known(ended, self.client_id, known, count)
        queue.ended()

    @property
    def queue_bytes(self) -> int:
        """Return the size of the messages waiting."""
        return self.queue.size_bytes

    @property
    def queue_length_max(self) -> int:
        """Return how many messages may wait; 0 = no limit."""
        return self.queue.max_len

    @property
    def queue_bytes_max(self) -> int:
        """Return how many bytes of messages may wait; 0 = no limit."""
        return self.queue.max_bytes

    def bound(self, limits: EngineLimits) -> None:
        """Set other bounds, and drop what has no room any more."""
        self.limits = limits
        self._priorities = limits.priorities
        self.queue.bound(limits)
        dropped: list[Delivery] = []
        self.queue.trim(dropped)
        self._overflowed(dropped)

    def touch(self) -> None:
        """Note that the durable form of the owner changed in this turn."""
        if self.stored and not self.changed and self.owner is not None:
            self.changed = True
            self._effects.batch.changed.append(self.owner)

    def priority_of(self, message: Message) -> int:
        """Return the priority of ``message`` here."""
        return 0 if self._priorities is None else self._priorities.of(message.topic)

    def enqueue(self, delivery: Delivery, message: Message, planned: bool) -> None:
        """Queue what was published now; see ``join``."""
        delivery.size_bytes = message.size_bytes()
        self.join(delivery, self.priority_of(message), planned)

    def join(self, delivery: Delivery, number: int, planned: bool = False) -> None:
        """Queue ``delivery`` in this lane, or drop it or another, as the overflow policy says.

        What is ``planned`` was not refused: it waits also where other copies of it took the memory.
        """
        if delivery.qos == 0 and not self.account.has_room_for_qos0():
            self.lose_delivery(reasons_to_drop.MEMORY_FULL, delivery)
            return
        is_short = not self.account.has_room_for_bodies()
        if (
            delivery.qos > 0
            and (is_short or self.away or len(self.queue) >= HEAD_LEN_MAX)
            and not self.has_memory()
            and not (planned and self.queue.rejects)
        ):
            self.lose_delivery(reasons_to_drop.MEMORY_FULL, delivery)
            return
        if not self._make_room(delivery.qos, delivery.size_bytes, number & PRIORITY_MASK):
            self.lose_delivery(reasons_to_drop.QUEUE_FULL, delivery)
            return
        if self._effects.events is not None:
            self._effects.events.queued(self.client_id, delivery, len(self.queue) + 1)
        self.push(delivery, number)

    def push(self, delivery: Delivery, number: int) -> None:
        """Let ``delivery`` wait in this lane."""
        if self.stored:
            if delivery.qos > 0 and delivery.offset >= 0:
                lane = self.stored_queue.lane(number)
                delivery.sequence = lane.next_sequence_number()
                lane.joined(delivery)
                self.touch()
            if self.away or not self.account.has_room_for_bodies():
                delivery.evict_to_log()
        self.queue.push(delivery, number)

    def has_memory(self) -> bool:
        """Return whether memory has a place for one more QoS 1 or 2 message, packed or not."""
        if self.stored and (self.away or len(self.queue) >= HEAD_LEN_MAX):
            return self.account.has_room_to_pack()
        return self.account.has_room_to_wait()

    def _make_room(self, qos: int, size_bytes: int, priority: int) -> bool:
        """Return whether a new message is queued; what has to go for it is gone then."""
        queue = self.queue
        if queue.has_room(size_bytes):
            return True
        dropped: list[Delivery] = []
        queued = queue.make_room(qos, size_bytes, priority, dropped)
        self._overflowed(dropped)
        return queued

    def _overflowed(self, dropped: list[Delivery]) -> None:
        if dropped:
            self.made_room()
        for delivery in dropped:
            delivery.gone = True  # a body that was asked for comes too late
            self.dropped(delivery)
            self.lose_delivery(reasons_to_drop.QUEUE_FULL, delivery)

    def made_room(self) -> None:
        """Ask the publishers that wait for room: there may be some."""
        blocked = self._effects.blocked_publishers
        if blocked.count > 0 and self.owner is not None:
            blocked.wake(self.owner)

    def recheck_blocked_publishers(self) -> None:
        """Ask every publisher blocked here: limits, subscriptions or permissions changed."""
        if self.owner is not None:
            self._effects.blocked_publishers.wake(self.owner, True)

    def passed(self, delivery: Delivery) -> None:
        """Note that ``delivery`` left the queue."""
        if delivery.sequence > 0:
            self.stored_queue.passed(delivery.sequence)
            self.touch()

    def dropped(self, delivery: Delivery) -> None:
        """Note that ``delivery`` left the queue for good, and nothing overtakes it meanwhile."""
        if delivery.sequence > 0:
            self.passed(delivery)
            self.stored_queue.first.dropped(self._effects.batch.sealed + 1)

    def lose(self, reason: int, message: Message, qos: int) -> None:
        """Count a message as dropped that waited nowhere."""
        self.lose_delivery(reason, Delivery(message, message.offset, qos))

    def lose_delivery(self, reason: int, delivery: Delivery) -> None:
        """Count ``delivery`` as dropped."""
        self._drops.lose(reason, self.client_id, delivery)
