"""What all clients together make the broker keep in memory, also while they are away.

::

      QoS 0 that waits in queues ──── qos0_bytes ───── full: the new message is dropped, counted
      QoS 1, 2 in queues, windows ─── waiting_bytes ── half: bodies rest in the log; full: as above
      publishers that wait for it ─── held_back_bytes ─ half of that bound: see ``held_back``
      queues packed in memory ─────── packed_bytes ─── full: the new message is dropped, counted
      sessions, filters, wills ────── sessions_bytes ─ full: CONNECT, SUBSCRIBE are refused (0x97)
      QoS 2 of MQTT 3.1, unreleased ─ unreleased_bytes ─ full: PUBLISH waits, or ends the connection

Limits of one connection or session bound nothing where there may be thousands: the bounds here are
those of the broker. What each thing weighs is about what it occupies, for bounding memory, not for
billing.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.message import Delivery

DELIVERY_BYTES: Final = 256  # one that waits, without its message
PACKED_BYTES: Final = 13  # one in a run, see ``runs``
LEVEL_BYTES: Final = 384  # a node of a tree of topics
IDENTIFIER_BYTES: Final = 128  # a packet identifier of a QoS 2 message that waits for PUBREL


FETCHING_PART: Final = 4  # of what may wait is read from the log at the same time, at most
_SESSION_BYTES: Final = 4096
_SUBSCRIPTION_BYTES: Final = 512
_CHARACTER_BYTES: Final = 4
_WILL_BYTES: Final = 512


def levels_bytes(topic: str) -> int:
    """Return what the nodes of ``topic`` occupy in a tree, if none of them is there yet."""
    return LEVEL_BYTES * (topic.count("/") + 1)


def will_bytes(size_bytes: int) -> int:
    """Return what a will with a message of this size occupies."""
    return _WILL_BYTES + size_bytes


@final
class Kept:
    """Of one broker.

    Args:
        qos0_bytes_max: QoS 0 messages in queues, 0 = no limit.
        spilled_bytes_max: packed deliveries of queues, 0 = no limit.
        sessions_bytes_max: sessions, subscriptions and wills, 0 = no limit.
        unreleased_bytes_max: messages that wait for their PUBREL (``held``), in memory or in the
            log, 0 = no limit.
        retained_bytes_max: retained messages, 0 = no limit; see ``retained``.
        waiting_bytes_max: QoS 1 and 2 in queues and windows, 0 = no limit.
        unsent_bytes_max: what was written for clients, and they have not taken, 0 = no limit; see
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
        self.qos0_bytes = 0
        self.packed_bytes = 0
        self.sessions_bytes = 0
        self.unreleased_bytes = 0
        self.sessions_refused = 0  # sessions, subscriptions and wills, for want of room
        self.qos0_bytes_max = qos0_bytes_max
        self.spilled_bytes_max = spilled_bytes_max
        self.sessions_bytes_max = sessions_bytes_max
        self.unreleased_bytes_max = unreleased_bytes_max
        self.retained_bytes_max = retained_bytes_max  # which ``retained`` counts itself
        self.waiting_bytes = 0
        self.held_back_bytes = 0  # of publishers: ``held_back``, ``inbound``
        self.fetching_bytes = 0  # being read from the log
        self.waiting_bytes_max = waiting_bytes_max
        self.unsent_bytes_max = unsent_bytes_max

    def has_room_for_unreleased(self) -> bool:
        """Return whether one more message may wait for its PUBREL."""
        return not 0 < self.unreleased_bytes_max <= self.unreleased_bytes

    def may_fetch(self, size_bytes: int) -> bool:
        """Return whether so many more bytes may be read from the log now, beside what is being
        read."""
        bytes_max = self.waiting_bytes_max // FETCHING_PART
        return not 0 < bytes_max < self.fetching_bytes + min(size_bytes, bytes_max // 2)

    # -- QoS 0 in queues -----------------------------------------------------------------

    def has_room_for_qos0(self) -> bool:
        """Return whether one more QoS 0 message may wait in a queue."""
        return not 0 < self.qos0_bytes_max <= self.qos0_bytes

    def add_qos0(self, delivery: Delivery) -> None:
        """A QoS 0 delivery joined a queue; its message counts once, in however many it waits."""
        self.qos0_bytes += DELIVERY_BYTES
        message = delivery.message
        if delivery.offset < 0 and message is not None:  # else the log has it
            if message.waiting == 0:
                self.qos0_bytes += message.size_bytes()
            message.waiting += 1

    def remove_qos0(self, delivery: Delivery) -> None:
        """It left its queue."""
        self.qos0_bytes -= DELIVERY_BYTES
        message = delivery.message
        if delivery.offset < 0 and message is not None:
            message.waiting -= 1
            if message.waiting == 0:
                self.qos0_bytes -= message.size_bytes()

    # -- packed queues -------------------------------------------------------------------

    def has_room_to_pack(self) -> bool:
        """Return whether one more delivery may be packed."""
        return not 0 < self.spilled_bytes_max <= self.packed_bytes

    def pack(self, deliveries: int) -> None:
        """So many more are packed; fewer if negative."""
        self.packed_bytes += deliveries * PACKED_BYTES

    # -- sessions ------------------------------------------------------------------------

    def has_room_for_sessions(self, given_up_bytes: int = 0) -> bool:
        """Return whether there may be one more session, subscription or will; if not, it is
        counted.

        Args:
            given_up_bytes: of what it takes the place of.
        """
        if 0 < self.sessions_bytes_max <= self.sessions_bytes - given_up_bytes:
            self.sessions_refused += 1
            return False
        return True

    def count_session(self, client_id: str, step: int) -> int:
        """A session began (``step`` 1) or ended (-1); return by how many bytes the sum changed."""
        grows_bytes = step * (_SESSION_BYTES + _CHARACTER_BYTES * len(client_id))
        self.sessions_bytes += grows_bytes
        return grows_bytes

    def count_subscription(self, topic_filter: str, step: int) -> int:
        """A subscription was made (``step`` 1) or ended (-1); as ``count_session``."""
        weight = _SUBSCRIPTION_BYTES + _CHARACTER_BYTES * len(topic_filter)
        grows_bytes = step * (weight + levels_bytes(topic_filter))
        self.sessions_bytes += grows_bytes
        return grows_bytes

    def count_will(self, size_bytes: int, step: int) -> int:
        """A will of this size was armed (``step`` 1) or is gone (-1); as ``count_session``."""
        grows_bytes = step * will_bytes(size_bytes)
        self.sessions_bytes += grows_bytes
        return grows_bytes
