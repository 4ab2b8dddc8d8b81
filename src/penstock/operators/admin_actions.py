"""The actions of an operator on a running broker: each is one function and notes one event.

::

      kick            DISCONNECT 0x98, the will is published; a session with an expiry stays
      remove_session  the session ends as if it had expired; its client is kicked first
      clear_retained  a retained message is removed, in memory and with the next commit
      ban, lift_ban   see ``bans``
      drain           see ``draining``

Events have the name of the operator (``by``); a user of the control socket has no name. ``kick``
and ``remove_session`` act on one session; the caller walks over many sessions in portions
(``listing``). Sessions of this broker's bridges are not changed: the settings define them.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.api import Draining, Server, Session
from penstock.engine.values.bans import ADDRESS, UNTIL_RESTART, Ban
from penstock.engine.values.clock import Now
from penstock.engine.values.event_kinds import ADMINISTERED, Event
from penstock.engine.values.event_kinds import BANNED as BANNED_EVENT
from penstock.operators.listing import connection_of, is_bridge
from penstock.protocol import reasons

BANNED: Final = "banned by an operator"
KICKED: Final = "disconnected by an operator"


def ban(
    server: Server, kind: str, value: str, for_s: float, why: str, now: Now, by: str = ""
) -> Ban:
    """Refuse a client identifier, user or address for ``for_s`` seconds; return the ban.

    Args:
        server: the broker.
        kind: one of ``bans.KINDS``.
        value: the client identifier, user name, address or network.
        for_s: the duration, seconds; 0 = until the broker stops.
        why: one sentence, for lists and the log.
        now: the time of the action.
        by: name of the operator; empty if it is not known.

    Raises:
        ValueError: ``kind`` is unknown, or ``value`` is not an address or network.
    """
    until_s = now.monotonic_s + for_s if for_s > 0.0 else UNTIL_RESTART
    made = server.bans.ban(kind, value, until_s, why or BANNED)
    event: Event = {"kind": kind, "value": made.value, "for_s": for_s}
    note_action(server, "ban", event, by)
    return made


def ban_source(server: Server, source: str, for_s: float, why: str, now: Now) -> None:
    """Refuse new connections of ``source``, which sent wrong passwords; existing ones stay."""
    server.bans.ban(ADDRESS, source, now.monotonic_s + for_s, why, is_automatic=True)
    events = server.context.events
    if events is not None:
        event: Event = {"kind": ADDRESS, "value": source, "for_s": for_s, "reason": why}
        events.note(BANNED_EVENT, event)


def lift_ban(server: Server, kind: str, value: str, by: str = "") -> bool:
    """Remove a ban; return whether there was one. Raises ValueError as ``ban`` does."""
    if not server.bans.lift(kind, value):
        return False
    event: Event = {"kind": kind, "value": value}
    note_action(server, "lift", event, by)
    return True


def kick(server: Server, session: Session, why: str, now: Now, by: str = "") -> bool:
    """End the connection of ``session``; return whether it had one that may be ended.

    Args:
        server: the broker.
        session: the session of the client.
        why: one sentence for the client and the log; empty for ``KICKED``.
        now: the time of the action.
        by: name of the operator; empty if it is not known.
    """
    connection = connection_of(server, session)
    if connection is None or is_bridge(session):
        return False
    event: Event = {
        "client": session.client_id,
        "user": session.username,
        "address": connection.address,
    }
    note_action(server, "kick", event, by)
    connection.close(reasons.ADMINISTRATIVE_ACTION, why or KICKED, now)
    return True


def remove_session(server: Server, session: Session, now: Now, by: str = "") -> bool:
    """Disconnect the client of ``session`` and end the session; return whether that was done.

    It is not done for a session that has ended already, or of a bridge.
    """
    if session.is_ended or is_bridge(session):
        return False
    event: Event = {
        "client": session.client_id,
        "user": session.username,
        "queue": session.queue_length,
        "window": session.window_length,
    }
    note_action(server, "remove", event, by)
    kick(server, session, "", now, by)
    if not session.is_ended:  # a session without an expiry interval ended with its connection
        server.registry.end(session, now)
    return True


def clear_retained(server: Server, topic: str, by: str = "") -> bool:
    """Remove the retained message of ``topic``; return whether there was one.

    Subscribers get no message about it.
    """
    if not server.router.retained.remove(topic):
        return False
    server.context.batch.put_retained(topic, None)
    event: Event = {"topic": topic}
    note_action(server, "clear", event, by)
    return True


def drain(server: Server, draining: Draining, by: str = "") -> None:
    """Refuse new clients, and send the connected ones to another server, ``per_s`` a second."""
    server.draining = draining
    event: Event = {
        "code": draining.reason_code,
        "server_reference": draining.server_reference,
        "per_s": draining.per_s,
    }
    note_action(server, "drain", event, by)


def end_drain(server: Server, by: str = "") -> bool:
    """Accept new clients again; return whether the broker was draining."""
    draining = server.draining
    if draining is None:
        return False
    server.draining = None
    event: Event = {"sent_away": draining.clients_sent_away}
    note_action(server, "end_drain", event, by)
    return True


def note_action(server: Server, act: str, event: Event, by: str = "") -> None:
    """Note the action ``act`` as an event, if events are configured; ``event`` has its details."""
    if server.context.events is not None:
        event["act"] = act
        if by:
            event["by"] = by
        server.context.events.note(ADMINISTERED, event)
