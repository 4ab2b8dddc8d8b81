"""The memory that all clients of the broker take, connected or not: its counts and limits.

::

      QoS 0 that waits in queues ──── qos0_bytes ───── full: the new message is dropped, counted
      QoS 1, 2 in queues, windows ─── waiting_bytes ── half: bodies stay in the log; full: as above
      blocked publishers' messages ── inbound_bytes ── at most half of the limit of waiting_bytes
      queues packed in memory ─────── packed_bytes ─── full: the new message is dropped, counted
      sessions, filters, wills ────── sessions_bytes ─ full: CONNECT, SUBSCRIBE are refused (0x97)
      QoS 2 of MQTT 3.1, unreleased ─ unreleased_bytes ─ full: PUBLISH waits, or ends the connection

Limits of one connection or session do not bound the memory of thousands of them: the limits here
are those of the whole broker. All sizes are estimates of the memory that an object takes.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.engine.message import Delivery

DELIVERY_BYTES: Final = 256  # a waiting delivery, without its message
PACKED_BYTES: Final = 13  # a delivery in a run, see ``packed_run``
LEVEL_BYTES: Final = 384  # a node of a tree of topic levels
IDENTIFIER_BYTES: Final = 128  # a packet identifier of a QoS 2 message that waits for PUBREL


FETCHING_PART: Final = 4  # at most a quarter of ``waiting_bytes_max`` is being read from the log
_SESSION_BYTES: Final = 4096
_SUBSCRIPTION_BYTES: Final = 512
_CHARACTER_BYTES: Final = 4
_WILL_BYTES: Final = 512


def levels_bytes(topic: str) -> int:
    """Return the bytes of memory of the nodes of ``topic`` in a tree of topic levels, if none of
    them exists yet."""
    return LEVEL_BYTES * (topic.count("/") + 1)


def will_bytes(size_bytes: int) -> int:
    """Return the bytes of memory of a will with a message of ``size_bytes``."""
    return _WILL_BYTES + size_bytes


@final
class MemoryBudget:
    """The memory counts of one broker.

    Args:
        qos0_bytes_max: QoS 0 messages in queues, 0 = no limit.
        spilled_bytes_max: packed deliveries of queues, 0 = no limit.
        sessions_bytes_max: sessions, subscriptions and wills, 0 = no limit.
        unreleased_bytes_max: messages that wait for PUBREL (``awaiting_release``), in memory or
            in the log, 0 = no limit.
        retained_bytes_max: retained messages, 0 = no limit; see ``retained``.
        waiting_bytes_max: QoS 1 and 2 messages in queues and windows, 0 = no limit.
        unsent_bytes_max: bytes written to links that clients have not read, 0 = no limit; see
            ``link``.
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
        self.qos0_bytes: i64 = 0
        self.packed_bytes: i64 = 0
        self.sessions_bytes: i64 = 0
        self.unreleased_bytes: i64 = 0
        self.sessions_refused = 0  # sessions, subscriptions and wills for which there was no room
        self.qos0_bytes_max = qos0_bytes_max
        self.spilled_bytes_max = spilled_bytes_max
        self.sessions_bytes_max = sessions_bytes_max
        self.unreleased_bytes_max = unreleased_bytes_max
        self.retained_bytes_max = retained_bytes_max  # ``retained`` counts the bytes itself
        self.waiting_bytes: i64 = 0
        self.inbound_bytes: i64 = (
            0  # from clients: ``pending_publishes``, identifiers in ``inbound``
        )
        self.fetching_bytes: i64 = 0  # bodies that are being read from the log
        self.waiting_bytes_max = waiting_bytes_max
        self.unsent_bytes_max = unsent_bytes_max

    def has_room_for_unreleased(self) -> bool:
        """Return whether one more MQTT 3.1 message may wait for its PUBREL."""
        return not 0 < self.unreleased_bytes_max <= self.unreleased_bytes

    def may_fetch(self, size_bytes: int) -> bool:
        """Return whether ``size_bytes`` of bodies may be read from the log now, in addition to
        those that are being read."""
        bytes_max = self.waiting_bytes_max // FETCHING_PART
        return not 0 < bytes_max < self.fetching_bytes + min(size_bytes, bytes_max // 2)

    # -- QoS 0 in queues -----------------------------------------------------------------

    def has_room_for_qos0(self) -> bool:
        """Return whether one more QoS 0 message may wait in a queue."""
        return not 0 < self.qos0_bytes_max <= self.qos0_bytes

    def add_qos0(self, delivery: Delivery) -> None:
        """Add a QoS 0 delivery that was queued; its message counts once for all its queues."""
        self.qos0_bytes += DELIVERY_BYTES
        message = delivery.message
        if delivery.offset < 0 and message is not None:  # else the log has it
            if message.waiting == 0:
                self.qos0_bytes += message.size_bytes()
            message.waiting += 1

    def remove_qos0(self, delivery: Delivery) -> None:
        """Subtract a QoS 0 delivery that was removed from its queue."""
        self.qos0_bytes -= DELIVERY_BYTES
        message = delivery.message
        if delivery.offset < 0 and message is not None:
            message.waiting -= 1
            if message.waiting == 0:
                self.qos0_bytes -= message.size_bytes()

    # -- packed queues -------------------------------------------------------------------

    def has_room_to_pack(self) -> bool:
        """Return whether memory has room for one more packed delivery (``packed_run``)."""
        return not 0 < self.spilled_bytes_max <= self.packed_bytes

    def count_packed(self, deliveries: int) -> None:
        """Add packed deliveries; subtract them if negative."""
        self.packed_bytes += deliveries * PACKED_BYTES

    # -- sessions ------------------------------------------------------------------------

    def has_room_for_sessions(self, replaced_bytes: int = 0) -> bool:
        """Return whether there is room for one more session, subscription or will; count a refusal.

        Args:
            replaced_bytes: memory of the will that the new one replaces; else 0.
        """
        if 0 < self.sessions_bytes_max <= self.sessions_bytes - replaced_bytes:
            self.sessions_refused += 1
            return False
        return True

    def count_session(self, client_id: str, step: int) -> int:
        """Count a session that began (``step`` 1) or ended (-1); return the change of
        ``sessions_bytes``."""
        delta_bytes = step * (_SESSION_BYTES + _CHARACTER_BYTES * len(client_id))
        self.sessions_bytes += delta_bytes
        return delta_bytes

    def count_subscription(self, topic_filter: str, step: int) -> int:
        """Count a subscription that was made (``step`` 1) or removed (-1); return the change of
        ``sessions_bytes``."""
        weight = _SUBSCRIPTION_BYTES + _CHARACTER_BYTES * len(topic_filter)
        delta_bytes = step * (weight + levels_bytes(topic_filter))
        self.sessions_bytes += delta_bytes
        return delta_bytes

    def count_will(self, size_bytes: int, step: int) -> int:
        """Count a will with a message of this size that was set (``step`` 1) or removed (-1);
        return the change of ``sessions_bytes``."""
        delta_bytes = step * will_bytes(size_bytes)
        self.sessions_bytes += delta_bytes
        return delta_bytes
