"""SUBSCRIBE and UNSUBSCRIBE: each filter is checked by itself; one packet answers for all.

::

      filter ─▶ allowed? ── no ─▶ its reason code in SUBACK
                  ╰─ yes ─▶ router, and store if the session is stored ─▶ granted QoS in SUBACK

The answer is sent first; the retained messages for new subscriptions follow it (``router``).

One packet may have tens of thousands of filters, so it is handled in steps, one filter in each, and
the connection takes no more steps in a turn than its share allows. The client's next packets wait,
undecoded, for the last step. If the client disconnects meanwhile, there is no answer, and the
remaining filters are not handled::

      packet ─▶ step step step … ─ share used up, next turn ─▶ step … ─▶ SUBACK ─▶ retained …
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.connection.reason_strings import reason_properties
from penstock.engine.server.server import Server
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values.clock import Now
from penstock.engine.values.event_kinds import SUBSCRIBED, UNSUBSCRIBED
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.records import SubscriptionRecord
from penstock.engine.values.refusals import fits, refused_filters_text
from penstock.engine.values.topics import (
    is_events_filter,
    is_share_name,
    is_shared,
    is_topic_filter,
    share_name,
    without_share_prefix,
)
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.kinds import V5, V31
from penstock.protocol.packets import (
    Packet,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)

FILTER_WORK: Final = 20  # the work of a filter in units of ``work_budget``


class Request:
    """A SUBSCRIBE or UNSUBSCRIBE that is being handled.

    Args:
        session: the session of the client.
        server: the broker.
        link: the link of the client's connection.
    """

    def __init__(self, session: Session, server: Server, link: Link) -> None:
        self.is_finished = False  # whether no step is left
        self.answer: Packet | None = None  # set after the last filter, until ``take_answer``
        self._session = session
        self._server = server
        self._link = link
        self._position = 0  # number of handled filters

    def step(self, now: Now) -> None:
        """Handle the next filter. A subclass overrides it."""
        raise NotImplementedError

    def take_answer(self) -> Packet | None:
        """Remove and return the answer, which is set once the last filter was handled; else
        None."""
        answer = self.answer
        self.answer = None
        return answer


@final
class SubscribeHandler(Request):
    """A SUBSCRIBE: handles its filters, answers, then delivers the retained messages of each.

    Args:
        packet: the received packet.
        session: the session of the client.
        server: the broker.
        limits: the limits of the connection.
        link: the link of the client's connection.
    """

    def __init__(
        self, packet: Subscribe, session: Session, server: Server, limits: EngineLimits, link: Link
    ) -> None:
        super().__init__(session, server, link)
        self._packet = packet
        self._limits = limits
        self._identifier = 0
        if packet.properties is not None and packet.properties.subscription_identifiers:
            self._identifier = packet.properties.subscription_identifiers[0]
        self._codes: list[int] = []
        self._subscribed_entries: list[SessionSubscription] = []
        self._is_new: list[bool] = []  # for each entry: whether it replaced none
        self._delivered_count = 0  # entries whose retained messages were requested

    def step(self, now: Now) -> None:
        """Subscribe to the next filter; after the last one, deliver the retained messages of the
        next subscription."""
        subscriptions = self._packet.subscriptions
        if self._position < len(subscriptions):
            self._subscribe(subscriptions[self._position])
            self._position += 1
            if self._position == len(subscriptions):
                self.answer = self._suback()
                self.is_finished = not self._subscribed_entries
            self._server.context.turn.work_budget.work_done += FILTER_WORK
            return
        self._deliver_retained(now)
        self._delivered_count += 1
        self.is_finished = self._delivered_count == len(self._subscribed_entries)

    def _subscribe(self, subscription: Subscription) -> None:
        server = self._server
        session = self._session
        version = self._link.version
        topic_filter = subscription.topic_filter
        code = _subscribe_code(topic_filter, session, server, self._limits, version)
        if code != reasons.SUCCESS:
            server.refused_filters.note(session.client_id, topic_filter, code)
        if code == reasons.SUCCESS:
            subscription.qos = min(subscription.qos, self._limits.offers.qos_max)
            code = subscription.qos
            if self._link.is_bridge:  # No Local is not for shared subscriptions [MQTT-3.8.3-4]
                subscription.no_local = not is_shared(topic_filter)
                subscription.retain_as_published = True
            entry = SessionSubscription(subscription, self._identifier)
            self._subscribed_entries.append(entry)
            self._is_new.append(server.router.subscribe(session, entry))
            if session.is_stored:
                server.context.batch.put_subscription(
                    SubscriptionRecord(session.number, topic_filter, subscription, self._identifier)
                )
        elif version == V31 and code == reasons.NOT_AUTHORIZED:
            code = subscription.qos  # v3.1 §3.8: "it must make a positive acknowledgement"
        elif version != V5:
            code = reasons.UNSPECIFIED_ERROR  # v3.1.1 has no other code [MQTT-3.9.3-2]
        self._codes.append(code)
        events = server.context.events
        if events is not None:
            events.note(
                SUBSCRIBED, {"client": session.client_id, "filter": topic_filter, "code": code}
            )

    def _suback(self) -> Suback:
        link = self._link
        answer = Suback(self._packet.packet_id, self._codes)
        filters = [subscription.topic_filter for subscription in self._packet.subscriptions]
        answer.properties = reason_properties(link, refused_filters_text(filters, self._codes))
        if answer.properties is not None and not fits(answer, V5, link.max_packet_size_bytes):
            answer.properties = None  # [MQTT-3.9.2-1]
        return answer

    def _deliver_retained(self, now: Now) -> None:
        entry = self._subscribed_entries[self._delivered_count]
        is_new = self._is_new[self._delivered_count]
        self._server.context.turn.work_budget.work_done += 1
        self._server.router.deliver_retained(self._session, entry, is_new, now)


@final
class UnsubscribeHandler(Request):
    """An UNSUBSCRIBE: handles its filters, then answers.

    Args:
        packet: the received packet.
        session: the session of the client.
        server: the broker.
        link: the link of the client's connection.
    """

    def __init__(self, packet: Unsubscribe, session: Session, server: Server, link: Link) -> None:
        super().__init__(session, server, link)
        self._packet = packet
        self._codes: list[int] = []

    def step(self, now: Now) -> None:
        """Unsubscribe from the next filter."""
        del now
        filters = self._packet.topic_filters
        self._unsubscribe(filters[self._position])
        self._position += 1
        if self._position == len(filters):
            self.answer = self._unsuback()
            self.is_finished = True
        self._server.context.turn.work_budget.work_done += FILTER_WORK

    def _unsubscribe(self, topic_filter: str) -> None:
        server = self._server
        session = self._session
        if not server.router.unsubscribe(session, topic_filter):
            self._codes.append(reasons.NO_SUBSCRIPTION_EXISTED)
            return
        self._codes.append(reasons.SUCCESS)
        events = server.context.events
        if events is not None:
            events.note(UNSUBSCRIBED, {"client": session.client_id, "filter": topic_filter})
        if session.is_stored:
            server.context.batch.put_subscription(
                SubscriptionRecord(session.number, topic_filter, None)
            )

    def _unsuback(self) -> Unsuback:
        packet = self._packet
        link = self._link
        answer = Unsuback(packet.packet_id, self._codes)
        answer.properties = reason_properties(
            link, refused_filters_text(packet.topic_filters, self._codes)
        )
        if answer.properties is not None and not fits(answer, V5, link.max_packet_size_bytes):
            answer.properties = None  # [MQTT-3.11.2-1]
        return answer


def _subscribe_code(
    topic_filter: str,
    session: Session,
    server: Server,
    limits: EngineLimits,
    version: int,
) -> int:
    """Return ``SUCCESS`` if the session may subscribe to ``topic_filter``, else the reason code."""
    accepts_controls = limits.control_characters_in_topics
    if is_shared(topic_filter):
        sharing = server.router.sharing.options
        if not sharing.enabled or (version != V5 and not sharing.before_v5):
            return reasons.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if not is_share_name(share_name(topic_filter), accepts_controls):
            return reasons.TOPIC_FILTER_INVALID
    bare_filter = without_share_prefix(topic_filter)
    if not is_topic_filter(bare_filter, limits.topic_levels_max, accepts_controls):
        return reasons.TOPIC_FILTER_INVALID
    is_new = topic_filter not in session.subscriptions
    if is_new and len(session.subscriptions) >= limits.subscriptions_per_session_max:
        return reasons.QUOTA_EXCEEDED
    permissions = session.permissions
    if permissions is None:
        if is_events_filter(
            without_share_prefix(topic_filter)
        ):  # events of all clients need a permission
            return reasons.NOT_AUTHORIZED
    elif not permissions.may_subscribe(without_share_prefix(topic_filter)):
        return reasons.NOT_AUTHORIZED
    if is_new and not session.account.has_room_for_sessions():
        return reasons.QUOTA_EXCEEDED
    return reasons.SUCCESS
