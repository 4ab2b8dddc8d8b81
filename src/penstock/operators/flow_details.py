"""The window and the queue of one client, entry by entry, as a value for a drawing.

The value is computed on request, and bounded: of a long window it has the states of the oldest
entries, and the number of entries in each state. docs/control.md explains each name.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.api import Lane, Server, Session
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import slug_of
from penstock.engine.values.limit_usage import LIMITS
from penstock.engine.values.message import Delivery
from penstock.engine.values.priorities import PRIORITY_MASK
from penstock.engine.values.records import AWAIT_PUBACK, AWAIT_PUBREC
from penstock.operators.flow import FlowSnapshot
from penstock.operators.listing import JsonObject, connection_of
from penstock.operators.ranking import ranking_entry, update_rates

PLACES_LISTED_MAX: Final = 1000
FILTERS_LISTED_MAX: Final = 100

PUBACK_DUE: Final = "a"
PUBREC_DUE: Final = "r"
PUBCOMP_DUE: Final = "c"
SEND_AGAIN: Final = "s"  # sent on an earlier connection, and not yet on this one


def flow_details(server: Server, session: Session, now: Now) -> JsonObject:
    """Return the flow of one client: its ranking entry, window, queue, limits and drops."""
    link = session.link
    if link is not None:
        update_rates(link, now)
    connection = connection_of(server, session)
    drops = server.drops.counts_by_reason(session.client_id)
    flow = FlowSnapshot(session, connection, drops, now)
    details = ranking_entry(server, session, now)
    states = [_state(entry) for entry in session.transmission.window.entries()]
    details["places"] = "".join(states[:PLACES_LISTED_MAX])
    details["places_by_state"] = {
        state: states.count(state) for state in (PUBACK_DUE, PUBREC_DUE, PUBCOMP_DUE, SEND_AGAIN)
    }
    details["client_receive_maximum"] = flow.client_receive_maximum
    details["queue_by_priority"] = _by_priority(session)
    details["queue_qos0"] = session.backlog.queue.qos0_count
    details["queue_bytes_max"] = flow.queue_bytes_max
    details["inbound"] = flow.inbound_unacknowledged
    details["receive_maximum"] = flow.receive_maximum
    details["awaiting_release"] = flow.awaiting_release
    details["unsent_bytes_max"] = 0 if link is None else link.pending_bytes_max
    details["reads"] = None if link is None else link.has_room()
    details["pending_publishes"] = 0 if connection is None else connection.pending_publish_count
    details["limits"] = [
        {
            "limit": LIMITS[number],
            "times": used.times,
            "total_s": round(used.total_s, 3),
            "lasts_s": round(used.lasts_s, 3),
        }
        for number, used in enumerate(flow.limits)
        if used.times > 0
    ]
    details["drops"] = {slug_of(reason): number for reason, number in sorted(drops.items())}
    details["filters"] = list(session.subscriptions)[:FILTERS_LISTED_MAX]
    return details


def _state(entry: Delivery) -> str:
    if not entry.is_sent:
        return SEND_AGAIN
    if entry.state == AWAIT_PUBACK:
        return PUBACK_DUE
    return PUBREC_DUE if entry.state == AWAIT_PUBREC else PUBCOMP_DUE


def _rank(lane: Lane) -> int:
    return lane.rank


def _by_priority(session: Session) -> JsonObject:
    """Return the number of queued messages by priority, the highest priority first."""
    lanes = sorted(session.backlog.queue.lanes(), key=_rank, reverse=True)
    counts: JsonObject = {}
    for lane in lanes:
        if lane.count > 0:
            counts[str(lane.number & PRIORITY_MASK)] = lane.count
    return counts
