"""Sessions and retained messages as values for operators, and the walk over sessions.

These functions change nothing. A walk visits a limited number of sessions in a step and has a
cursor, so that a list of a million sessions delays no client (``session_index``). Each session or
message is described by a dict of JSON values, which docs/control.md explains.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from msgspec.structs import asdict

from penstock.engine.api import Server, ServerConnection, Session
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.drop_reasons import slug_of
from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.engine.values.message import Message
from penstock.operators.selection import SessionSelection, since_us
from penstock.operators.session_summary import SessionSummary

JsonObject: TypeAlias = dict[str, object]

CHARACTERS_MAX: Final = 20_000
"""Characters of client identifiers and user names after which a step of a walk ends."""

SUBSCRIPTIONS_LISTED_MAX: Final = 1000
SUBSCRIPTION_BYTES_LISTED_MAX: Final = 1_048_576


@final
class SessionWalk:
    """A walk over the sessions of a broker, by number.

    Args:
        server: the broker of the sessions.
        selection: the conditions that selected sessions meet.
        cursor: the number of the last session that was visited; 0 = begin with the first.
    """

    def __init__(self, server: Server, selection: SessionSelection, cursor: int = 0) -> None:
        self.cursor = cursor
        self.is_finished = False
        self._server = server
        self._selection = selection

    def step(self, visits: int, now: Now) -> list[Session]:
        """Visit the next sessions, at most ``visits``; return those that are selected."""
        found: list[Session] = []
        seen = self._server.registry.index.sessions_after(self.cursor, visits)
        characters = 0
        for session in seen:
            if characters > CHARACTERS_MAX:
                return found
            characters += len(session.client_id) + len(session.username or "")
            self.cursor = session.number
            if self._selection.has(session, connection_of(self._server, session), now):
                found.append(session)
        if len(seen) < visits:
            self.is_finished = True
        return found


def connection_of(server: Server, session: Session) -> ServerConnection | None:
    """Return the connection of a client's session; None while it is offline, and for a bridge."""
    if session.link is None:
        return None
    connection = server.connections.get(session.client_id)
    return connection if isinstance(connection, ServerConnection) else None


def is_bridge(session: Session) -> bool:
    """Return whether ``session`` is that of a configured bridge, which operators cannot change.

    The session of a bridge that was removed from the settings is an ordinary session.
    """
    return session.is_of_settings


def session_summary(server: Server, session: Session) -> SessionSummary:
    """Return the description of a session in a list."""
    connection = connection_of(server, session)
    lead_us = server.context.batch.lead_us
    since = since_us(session, connection)
    backlog = session.backlog
    return SessionSummary(  # in the order of its fields: names would cost as much as all the rest
        session.client_id,
        session.username,
        session.link is not None,
        None if connection is None else connection.address,
        session.limits_name,
        0 if connection is None else connection.version,
        since + lead_us if since > 0 else 0,
        expires_at_us(session, lead_us),
        session.expiry_interval_s,
        session.window_length,
        session.transmission.window_size,
        session.queue_length,
        backlog.queue_length_max,
        backlog.queue_bytes,
        len(session.subscriptions),
        server.drops.count_of(session.client_id),
        is_bridge(session),
    )


def session_details(server: Server, session: Session) -> JsonObject:
    """Return the full description of one session, with at most ``SUBSCRIPTIONS_LISTED_MAX``
    subscriptions and ``SUBSCRIPTION_BYTES_LISTED_MAX`` of filters."""
    description: JsonObject = asdict(session_summary(server, session))
    filters: list[JsonObject] = []
    size_bytes = 0
    for topic_filter, entry in session.subscriptions.items():
        size_bytes += len(topic_filter)
        if len(filters) >= SUBSCRIPTIONS_LISTED_MAX or size_bytes > SUBSCRIPTION_BYTES_LISTED_MAX:
            break
        asked = entry.subscription
        subscription: JsonObject = {
            "filter": topic_filter,
            "qos": asked.qos,
            "no_local": asked.no_local,
            "retain_as_published": asked.retain_as_published,
            "identifier": entry.identifier,
        }
        group = server.router.sharing.groups.get(topic_filter)
        if group is not None:
            subscription["queue"] = group.queue.queue_length
            subscription["queue_max"] = group.queue.backlog.queue_length_max
        filters.append(subscription)
    description["filters"] = filters
    drops: JsonObject = {}
    for reason, number in sorted(server.drops.counts_by_reason(session.client_id).items()):
        drops[slug_of(reason)] = number
    description["drops"] = drops
    return description


def expires_at_us(session: Session, lead_us: int) -> int | None:
    """Return when the session expires unless its client connects, microseconds since the Unix
    epoch.

    Return None while the client is connected, and for a session that never expires.
    """
    if session.link is not None or session.expiry_interval_s == NEVER_EXPIRES_S:
        return None
    return session.disconnected_at_us + session.expiry_interval_s * MICROSECONDS + lead_us


def retained_summary(message: Message) -> JsonObject:
    """Return the description of a retained message in a list."""
    description: JsonObject = {
        "topic": message.topic,
        "bytes": len(message.payload),
        "qos": message.qos,
        "client_id": message.client_id,
        "received_at_us": message.received_at_us,
    }
    return description
