"""The facts about one client and a topic: why the client gets its messages, or does not.

The facts are collected on request from state that exists anyway: subscriptions, permissions,
limits, the window, the queue and the latest drops. ``penstock.control.diagnosis`` draws the
conclusions. Each description is a dict of JSON values (docs/why.md).
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.api import OwnerDrops, Server, Session, SessionSubscription, SharedGroup
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import slug_of
from penstock.engine.values.limit_usage import LIMITS
from penstock.engine.values.message import Delivery
from penstock.engine.values.topics import is_shared, topic_matches, without_share_prefix
from penstock.operators.flow import FlowSnapshot
from penstock.operators.listing import (
    JsonObject,
    connection_of,
    is_bridge,
    retained_summary,
    session_summary,
)
from penstock.operators.recorded import is_recorded, recorded_events, recorded_events_about

FILTERS_LISTED_MAX: Final = 100
DELIVERIES_LISTED_MAX: Final = 20
WAITING_SEARCHED_MAX: Final = 1000
MEMBERS_LISTED_MAX: Final = 10
RECEIVERS_LISTED_MAX: Final = 100
GROUPS_LISTED_MAX: Final = 100

IN_FLIGHT: Final = "in_flight"
WAITING: Final = "waiting"
IN_GROUP: Final = "in_group"
DROPPED: Final = "dropped"


@final
class ReceiverWalk:
    """A walk over the sessions and groups whose filters match a topic, in search of one message.

    For a group, its queue is searched, then the windows of its connected members.

    Args:
        server: the broker.
        topic: a topic name.
        offset: the log offset of the message.
    """

    def __init__(self, server: Server, topic: str, offset: int) -> None:
        matches = server.router.trie.match_once(topic)
        self.found: list[JsonObject] = []
        self.count = len(matches.sessions) + len(matches.groups)
        self._server = server
        self._offset = offset
        self._sessions = [(match.session, match.subscriptions.qos) for match in matches.sessions]
        self._groups = list(matches.groups)

    @property
    def is_finished(self) -> bool:
        """Return whether all sessions and groups were visited, or ``RECEIVERS_LISTED_MAX``."""
        full = len(self.found) >= RECEIVERS_LISTED_MAX
        return full or not (self._sessions or self._groups)

    def step(self) -> None:
        """Visit the next session or group, and add it to ``found``."""
        if self._groups:
            self._visit_group(self._groups.pop(0))
        else:
            session, qos = self._sessions.pop(0)
            state = _state_in(self._server, session, self._offset)
            name = session.client_id
            self._add(name, "bridge" if is_bridge(session) else "client", qos, state)
            self.found[-1]["times"] = recorded_events_about(self._server, name, self._offset)
            self.found[-1]["is_recorded"] = is_recorded(self._server, name, self._offset)

    def _visit_group(self, group: SharedGroup) -> None:
        name = group.topic_filter
        for delivery in group.queue.backlog.queue.waiting(WAITING_SEARCHED_MAX):
            if delivery.offset == self._offset:
                self._add(name, "group", delivery.qos, IN_GROUP)
                return
        for member in group.members.connected_members:
            for entry in member.session.transmission.window.entries():
                if entry.offset == self._offset and entry.shared_origin is not None:
                    self._add(
                        f"{member.session.client_id} of {name}", "group", entry.qos, IN_FLIGHT
                    )
                    return
        self._add(
            name, "group", 2, _dropped_for(self._server.drops.group_drops, name, self._offset)
        )

    def _add(self, name: str, kind: str, qos: int, state: str) -> None:
        self.found.append({"name": name, "kind": kind, "qos": qos, "state": state})


@final
class MatchWalk:
    """A walk over the subscriptions of one client, in search of those that match a topic.

    Args:
        session: the session of the client; None if it has none.
        topic: a topic name; no subscription matches an empty one.
    """

    def __init__(self, session: Session | None, topic: str) -> None:
        self.found: list[SessionSubscription] = []
        self.is_finished = session is None or not topic
        self._session = session
        self._topic = topic
        self._filters = [] if session is None else list(session.subscriptions)
        self._seen = 0

    def step(self, visits: int) -> None:
        """Visit the next ``visits`` subscriptions, and add those that match to ``found``."""
        assert self._session is not None
        for topic_filter in self._filters[self._seen : self._seen + visits]:
            entry = self._session.subscriptions.get(topic_filter)
            if entry is not None and topic_matches(without_share_prefix(topic_filter), self._topic):
                self.found.append(entry)
        self._seen += visits
        self.is_finished = self._seen >= len(self._filters)


def explain(
    server: Server,
    client_id: str,
    topic: str,
    offsets: list[int],
    matching: list[SessionSubscription],
    now: Now,
) -> JsonObject:
    """Return the facts about one client and ``topic``.

    Args:
        server: the broker.
        client_id: the client identifier; it need not have a session.
        topic: a topic name; empty = only facts about the client.
        offsets: log offsets of messages of that topic; ``states`` in the result has their states.
        matching: the client's subscriptions that match the topic (``MatchWalk``).
        now: the current time.
    """
    session = server.registry.sessions.get(client_id)
    facts: JsonObject = {
        "client_id": client_id,
        "banned_because": _ban(server, client_id, session, now),
        "store_fails": server.context.store_failure != "",
        "draining": server.draining is not None,
        "topic": topic,
        "recorded": recorded_events(server, client_id),
    }
    if session is None:
        return facts
    connection = connection_of(server, session)
    facts["session"] = session_summary(server, session)
    facts["disconnected_because"] = session.disconnected_because
    flow = FlowSnapshot(session, connection, server.drops.counts_by_reason(client_id), now)
    facts["limits"] = [
        {"limit": LIMITS[number], "lasts_s": round(used.lasts_s, 3), "times": used.times}
        for number, used in enumerate(flow.limits)
        if used.reached
    ]
    if session.link is not None:
        facts["reads"] = session.link.has_room()
        facts["max_packet_size"] = session.link.max_packet_size_bytes
    facts["drops"] = _drops(server.drops.client_drops, client_id)
    facts["last_drops"] = _last_drops(server.drops.client_drops, client_id)
    facts["group_drops"] = _group_drops(server, session)
    entries = session.transmission.window.entries()
    facts["in_flight"] = [_delivery(entry) for entry in entries[:DELIVERIES_LISTED_MAX]]
    waiting = session.backlog.queue.waiting(WAITING_SEARCHED_MAX)
    facts["waiting"] = [_delivery(entry) for entry in waiting[:DELIVERIES_LISTED_MAX]]
    facts["filters"] = list(session.subscriptions)[:FILTERS_LISTED_MAX]
    if not topic:
        return facts
    facts["subscriptions"] = [_subscription(entry) for entry in matching]
    facts["groups"] = _groups(server, matching)
    permissions = session.permissions
    facts["may_receive"] = permissions is None or permissions.may_receive(topic)
    facts["may_publish"] = permissions is None or permissions.may_publish(topic)
    if permissions is not None:
        facts["receive_rule"] = permissions.explain(topic, False)
        facts["publish_rule"] = permissions.explain(topic, True)
    retained = server.router.retained.get(topic)
    facts["retained"] = None if retained is None else retained_summary(retained)
    facts["states"] = _states(server, client_id, matching, offsets, entries, waiting)
    return facts


def _ban(server: Server, client_id: str, session: Session | None, now: Now) -> str | None:
    connection = None if session is None else connection_of(server, session)
    address = "" if connection is None else connection.address
    username = None if session is None else session.username
    ban = server.bans.find_ban(address, username, client_id, now.monotonic_s)
    return None if ban is None else f"{ban.kind} {ban.value}: {ban.reason}"


def _delivery(entry: Delivery) -> JsonObject:
    return {
        "offset": entry.offset,
        "topic": "" if entry.message is None else entry.message.topic,
        "qos": entry.qos,
        "packet_id": entry.packet_id,
        "sent": entry.is_sent,
    }


def _subscription(entry: SessionSubscription) -> JsonObject:
    asked = entry.subscription
    return {"filter": asked.topic_filter, "qos": asked.qos, "no_local": asked.no_local}


def _drops(drops: OwnerDrops, name: str) -> JsonObject:
    return {slug_of(reason): number for reason, number in drops.counts_by_reason(name).items()}


def _last_drops(drops: OwnerDrops, name: str) -> list[JsonObject]:
    return [
        {"reason": slug_of(drop.reason), "topic": drop.topic, "offset": drop.offset}
        for drop in drops.last_drops_of(name)
    ]


def _group_drops(server: Server, session: Session) -> list[JsonObject]:
    """Return the drops of the client's shared subscriptions, of those that have any."""
    drops = server.drops.group_drops
    found: list[JsonObject] = []
    for name in session.outbound.shared_filters or {}:
        counts = _drops(drops, name)
        if counts:
            found.append({"filter": name, "drops": counts, "last_drops": _last_drops(drops, name)})
        if len(found) >= GROUPS_LISTED_MAX:
            break
    return found


def _groups(server: Server, matching: list[SessionSubscription]) -> list[JsonObject]:
    found: list[JsonObject] = []
    for entry in matching:
        topic_filter = entry.subscription.topic_filter
        group = server.router.sharing.groups.get(topic_filter) if is_shared(topic_filter) else None
        if group is not None:
            found.append(_group(group))
    return found


def _group(group: SharedGroup) -> JsonObject:
    members = group.members
    connected = [
        member.session.client_id for member in members.connected_members[:MEMBERS_LISTED_MAX]
    ]
    return {
        "filter": group.topic_filter,
        "members": len(members.by_session),
        "connected": len(members.connected_members),
        "connected_members": connected,
        "queue": group.queue.queue_length,
    }


def _state_in(server: Server, session: Session, offset: int) -> str:
    """Return the state of a message in a session: ``IN_FLIGHT``, ``WAITING``, or
    ``DROPPED:reason``.

    Return an empty text if it was delivered, or never was for this session.
    """
    for entry in session.transmission.window.entries():
        if entry.offset == offset:
            return IN_FLIGHT
    for delivery in session.backlog.queue.waiting(WAITING_SEARCHED_MAX):
        if delivery.offset == offset:
            return WAITING
    return _dropped_for(server.drops.client_drops, session.client_id, offset)


def _dropped_for(drops: OwnerDrops, name: str, offset: int) -> str:
    for drop in drops.last_drops_of(name):
        if drop.offset == offset:
            return f"{DROPPED}:{slug_of(drop.reason)}"
    return ""


def _states(
    server: Server,
    client_id: str,
    matching: list[SessionSubscription],
    offsets: list[int],
    entries: list[Delivery],
    waiting: list[Delivery],
) -> dict[str, str]:
    """Return the state of each message for the client, by offset: in flight, waiting, dropped …

    A message that was delivered, or never was for this client, is omitted. Only the first
    ``WAITING_SEARCHED_MAX`` messages of a queue and the latest drops are searched.
    """
    wanted = set(offsets)
    states: dict[str, str] = {}
    last_drops = server.drops.last_drops_of(client_id)
    for entry in matching:
        if is_shared(entry.subscription.topic_filter):
            last_drops += server.drops.group_drops.last_drops_of(entry.subscription.topic_filter)
    for drop in last_drops:
        if drop.offset in wanted:
            states[str(drop.offset)] = f"{DROPPED}:{slug_of(drop.reason)}"
    for entry in matching:
        group = server.router.sharing.groups.get(entry.subscription.topic_filter)
        if group is not None:
            for delivery in group.queue.backlog.queue.waiting(WAITING_SEARCHED_MAX):
                if delivery.offset in wanted:
                    states[str(delivery.offset)] = IN_GROUP
    for state, deliveries in ((WAITING, waiting), (IN_FLIGHT, entries)):
        for delivery in deliveries:
            if delivery.offset in wanted:
                states[str(delivery.offset)] = state
    return states
