"""What waits for one client: its queue, what is dropped of it, and its numbers in the store.

::

      joins ── there is room ──▶ queue ── head ─▶ passed on, to the window
        │                          │
        │                          ╰ what the log holds has a sequence (``stored_queue``), and
        ▼                            while the client is away no body in memory
      none ── the overflow policy (``queue``) ─▶ it, or others for it: dropped and counted
"""

from __future__ import annotations

from penstock.engine.access.access import Permissions
from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.effects import Effects
from penstock.engine.forwarding import Forwarding
from penstock.engine.limits import EngineLimits
from penstock.engine.memory.accounts import Account
from penstock.engine.memory.limit_usage import LimitUsage
from penstock.engine.message import Delivery, Message
from penstock.engine.reporting import drop_counts as reasons_to_drop
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.congestion import Congestion
from penstock.engine.session.lane import HEAD_LEN_MAX
from penstock.engine.session.queue import PRIORITY_MASK, MessageQueue
from penstock.engine.session.stored_queue import StoredQueue
from penstock.engine.wire.link import Link


class Backlog(StoredState):
    """The queue of one client at work: messages wait in it, or are dropped.

    Args:
        client_id: the client identifier.
        stored: whether it outlives its connection.
        effects: where what it does is collected.
        limits: bounds.
        drops: where dropped messages are counted.
    """

    def __init__(
        self,
        client_id: str,
        stored: bool,
        effects: Effects,
        limits: EngineLimits,
        drops: Drops,
        account: Account | None = None,
    ) -> None:
        self.client_id = client_id
        self.stored = stored
        self.account = account or effects.accounts.common
        self.link: Link | None = None  # None while it is away
        self.permissions: Permissions | None = None  # None = everything
        self.forwarding: Forwarding | None = None  # a bridge's: under other topics
        self._queue = MessageQueue(limits, stored, self.account)
        self._stored_queue = StoredQueue()
        self._priorities = limits.priorities
        self._effects = effects
        self._limits = limits
        self._drops = drops
        self._changed = False
        self._congestion = Congestion(client_id, effects)
        self.shared_filters: dict[str, None] | None = None  # its shared subscriptions

    def may_receive(self, message: Message) -> bool:
        """Return whether this client may have ``message``."""
        permissions = self.permissions
        return permissions is None or permissions.may_receive(message.topic)

    def may_receive_topic(self, topic: str) -> bool:
        """Return whether this client may have messages with this topic."""
        permissions = self.permissions
        return permissions is None or permissions.may_receive(topic)

    def lose_qos0(self) -> None:
        """The server shuts down: QoS 0 messages that wait for the client are not stored."""
        lost = self._queue.qos0_count
        self._drops.count(reasons_to_drop.QOS0_OFFLINE, self.client_id, "", lost)

    @property
    def queue_length(self) -> int:
        """Messages waiting."""
        return len(self._queue)

    @property
    def queue_bytes(self) -> int:
        """Of the messages waiting."""
        return self._queue.size_bytes

    @property
    def queue_length_max(self) -> int:
        """Messages that may wait; 0 = no limit."""
        return self._queue.max_len

    @property
    def queue_bytes_max(self) -> int:
        """Bytes of messages that may wait; 0 = no limit."""
        return self._queue.max_bytes

    @property
    def rejects(self) -> bool:
        """Return whether messages are refused while the queue is full."""
        return self._queue.rejects

    def at_limit(self, limit: int) -> LimitUsage | None:
        """Return how often and how long a limit was reached; None while none ever was."""
        return self._congestion.use(limit)

    def lowest_offset(self) -> int:
        """Return the lowest log offset that is still needed, or -1."""
        return self._queue.lowest_offset(False)

    # -- inside ------------------------------------------------------------------------

    def _is_away(self) -> bool:
        """Whether nobody takes from the queue for now: bodies rest in the log."""
        return self.link is None

    def _bound(self, limits: EngineLimits) -> None:
        """Other bounds hold: drop what has no room any more."""
        self._limits = limits
        self._priorities = limits.priorities
        self._queue.bound(limits)
        self._trim()

    def _touch(self) -> None:
        """The durable form changed in this turn."""
        if self.stored and not self._changed:
            self._changed = True
            self._effects.batch.changed.append(self)

    def _priority(self, message: Message) -> int:
        return 0 if self._priorities is None else self._priorities.of(message.topic)

    def _enqueue(self, delivery: Delivery, message: Message, planned: bool) -> None:
        """Queue what was published now."""
        delivery.size_bytes = message.size_bytes()
        self._join(delivery, self._priority(message), planned)

    def _join(self, delivery: Delivery, number: int, planned: bool = False) -> None:
        """Queue ``delivery`` in this lane, or drop it or another, as the overflow policy says.

        What is ``planned`` was not refused: it waits also where other copies of it took the memory.
        """
        if delivery.qos == 0 and not self.account.has_room_for_qos0():
            self._drops.lose(reasons_to_drop.MEMORY_FULL, self.client_id, delivery)
            return
        is_short = not self.account.has_room_for_bodies()
        if (
            delivery.qos > 0
            and (is_short or self._is_away() or len(self._queue) >= HEAD_LEN_MAX)
            and not self.has_memory()
            and not (planned and self._queue.rejects)
        ):
            self._drops.lose(reasons_to_drop.MEMORY_FULL, self.client_id, delivery)
            return
        if not self._make_room(delivery.qos, delivery.size_bytes, number & PRIORITY_MASK):
            self._drops.lose(reasons_to_drop.QUEUE_FULL, self.client_id, delivery)
            return
        if self._effects.events is not None:
            self._effects.events.queued(self.client_id, delivery, len(self._queue) + 1)
        self._push(delivery, number)

    def _push(self, delivery: Delivery, number: int) -> None:
        """Let ``delivery`` wait in this lane."""
        if self.stored:
            if delivery.qos > 0 and delivery.offset >= 0:
                lane = self._stored_queue.lane(number)
                delivery.sequence = lane.number()
                lane.joined(delivery)
                self._touch()
            if self._is_away() or not self.account.has_room_for_bodies():
                delivery.evict_to_log()
        self._queue.push(delivery, number)

    def has_memory(self) -> bool:
        """Return whether memory has a place for one more QoS 1 or 2 message, packed or not."""
        if self.stored and (self._is_away() or len(self._queue) >= HEAD_LEN_MAX):
            return self.account.has_room_to_pack()
        return self.account.has_room_to_wait()

    def _make_room(self, qos: int, size_bytes: int, priority: int) -> bool:
        """Whether a new message is queued; what has to go for it is gone then."""
        queue = self._queue
        if queue.has_room(size_bytes):
            return True
        dropped: list[Delivery] = []
        queued = queue.make_room(qos, size_bytes, priority, dropped)
        self._overflowed(dropped)
        return queued

    def _overflowed(self, dropped: list[Delivery]) -> None:
        if dropped:
            self._made_room()
        for delivery in dropped:
            self._dropped(delivery)
            self._drops.lose(reasons_to_drop.QUEUE_FULL, self.client_id, delivery)

    def _made_room(self) -> None:
        """There may be room: ask the publishers that wait for it."""
        blocked = self._effects.blocked_publishers
        if blocked.count > 0:
            blocked.wake(self)

    def recheck_blocked_publishers(self) -> None:
        """Limits, subscriptions or permissions changed: ask every publisher blocked here."""
        self._effects.blocked_publishers.wake(self, True)

    def watch_links(self) -> None:
        """Have the client resumed when it reads again, if it does not read now."""
        link = self.link
        if link is not None and not link.has_room():
            link.resume_when_room()

    def _trim(self) -> None:
        dropped: list[Delivery] = []
        self._queue.trim(dropped)
        self._overflowed(dropped)

    def _passed(self, delivery: Delivery) -> None:
        """``delivery`` left the queue."""
        if delivery.sequence > 0:
            self._stored_queue.passed(delivery.sequence)
            self._touch()

    def _dropped(self, delivery: Delivery) -> None:
        """``delivery`` left the queue for good, and nothing overtakes it meanwhile."""
        if delivery.sequence > 0:
            self._passed(delivery)
            self._stored_queue.first.dropped(self._effects.batch.sealed + 1)

    def _lose(self, reason: int, message: Message, qos: int) -> None:
        """A message is dropped that waited nowhere."""
        self._drops.lose(reason, self.client_id, Delivery(message, message.offset, qos))

    def _permitted(self, message: Message) -> bool:
        """Whether this client may have ``message``; if not, it is counted."""
        if self.may_receive(message):
            return True
        refused = Delivery(message, message.offset, 0)
        self._drops.refuse(reasons_to_drop.NO_PERMISSION, self.client_id, refused)
        return False
