"""SUBSCRIBE and UNSUBSCRIBE: each filter judged by itself, and one answer for all of them.

::

      filter ─▶ judged ── no ─▶ its reason code in SUBACK
                  ╰─ yes ─▶ router, and the store if the session is ─▶ the granted QoS in SUBACK

The answer goes first; what the new subscriptions find retained follows it (``router``).
"""

from __future__ import annotations

from penstock.engine.answers import fits, reason_properties, refused_filters
from penstock.engine.clock import Now
from penstock.engine.events import SUBSCRIBED, UNSUBSCRIBED
from penstock.engine.limits import EngineLimits
from penstock.engine.link import Link
from penstock.engine.records import SubscriptionRecord
from penstock.engine.server import Server
from penstock.engine.session import Session, SessionSubscription
from penstock.engine.topics import (
    is_of_events,
    is_share_name,
    is_shared,
    is_topic_filter,
    share_name,
    unshared,
)
from penstock.protocol import reasons
from penstock.protocol.kinds import V5, V31
from penstock.protocol.packets import Suback, Subscribe, Unsuback, Unsubscribe

Added = tuple[SessionSubscription, bool]  # what was subscribed to, and whether it is new


def subscribe(
    packet: Subscribe, session: Session, server: Server, limits: EngineLimits, link: Link
) -> tuple[Suback, list[Added]]:
    """Subscribe ``session`` to what it may have: the answer, and what was added."""
    identifier = 0
    if packet.properties is not None and packet.properties.subscription_identifiers:
        identifier = packet.properties.subscription_identifiers[0]
    codes: list[int] = []
    added: list[Added] = []
    events = server.effects.events
    for subscription in packet.subscriptions:
        topic_filter = subscription.topic_filter
        code = _judge(topic_filter, session, server, limits, link.version)
        if code == reasons.SUCCESS:
            code = subscription.qos
            entry = SessionSubscription(subscription, identifier)
            added.append((entry, server.router.subscribe(session, entry)))
            if session.stored:
                server.effects.put_subscription(
                    SubscriptionRecord(session.number, topic_filter, subscription, identifier)
                )
        elif link.version == V31 and code == reasons.NOT_AUTHORIZED:
            code = subscription.qos  # v3.1 §3.8: "it must make a positive acknowledgement"
        elif link.version != V5:
            code = reasons.UNSPECIFIED_ERROR  # v3.1.1 knows 0x80 only [MQTT-3.9.3-2]
        codes.append(code)
        if events is not None:
            events.note(
                SUBSCRIBED, {"client": session.client_id, "filter": topic_filter, "code": code}
            )
    answer = Suback(packet.packet_id, codes)
    filters = [subscription.topic_filter for subscription in packet.subscriptions]
    answer.properties = reason_properties(link, refused_filters(filters, codes))
    if answer.properties is not None and not fits(answer, V5, link.max_packet_size_bytes):
        answer.properties = None  # [MQTT-3.9.2-1]
    return answer, added


def unsubscribe(
    packet: Unsubscribe, session: Session, server: Server, link: Link, now: Now
) -> Unsuback:
    """End subscriptions of ``session``: the answer."""
    codes: list[int] = []
    shared: set[str] = set()
    events = server.effects.events
    for topic_filter in packet.topic_filters:
        if server.router.unsubscribe(session, topic_filter):
            codes.append(reasons.SUCCESS)
            if events is not None:
                events.note(UNSUBSCRIBED, {"client": session.client_id, "filter": topic_filter})
            if is_shared(topic_filter):
                shared.add(topic_filter)
            if session.stored:
                server.effects.put_subscription(
                    SubscriptionRecord(session.number, topic_filter, None)
                )
        else:
            codes.append(reasons.NO_SUBSCRIPTION_EXISTED)
    if shared:
        server.router.sharing.unsubscribed(session, shared, now)
    answer = Unsuback(packet.packet_id, codes)
    answer.properties = reason_properties(link, refused_filters(packet.topic_filters, codes))
    if answer.properties is not None and not fits(answer, V5, link.max_packet_size_bytes):
        answer.properties = None  # [MQTT-3.11.2-1]
    return answer


def _judge(
    topic_filter: str,
    session: Session,
    server: Server,
    limits: EngineLimits,
    version: int,
) -> int:
    """The reason code to refuse a subscription with, or ``SUCCESS``."""
    if is_shared(topic_filter):
        sharing = server.router.sharing.options
        if not sharing.enabled or (version != V5 and not sharing.before_v5):
            return reasons.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if not is_share_name(share_name(topic_filter)):
            return reasons.TOPIC_FILTER_INVALID
    if not is_topic_filter(unshared(topic_filter), limits.topic_levels_max):
        return reasons.TOPIC_FILTER_INVALID
    is_new = topic_filter not in session.subscriptions
    if is_new and len(session.subscriptions) >= limits.subscriptions_per_session_max:
        return reasons.QUOTA_EXCEEDED
    permissions = session.permissions
    if permissions is None:
        if is_of_events(unshared(topic_filter)):  # what others do: by permission only
            return reasons.NOT_AUTHORIZED
    elif not permissions.may_subscribe(unshared(topic_filter)):
        return reasons.NOT_AUTHORIZED
    if is_new and not server.effects.kept.has_room_for_sessions():
        return reasons.QUOTA_EXCEEDED
    return reasons.SUCCESS
