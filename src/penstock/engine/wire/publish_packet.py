"""The PUBLISH packet of one delivery: its properties, its topic alias, and the check of its size.

::

      message ─▶ MQTT 5: the remaining expiry interval, subscription identifiers, topic alias
              ─▶ encoded ── larger than the peer accepts ─▶ not sent [MQTT-3.1.2-24]
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.engine.wire.aliases import OutboundAliases
from penstock.engine.wire.link import Link
from penstock.engine.wire.packet_buffer import PacketBuffer
from penstock.errors import LocalProtocolError
from penstock.protocol.kinds import V5


def add_publish(
    buffer: PacketBuffer,
    link: Link,
    message: Message,
    qos: int,
    retain: bool,
    duplicate: bool,
    packet_id: int,
    subscription_ids: tuple[int, ...],
    batch: int,
    now: Now,
) -> i64:
    """Append the PUBLISH of a delivery to ``buffer``, and count it.

    Nothing is appended if the packet would be larger than the peer or MQTT allows.

    Args:
        buffer: the buffer of the link to which the packet is written.
        link: the link to the receiver.
        message: the message, in the form for this receiver.
        qos: QoS of this delivery, 0..2.
        retain: the RETAIN flag to send.
        duplicate: the DUP flag to send: the message is sent again.
        packet_id: 0 for QoS 0.
        subscription_ids: identifiers of the subscriptions that matched.
        batch: the link's batch with which the packet will be sent; see ``aliases``.
        now: the time of the turn.

    Returns:
        The size of the packet in bytes; 0 = nothing was appended.
    """
    version = link.version
    properties = b""
    size_bytes: i64 = 0
    try:
        if version == V5:
            properties = message.properties
            if message.expires_at_us > 0 or len(subscription_ids) > 0:
                properties = message.properties_for(now.steady_us, subscription_ids)
            if link.aliases is not None and batch >= 0:
                size_bytes = _add_with_alias(
                    buffer,
                    link,
                    link.aliases,
                    message,
                    qos,
                    retain,
                    duplicate,
                    packet_id,
                    properties,
                    batch,
                )
        if size_bytes == 0:
            size_bytes = buffer.add_publish(
                message.topic_bytes,
                message.payload,
                qos,
                retain,
                duplicate,
                packet_id,
                version,
                properties,
                link.max_packet_size_bytes,  # [MQTT-3.1.2-24] [MQTT-3.1.2-25]
            )
    except LocalProtocolError:  # with the added properties it is larger than MQTT allows
        return 0
    if size_bytes > 0:
        counters = link.counters
        counters.messages_sent.count(qos)
        counters.publish_bytes_sent += len(message.payload)
    return size_bytes


def _add_with_alias(
    buffer: PacketBuffer,
    link: Link,
    aliases: OutboundAliases,
    message: Message,
    qos: int,
    retain: bool,
    duplicate: bool,
    packet_id: int,
    properties: bytes,
    batch: int,
) -> i64:
    """Append the PUBLISH with a topic alias; return its size in bytes, 0 if it was not appended.

    It is not appended if its topic has no alias, or if it is too large for the peer with the alias;
    then no alias is defined.
    """
    topic = message.topic
    last_sent_batch = link.sealed_batches - link.uncommitted_batches
    alias = aliases.known(topic, batch, last_sent_batch)
    defines = len(alias) == 0
    if defines:
        alias = aliases.propose(topic, batch, last_sent_batch)
        if len(alias) == 0:
            return 0
    size_bytes = buffer.add_publish(
        message.topic_bytes if defines else b"",
        message.payload,
        qos,
        retain,
        duplicate,
        packet_id,
        link.version,
        properties + alias,
        link.max_packet_size_bytes,
    )
    if defines and size_bytes > 0:
        aliases.define(topic, batch, last_sent_batch)
    return size_bytes
