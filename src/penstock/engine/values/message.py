"""Messages and deliveries.

A *message* is one published message: one object, even if many sessions get it. A *delivery* is the
transfer of one message to one session.

The MQTT 5 properties of a message are encoded bytes: forwarding copies them, and the log stores
them as they are. Two of them differ from delivery to delivery and are added when the packet is
written: the rest of the message expiry interval [MQTT-3.3.2-6], and the receiver's subscription
identifiers [MQTT-3.3.4-3].
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.values.clock import MICROSECONDS, Now

NOT_IN_LOG: Final = -1
SMALLEST_MESSAGE_BYTES: Final = 65  # by ``Message.size_bytes``

_PAYLOAD_FORMAT: Final = 0x01
_MESSAGE_EXPIRY: Final = 0x02
_SUBSCRIPTION_IDENTIFIER: Final = 0x0B


@mypyc_attr(acyclic=True)
@final
class Message:
    """One published message.

    Args:
        topic: topic name, without wildcards.
        payload: application bytes.
        qos: 0, 1 or 2, as published.
        retain: the RETAIN flag, as published.
        client_id: the publisher's client identifier.
        received_at_us: microseconds since the Unix epoch, UTC.
        properties: encoded MQTT 5 properties in ascending order of identifier, without
            topic alias and subscription identifiers; empty when there are none.
        offset: position in the log, or ``NOT_IN_LOG``.
        internal: whether the message is in the log only for a session, and in no stream: a retained
            message that a stored session got when it subscribed, a message of a group's queue in
            memory that a stored session took, or a message that waits for its PUBREL.
        topic_bytes: ``topic`` in UTF-8, if the caller has it.
        lead_us: how far ``received_at_us`` is ahead of the steady clock (``steady_clock``).
    """

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        client_id: str = "",
        received_at_us: int = 0,
        properties: bytes = b"",
        offset: int = NOT_IN_LOG,
        internal: bool = False,
        topic_bytes: bytes | None = None,
        lead_us: int = 0,
    ) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode() if topic_bytes is None else topic_bytes
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.client_id = client_id
        self.received_at_us = received_at_us
        self.lead_us = lead_us
        self.properties = properties
        self.offset = offset
        self.internal = internal
        self.waiting = 0  # queues that have it at QoS 0 while it is not in the log: see ``pool``
        self.deliveries_by_pool: dict[object, int] | None = None  # QoS 1 and 2: see ``pool``
        self._expiry_position = -1
        self.expires_at_us = 0  # on the steady clock; 0 = never
        if len(properties) > 0:
            self._expiry_position = _expiry_position(properties)
            self.set_received_at(received_at_us, lead_us)

    @property
    def steady_us(self) -> int:
        """Return the time at which the message was received, microseconds of the steady clock."""
        return self.received_at_us - self.lead_us

    def set_received_at(self, received_at_us: int, lead_us: int = 0) -> None:
        """Set the time of reception, from which the message expiry interval counts."""
        self.received_at_us = received_at_us
        self.lead_us = lead_us
        at = self._expiry_position
        if at >= 0:
            interval_s = int.from_bytes(self.properties[at : at + 4], "big")
            self.expires_at_us = received_at_us - lead_us + interval_s * MICROSECONDS

    def shift_lead(self, lead_us: int) -> None:
        """Date the message anew, before it is logged: the wall clock is ``lead_us`` ahead now."""
        self.received_at_us += lead_us - self.lead_us
        self.lead_us = lead_us

    def copy_for_session(self) -> Message:
        """Return an internal copy that is not in the log, where retention may remove the
        original."""
        return Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.client_id,
            self.received_at_us,
            self.properties,
            NOT_IN_LOG,
            internal=True,
            lead_us=self.lead_us,
        )

    def copy_as(self, topic: str, properties: bytes) -> Message:
        """Return a copy with another topic and other properties, which expires at the same time."""
        copy = Message(
            topic,
            self.payload,
            self.qos,
            self.retain,
            self.client_id,
            self.received_at_us,
            properties,
            self.offset,
            lead_us=self.lead_us,
        )
        copy.expires_at_us = self.expires_at_us
        return copy

    def copy_received_at(self, now: Now) -> Message:
        """Return a copy with ``now`` as the time of reception; the copy is not in the log."""
        return Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.client_id,
            now.wall_us,
            self.properties,
            lead_us=now.lead_us,
        )

    def is_expired(self, steady_us: int) -> bool:
        """Return whether the message expiry interval has passed at ``steady_us``
        [MQTT-3.3.2-5]."""
        return 0 < self.expires_at_us <= steady_us

    def properties_for(self, steady_us: int, subscription_ids: tuple[int, ...]) -> bytes:
        """Return the property bytes of one delivery sent at ``steady_us``."""
        encoded = self.properties
        at = self._expiry_position
        if at >= 0:
            left_s = max(0, (self.expires_at_us - steady_us + MICROSECONDS - 1) // MICROSECONDS)
            encoded = encoded[:at] + left_s.to_bytes(4, "big") + encoded[at + 4 :]
        if subscription_ids:  # there may be thousands
            encoded += b"".join([_subscription_identifier(one) for one in subscription_ids])
        return encoded

    def size_bytes(self) -> int:
        """Return about how many bytes of memory the message takes, for limits."""
        return len(self.topic_bytes) + len(self.payload) + len(self.properties) + 64


def _expiry_position(properties: bytes) -> int:
    """Return the index of the four bytes of the message expiry interval, or -1.

    Properties are encoded in ascending order, so only the two-byte payload format
    indicator (0x01) can stand before the message expiry interval (0x02).
    """
    at = 2 if properties[0] == _PAYLOAD_FORMAT else 0
    if len(properties) > at and properties[at] == _MESSAGE_EXPIRY:
        return at + 1
    return -1


def _subscription_identifier(identifier: int) -> bytes:
    encoded = bytearray((_SUBSCRIPTION_IDENTIFIER,))
    while identifier > 0x7F:
        encoded.append(identifier & 0x7F | 0x80)
        identifier >>= 7
    encoded.append(identifier)
    return bytes(encoded)


def is_utf8(payload: bytes) -> bool:
    """Return whether ``payload`` is UTF-8, as payload format indicator 1 demands (v5
    §3.3.2.3.2)."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


@mypyc_attr(acyclic=True)
@final
class SharedOrigin:
    """The origin of a delivery of a shared subscription, to whose queue it may be returned.

    Args:
        topic_filter: the shared subscription, ``$share/{group}/{filter}``.
        qos: the QoS of the message, as published.
        retain: the RETAIN flag, as published.
    """

    def __init__(self, topic_filter: str, qos: int, retain: bool) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.retain = retain

    def kind(self) -> tuple[str, int, bool]:
        """Return the durable form: topic filter, QoS and RETAIN."""
        return (self.topic_filter, self.qos, self.retain)


@mypyc_attr(acyclic=True)
@final
class RoutingKey:
    """The properties of a message by which a shared subscription selects a member."""

    def __init__(self, topic: str, topic_bytes: bytes, client_id: str) -> None:
        self.topic = topic
        self.topic_bytes = topic_bytes
        self.client_id = client_id


def routing_key_of(message: Message) -> RoutingKey:
    """Return the routing key of ``message``, by which a shared subscription selects a member."""
    return RoutingKey(message.topic, message.topic_bytes, message.client_id)


@mypyc_attr(acyclic=True)
@final
class Delivery:
    """One message on its way to one session.

    ``message`` is None while the body is in the log only: a queue of a million messages for an
    offline client has offsets, not bodies. ``sequence`` numbers the stored deliveries of a session
    from 1; 0 means that this delivery is not stored (QoS 0, or a session that ends with its
    connection). ``shared_origin`` is set in the window of a member of a shared subscription, to
    whose queue the delivery may be returned. In the in-flight window a delivery has a packet
    identifier, and a state that ``window`` defines.
    """

    def __init__(
        self,
        message: Message | None,
        offset: int,
        qos: int,
        retain: bool = False,
        subscription_ids: tuple[int, ...] = (),
        sequence: int = 0,
    ) -> None:
        self.message = message
        self.offset = offset
        self.qos = qos
        self.retain = retain
        self.subscription_ids = subscription_ids
        self.sequence = sequence
        self.shared_origin: SharedOrigin | None = None
        self.routing_key: RoutingKey | None = None  # in a group's queue, once skipped
        self.size_bytes = 0  # of the message; set when it is queued
        self.is_removed = False  # removed from the middle of a lane, whose list still contains it
        self.is_in_account = False  # in the window, and counted in its account
        self.is_unobserved = False  # it has no events of its own, see ``Events.has_events``
        self.packet_id = 0  # in the window
        self.page = 0  # the page of the window in which it is stored
        self.state = 0  # in the window
        self.is_sent = False  # on the current connection
        self.is_new_to_receiver = False  # the receiver lost its session after this was sent
        self.sent_us = 0  # when its last packet was sent, for MQTT 3.1

    def enter_window(self, packet_id: int, state: int, sent: bool) -> None:
        """Set the fields of a delivery that joins the in-flight window.

        Args:
            packet_id: its packet identifier, 1..65535.
            state: its state, as ``window`` defines.
            sent: whether it is sent on the current connection.
        """
        self.packet_id = packet_id
        self.state = state
        self.is_sent = sent
        self.is_new_to_receiver = False
        self.sent_us = 0

    def needs_log(self, is_stored: bool) -> bool:
        """Return whether the log must keep the message.

        A stored session needs it there, because it releases bodies while its client is offline;
        other sessions need it if the body is not in memory.
        """
        if self.is_removed:
            return False
        return is_stored or self.message is None

    def evict_to_log(self) -> None:
        """Release the body if the message is in the log."""
        if self.offset >= 0:
            self.message = None
