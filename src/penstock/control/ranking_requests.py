"""The requests of `penstock top`: a ranking of sessions by a measure, and the details of one
session.

Both requests change nothing. A ranking looks at every session, so the broker computes one at a time
and gives it a twentieth of its event loop's time (``services.rankings``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.control.admin_requests import Limit, SessionFilter
from penstock.operators.session_summary import SessionSummary

Measure = Literal["limited", "rate", "queue", "window", "unsent", "dropped"]
"""The measure of a ranking: how long a client has been at a limit (limited), bytes a second (rate),
messages queued, messages in flight (window), bytes that it has not read (unsent), messages
dropped."""


class RankSessions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="rank", tag_field="do"
):
    """Return the ``limit`` sessions with the greatest values of a measure; ``done`` is a
    ``Ranking``."""

    measure: Measure = "limited"
    filter: SessionFilter = SessionFilter()
    limit: Limit = 50


class CurrentLimit(msgspec.Struct, frozen=True):
    """A limit that a client is at now.

    Attributes:
        limit: ``window``, ``write_buffer``, ``queue``, ``inbound``, ``rate_limit`` or
            ``full_queues``.
        lasts_s: for how many seconds already; 0 for ``rate_limit`` and ``full_queues``, whose
            beginning is not known.
    """

    limit: str
    lasts_s: float


class RankedSession(SessionSummary, frozen=True, kw_only=True, gc=True):
    """A session in a ranking: as in a list, with its bytes and limits; docs/control.md explains
    each name."""

    received_bytes: int
    sent_bytes: int
    received_bytes_per_s: float
    sent_bytes_per_s: float
    unsent_bytes: int
    limited_by: list[CurrentLimit]


class Ranking(msgspec.Struct, frozen=True):
    """The outcome of a ranking.

    Attributes:
        entries: the sessions with the greatest values, the greatest first.
        selected: the number of sessions that were ranked.
        took_s: how long the ranking took, in seconds, other work of the loop included.
    """

    entries: list[RankedSession]
    selected: int
    took_s: float


class ShowFlow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="flow", tag_field="do"):
    """Return the window and the queue of one client; ``done`` is ``FlowDetails``, or null if there
    is no such session."""

    client_id: str


class LimitUse(msgspec.Struct, frozen=True):
    """A limit that a client has reached.

    Attributes:
        limit: ``window``, ``write_buffer``, ``queue`` or ``inbound``.
        times: how often the client has reached it.
        total_s: how long the client was at the limit, over all times, in seconds.
        lasts_s: for how many seconds the client is at the limit now; 0: it is not.
    """

    limit: str
    times: int
    total_s: float
    lasts_s: float


class FlowDetails(RankedSession, frozen=True, kw_only=True):
    """The window and the queue of one client, in detail.

    Attributes:
        places: a letter for each message in flight, the oldest first, at most 1,000: "a" PUBACK is
            due, "r" PUBREC, "c" PUBCOMP, "s" it is sent again once there is room.
        places_by_state: the number of messages in flight, by such a letter.
        client_receive_maximum: messages in flight that the client accepts; 0: not connected.
        queue_by_priority: number of queued messages by priority, the highest priority first.
        queue_qos0: number of queued messages of QoS 0.
        queue_bytes_max: most bytes in the queue; 0: no bound.
        inbound: messages of the client that are not acknowledged yet, of ``receive_maximum``.
        awaiting_release: QoS 2 messages of the client that await their PUBREL.
        unsent_bytes_max: unsent bytes above which nothing is written to the client; 0: not
            connected.
        reads: whether the client's socket takes more bytes; None: not connected.
        pending_publishes: messages of the client that wait for room in the queues of receivers.
        limits: the limits that the client has reached since it connected.
        drops: number of messages dropped for the client, by reason.
        filters: the filters of its subscriptions, the first hundred.
    """

    places: str
    places_by_state: dict[str, int]
    client_receive_maximum: int
    queue_by_priority: dict[str, int]
    queue_qos0: int
    queue_bytes_max: int
    inbound: int
    receive_maximum: int
    awaiting_release: int
    unsent_bytes_max: int
    reads: bool | None
    pending_publishes: int
    limits: list[LimitUse]
    drops: dict[str, int]
    filters: list[str]


RankingRequest = RankSessions | ShowFlow
