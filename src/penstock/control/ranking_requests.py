"""The requests of `penstock top`: the sessions that are highest by a measure, and one in detail.

Both change nothing. A ranking looks at every session, so that the broker does one at a time and
gives it a twentieth of its loop (``services.rankings``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.control.admin_requests import Limit, SessionFilter

Measure = Literal["limited", "rate", "queue", "window", "unsent", "dropped"]
"""How long a client has been at a limit, bytes a second, messages queued, messages in flight, bytes
that it has not read, messages dropped."""


class RankSessions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="rank", tag_field="do"
):
    """Return the sessions that are highest by a measure; ``done`` is a ``Ranking``."""

    measure: Measure = "limited"
    filter: SessionFilter = SessionFilter()
    limit: Limit = 50


class ReachedLimit(msgspec.Struct, frozen=True):
    """A limit that a client is at now.

    Attributes:
        limit: ``window``, ``write_buffer``, ``queue``, ``inbound``, ``rate_limit`` or
            ``full_queues``.
        lasts_s: for how long already, seconds; 0 of the last two, whose beginning is not known.
    """

    limit: str
    lasts_s: float


class RankedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a ranking; docs/control.md explains each name."""

    client_id: str
    user: str | None
    connected: bool
    address: str | None
    listener: str
    version: int
    since_us: int
    expires_at_us: int | None
    expiry_interval_s: int
    window: int
    window_size: int
    queue: int
    queue_max: int
    queue_bytes: int
    subscriptions: int
    dropped: int
    bridge: bool
    received_bytes: int
    sent_bytes: int
    received_bytes_per_s: float
    sent_bytes_per_s: float
    unsent_bytes: int
    limited_by: list[ReachedLimit]


class Ranking(msgspec.Struct, frozen=True):
    """The highest sessions.

    Attributes:
        entries: the sessions, the highest first.
        selected: the number of sessions that were ranked.
        took_s: how long that took, seconds, with the time of others in between.
    """

    entries: list[RankedSession]
    selected: int
    took_s: float


class ShowFlow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="flow", tag_field="do"):
    """Return the window and the queue of one client; ``done`` is ``FlowDetails``, or null where
    there is no such session."""

    client_id: str


class LimitUse(msgspec.Struct, frozen=True):
    """A limit that a client has reached.

    Attributes:
        limit: ``window``, ``write_buffer``, ``queue`` or ``inbound``.
        times: how often; total_s: how long in all, seconds.
        lasts_s: how long it is at it now, seconds; 0: it is not.
    """

    limit: str
    times: int
    total_s: float
    lasts_s: float


class FlowDetails(RankedSession, frozen=True, kw_only=True):
    """The window and the queue of one client.

    Attributes:
        places: a letter for each message in flight, the oldest first, at most 1,000: "a" PUBACK is
            due, "r" PUBREC, "c" PUBCOMP, "s" it is sent again once there is room.
        places_by_state: how many in all, by letter.
        client_receive_maximum: messages in flight that the client accepts; 0: away.
        queue_by_priority: queued messages, those that leave first in front.
        queue_qos0: of them, QoS 0.
        queue_bytes_max: 0: no bound.
        inbound: messages of the client that are not acknowledged yet, of ``receive_maximum``.
        awaiting_release: its QoS 2 messages that await their PUBREL.
        unsent_bytes_max: above it the client is not written to; 0: away.
        reads: whether its socket takes more bytes; None: away.
        pending_publishes: its messages that wait for room in queues of others.
        limits: the limits that it has reached since it came.
        drops: messages dropped for it, by reason.
        filters: its subscriptions, the first hundred.
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
