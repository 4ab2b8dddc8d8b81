"""The memory that clients take, connected or not: counted by kind, with a limit for each.

Pools form a tree. What is counted in one is counted in all above it, and there is room where all of
them have room::

      Session ─▶ pool of its owner ─▶ pool of the broker
                  one user's share      all users together

      QoS 0 that waits in queues ──── qos0_bytes ───── full: the new message is dropped, counted
      QoS 1, 2 in queues, windows ─── waiting_bytes ── half: bodies stay in the log; full: as above
      blocked publishers' messages ── inbound_bytes ── at most half of the limit of waiting_bytes
      queues packed in memory ─────── packed_bytes ─── full: the new message is dropped, counted
      sessions, filters, wills ────── sessions_bytes ─ full: CONNECT, SUBSCRIBE are refused (0x97)
      QoS 2 of MQTT 3.1, unreleased ─ unreleased_bytes ─ full: PUBLISH waits, or ends the connection

A message in several queues counts once in the pool of the broker: at QoS 0 always, at QoS 1 and 2
if it is larger than ``SMALL_BYTES``, and then once in the pool of each owner too.

Limits of one connection or session do not bound the memory of thousands of them: the limits here
are those of the whole broker, and of one owner's share. All sizes are estimates of the memory that
an object takes.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.engine.values.limits import SMALL_BYTES, EngineLimits
from penstock.engine.values.memory_costs import (
    DELIVERY_BYTES,
    FETCHING_PART,
    PACKED_BYTES,
    levels_bytes,
    will_bytes,
)
from penstock.engine.values.message import Delivery, Message

_SESSION_BYTES: Final = 4096
_SUBSCRIPTION_BYTES: Final = 512
_CHARACTER_BYTES: Final = 4


@final
class MemoryLimits:
    """The limits of one pool in bytes, by kind; 0 = no limit.

    Args:
        qos0_bytes_max: QoS 0 messages in queues.
        spilled_bytes_max: packed deliveries of queues.
        sessions_bytes_max: sessions, subscriptions and wills.
        unreleased_bytes_max: messages that wait for PUBREL (``awaiting_release``), in memory or
            in the log.
        retained_bytes_max: retained messages; see ``retained``.
        waiting_bytes_max: QoS 1 and 2 messages in queues and windows.
        unsent_bytes_max: bytes written to links that clients have not read; see ``link``.
    """

    def __init__(
        self,
        qos0_bytes_max: int = 0,
        spilled_bytes_max: int = 0,
        sessions_bytes_max: int = 0,
        unreleased_bytes_max: int = 0,
        retained_bytes_max: int = 0,
        waiting_bytes_max: int = 0,
        unsent_bytes_max: int = 0,
    ) -> None:
        self.qos0: i64 = qos0_bytes_max
        self.packed: i64 = spilled_bytes_max
        self.sessions: i64 = sessions_bytes_max
        self.unreleased: i64 = unreleased_bytes_max
        self.retained: i64 = retained_bytes_max
        self.waiting: i64 = waiting_bytes_max
        self.unsent: i64 = unsent_bytes_max

    def shared(self, share: float) -> MemoryLimits:
        """Return one owner's limits: its share of each, at least 1; none from a share of 1 on."""
        return MemoryLimits(
            _share_of(self.qos0, share),
            _share_of(self.packed, share),
            _share_of(self.sessions, share),
            _share_of(self.unreleased, share),
            _share_of(self.retained, share),
            _share_of(self.waiting, share),
            _share_of(self.unsent, share),
        )


def memory_limits(limits: EngineLimits) -> MemoryLimits:
    """Return the limits of the broker's pool."""
    return MemoryLimits(
        limits.qos0_bytes_max,
        limits.spilled_bytes_max,
        limits.sessions_bytes_max,
        limits.unreleased_bytes_max,
        limits.retained_bytes_max,
        limits.waiting_bytes_max,
        limits.unsent_bytes_max,
    )


@final
class Pool:
    """Memory of one broker, or of one owner of sessions, that is counted here and in ``parent``.

    Args:
        parent: the pool that this one is a part of; None for that of the broker.
        limits: the limits of this pool; None = only those of ``parent`` apply.
        key: the key of its owner (``accounts``); empty for the broker, and the common account.
        sessions_max: the number of sessions; 0 = no limit.
        known: the pools of owners in use, by key; the pool adds itself, and removes itself.
    """

    def __init__(
        self,
        parent: Pool | None = None,
        limits: MemoryLimits | None = None,
        key: str = "",
        sessions_max: int = 0,
        known: dict[str, Pool] | None = None,
    ) -> None:
        self.parent = parent
        self.limits = limits or MemoryLimits()
        self.key = key
        self.sessions_max = sessions_max
        self.sessions = 0
        self.groups = 0  # shared subscriptions whose queues count here
        self.sessions_refused = 0  # sessions, subscriptions and wills for which there was no room
        self.qos0_bytes: i64 = 0
        self.packed_bytes: i64 = 0
        self.sessions_bytes: i64 = 0
        self.unreleased_bytes: i64 = 0
        self.retained_bytes: i64 = 0  # of an owner; ``retained`` counts those of the broker
        self.waiting_bytes: i64 = 0
        self.inbound_bytes: i64 = 0  # ``pending_publishes``, and identifiers in ``inbound``
        self.buffered_bytes: i64 = 0  # in the socket buffers of an owner's clients; see ``link``
        self.fetching_bytes: i64 = 0  # bodies that are being read from the log
        self._known = known

    # -- QoS 0 in queues, and packed queues ------------------------------------------------

    def has_room_for_qos0(self) -> bool:
        """Return whether one more QoS 0 message may wait in a queue."""
        pool: Pool | None = self
        while pool is not None:
            if 0 < pool.limits.qos0 <= pool.qos0_bytes:
                return False
            pool = pool.parent
        return True

    def add_qos0(self, delivery: Delivery) -> None:
        """Add a QoS 0 delivery that was queued."""
        message = delivery.message
        size_bytes: i64 = 0
        is_first = False
        if delivery.offset < 0 and message is not None:  # else the log has it
            size_bytes = message.size_bytes()
            is_first = message.waiting == 0
            message.waiting += 1
        self._count_qos0(1, size_bytes, is_first)

    def remove_qos0(self, delivery: Delivery) -> None:
        """Subtract a QoS 0 delivery that was removed from its queue."""
        message = delivery.message
        size_bytes: i64 = 0
        is_last = False
        if delivery.offset < 0 and message is not None:
            size_bytes = message.size_bytes()
            message.waiting -= 1
            is_last = message.waiting == 0
        self._count_qos0(-1, size_bytes, is_last)

    def _count_qos0(self, step: i64, size_bytes: i64, is_only: bool) -> None:
        """Count a delivery; its message of ``size_bytes`` counts in the broker's pool if this queue
        is the only one that has it."""
        pool = self
        parent = pool.parent
        while parent is not None:
            pool.qos0_bytes += step * (DELIVERY_BYTES + size_bytes)
            pool = parent
            parent = pool.parent
        pool.qos0_bytes += step * (DELIVERY_BYTES + (size_bytes if is_only else 0))

    def has_room_for_packed(self) -> bool:
        """Return whether memory has room for one more packed delivery (``packed_run``)."""
        pool: Pool | None = self
        while pool is not None:
            if 0 < pool.limits.packed <= pool.packed_bytes:
                return False
            pool = pool.parent
        return True

    def count_packed(self, deliveries: int) -> None:
        """Add packed deliveries; subtract them if negative."""
        pool: Pool | None = self
        while pool is not None:
            pool.packed_bytes += deliveries * PACKED_BYTES
            pool = pool.parent

    # -- QoS 1 and 2 in queues and windows --------------------------------------------------

    def has_room_for_waiting(self) -> bool:
        """Return whether one more QoS 1 or 2 message may wait.

        Messages of blocked publishers count too, up to half of the limit, so that they cannot use
        up the room that they wait for.
        """
        pool: Pool | None = self
        while pool is not None:
            bound = pool.limits.waiting
            if 0 < bound <= pool.waiting_bytes + min(pool.inbound_bytes, bound // 2):
                return False
            pool = pool.parent
        return True

    def has_room_for_blocked(self) -> bool:
        """Return whether one more message of a blocked publisher may wait before it is routed.

        Such messages may take half of the limit for waiting messages, if that half is free.
        """
        pool: Pool | None = self
        while pool is not None:
            inbound = pool.inbound_bytes
            if 0 < pool.limits.waiting <= inbound + max(inbound, pool.waiting_bytes):
                return False
            pool = pool.parent
        return True

    def count_inbound(self, delta_bytes: int) -> None:
        """Add bytes of messages that wait for room in a queue, or of packet identifiers that await
        PUBREL; subtract them if negative."""
        pool: Pool | None = self
        while pool is not None:
            pool.inbound_bytes += delta_bytes
            pool = pool.parent

    def has_room_for_bodies(self) -> bool:
        """Return whether less than half of the limit for waiting messages is used.

        If not, callers release the bodies that are also in the log.
        """
        pool: Pool | None = self
        while pool is not None:
            if 0 < pool.limits.waiting <= 2 * pool.waiting_bytes:
                return False
            pool = pool.parent
        return True

    def add_waiting(self, delivery: Delivery) -> None:
        """Add a QoS 1 or 2 delivery that joined a queue or a window; its ``size_bytes`` is set."""
        self.count_waiting(DELIVERY_BYTES)
        self.add_body(delivery)

    def remove_waiting(self, delivery: Delivery) -> None:
        """Subtract a QoS 1 or 2 delivery, with its body if that is in memory."""
        self.count_waiting(-DELIVERY_BYTES)
        self.remove_body(delivery)

    def add_body(self, delivery: Delivery) -> None:
        """Add the body of a delivery, if the body is in memory."""
        message = delivery.message
        if message is None:
            return
        if delivery.size_bytes <= SMALL_BYTES:
            self.count_waiting(delivery.size_bytes)
        else:
            self._count_large(message, 1, delivery.size_bytes)

    def remove_body(self, delivery: Delivery) -> None:
        """Subtract the body of a delivery, before the delivery releases it."""
        message = delivery.message
        if message is None:
            return
        if delivery.size_bytes <= SMALL_BYTES:
            self.count_waiting(-delivery.size_bytes)
        else:
            self._count_large(message, -1, delivery.size_bytes)

    def count_waiting(self, delta_bytes: i64) -> None:
        """Add bytes of waiting QoS 1 and 2 messages; subtract them if negative."""
        pool: Pool | None = self
        while pool is not None:
            pool.waiting_bytes += delta_bytes
            pool = pool.parent

    def _count_large(self, message: Message, step: int, size_bytes: i64) -> None:
        """Count a delivery with this body, which counts once in each pool."""
        deliveries = message.deliveries_by_pool
        if deliveries is None:
            deliveries = message.deliveries_by_pool = {}
        pool: Pool | None = self
        while pool is not None:
            count = deliveries.get(pool, 0)
            if count == 0:
                pool.waiting_bytes += size_bytes
            if count + step > 0:
                deliveries[pool] = count + step
            else:
                del deliveries[pool]
                pool.waiting_bytes -= size_bytes
            pool = pool.parent

    # -- bodies that are read from the log ---------------------------------------------------

    def has_room_for_fetching(self, size_bytes: int) -> bool:
        """Return whether the broker may read ``size_bytes`` of bodies now, in addition to those
        that are being read."""
        whole = self.whole()
        bytes_max = whole.limits.waiting // FETCHING_PART
        return not 0 < bytes_max < whole.fetching_bytes + min(size_bytes, bytes_max // 2)

    def count_fetching(self, delta_bytes: int) -> None:
        """Add bytes of bodies that are being read, for the whole broker; subtract them if
        negative."""
        self.whole().fetching_bytes += delta_bytes

    def whole(self) -> Pool:
        """Return the pool of the broker."""
        pool = self
        while pool.parent is not None:
            pool = pool.parent
        return pool

    # -- bytes written to clients that do not read ------------------------------------------

    def has_room_for_unsent(self, size_bytes: int) -> bool:
        """Return whether the buffers of this owner's connections may take ``size_bytes`` more."""
        bound = self.limits.unsent
        return not 0 < bound < self.buffered_bytes + min(size_bytes, bound // 2)

    # -- QoS 2 messages of MQTT 3.1 before their PUBREL ------------------------------------

    def has_room_for_unreleased(self) -> bool:
        """Return whether one more MQTT 3.1 message may wait for its PUBREL."""
        pool: Pool | None = self
        while pool is not None:
            if 0 < pool.limits.unreleased <= pool.unreleased_bytes:
                return False
            pool = pool.parent
        return True

    def count_unreleased(self, delta_bytes: int) -> None:
        """Add bytes of messages that wait for PUBREL; subtract them if negative."""
        pool: Pool | None = self
        while pool is not None:
            pool.unreleased_bytes += delta_bytes
            pool = pool.parent

    # -- retained messages -----------------------------------------------------------------

    def has_room_for_retained(self, delta_bytes: int) -> bool:
        """Return whether retained messages of this owner may take ``delta_bytes`` more."""
        return not 0 < self.limits.retained < self.retained_bytes + delta_bytes

    def count_retained(self, delta_bytes: int) -> None:
        """Add bytes of retained messages of this owner; subtract them if negative."""
        self.retained_bytes += delta_bytes
        self._register()

    # -- sessions --------------------------------------------------------------------------

    def has_room_for_another_session(self) -> bool:
        """Return whether this owner may have one more session; count a refusal."""
        if 0 < self.sessions_max <= self.sessions:
            self.whole().sessions_refused += 1
            return False
        return self.has_room_for_sessions()

    def has_room_for_sessions(self, replaced_bytes: int = 0) -> bool:
        """Return whether there is room for one more session, subscription or will; count a refusal.

        Args:
            replaced_bytes: memory of the will that the new one replaces; else 0.
        """
        pool: Pool | None = self
        while pool is not None:
            if 0 < pool.limits.sessions <= pool.sessions_bytes - replaced_bytes:
                self.whole().sessions_refused += 1
                return False
            pool = pool.parent
        return True

    def count_session(self, client_id: str, step: int) -> None:
        """Count a session that began (``step`` 1) or ended (-1)."""
        self.sessions += step
        self._count_state(step * (_SESSION_BYTES + _CHARACTER_BYTES * len(client_id)))
        self._register()

    def count_group(self, step: int) -> None:
        """Count the queue of a shared subscription that began (``step`` 1) or ended (-1)."""
        self.groups += step
        self._register()

    def count_subscription(self, topic_filter: str, step: int) -> None:
        """Count a subscription that was made (``step`` 1) or ended (-1)."""
        weight = _SUBSCRIPTION_BYTES + _CHARACTER_BYTES * len(topic_filter)
        self._count_state(step * (weight + levels_bytes(topic_filter)))

    def count_will(self, size_bytes: int, step: int) -> None:
        """Count a will with a message of this size that was set (``step`` 1) or removed (-1)."""
        self._count_state(step * will_bytes(size_bytes))

    def _count_state(self, delta_bytes: int) -> None:
        pool: Pool | None = self
        while pool is not None:
            pool.sessions_bytes += delta_bytes
            pool = pool.parent

    def _register(self) -> None:
        """Add the pool to ``known`` if its owner has sessions, groups or retained messages; else
        remove it there."""
        if self._known is None:
            return
        if self.sessions > 0 or self.groups > 0 or self.retained_bytes > 0:
            self._known[self.key] = self
        else:
            self._known.pop(self.key, None)


def _share_of(bytes_max: int, share: float) -> int:
    if bytes_max == 0 or share >= 1.0:
        return 0
    return max(1, int(bytes_max * share))
