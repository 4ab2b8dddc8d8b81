"""The mount point of a listener: its clients see one branch of the topic tree as the whole tree.

::

      client: a/b ── mounted ──▶ tenant/a/b ── broker ── tenant/c ──▶ c :client
                 PUBLISH, will, SUBSCRIBE, UNSUBSCRIBE            PUBLISH

Topics are changed when a packet is received and when a PUBLISH is sent, so that everything between
(permissions, retained messages, shared subscriptions, the log) uses the whole topic. All topics of
the client are below the mount point, also those that begin with ``$``: it cannot see ``$SYS``.
Topics in payloads and properties are not changed, not even the response topic.

A client may have matching subscriptions for messages that are not below the mount point:
``tenant/#`` matches ``tenant`` too, ``tenant/`` would have an empty topic, and a session may have
subscribed through another listener. Such messages are not sent.
"""

from __future__ import annotations

from penstock.engine.values.message import Message
from penstock.engine.values.topics import (
    TOPIC_BYTES_MAX,
    is_shared,
    share_name,
    without_share_prefix,
)
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.packets import Connect, Packet, Publish, Subscribe, Unsubscribe


def mount(packet: Packet, mount_point: str) -> None:
    """Prefix every topic and filter of a packet from a client with ``mount_point``.

    Raises:
        RemoteProtocolError: 0x90, a topic with the prefix is longer than MQTT allows.
    """
    if isinstance(packet, Publish):
        if packet.topic:  # else the packet has a topic alias, whose topic was prefixed before
            packet.topic = _prefixed(packet.topic, mount_point)
    elif isinstance(packet, Connect):
        if packet.will is not None:
            packet.will.topic = _prefixed(packet.will.topic, mount_point)
    elif isinstance(packet, Subscribe):
        for subscription in packet.subscriptions:
            subscription.topic_filter = _prefixed_filter(subscription.topic_filter, mount_point)
    elif isinstance(packet, Unsubscribe):
        packet.topic_filters = [_prefixed_filter(one, mount_point) for one in packet.topic_filters]


def without_mount_point(message: Message, mount_point: str) -> Message | None:
    """Return a copy of ``message`` whose topic has no ``mount_point``; None if the topic is not
    below it."""
    topic = message.topic
    if not topic.startswith(mount_point) or topic == mount_point:
        return None
    return message.copy_as(topic[len(mount_point) :], message.properties)


def _prefixed(topic: str, mount_point: str) -> str:
    whole = mount_point + topic
    if len(whole.encode()) > TOPIC_BYTES_MAX:
        raise RemoteProtocolError(reasons.TOPIC_NAME_INVALID, "the topic is too long")
    return whole


def _prefixed_filter(topic_filter: str, mount_point: str) -> str:
    rest = without_share_prefix(topic_filter)
    if not rest:  # malformed: SUBSCRIBE or UNSUBSCRIBE refuses it later
        return topic_filter
    whole = _prefixed(rest, mount_point)
    if not is_shared(topic_filter):
        return whole
    return f"$share/{share_name(topic_filter)}/{whole}"
