"""The sessions that are highest by a measure, found by a walk over all sessions, and their limits.

::

      sessions, some at a time ─▶ selected? ─▶ value ─▶ above the lowest of the highest? ─▶ replaces
                                                        it in a heap of at most ``count_max``

The walk has the highest sessions only, so that its memory does not grow with the number of
sessions. Values are computed from state that exists anyway (``flow``); bytes are counted in totals,
and in rates between two rankings (``byte_rates``). docs/control.md explains each name.
"""

from __future__ import annotations

from heapq import heappush, heapreplace
from typing import Final, final

from msgspec.structs import asdict

from penstock.engine.api import ByteRates, Link, Server, ServerConnection, Session
from penstock.engine.values.clock import Now
from penstock.engine.values.limit_usage import INBOUND, LIMITS, QUEUE, WINDOW, WRITE_BUFFER
from penstock.operators.listing import (
    JsonObject,
    SessionWalk,
    connection_of,
    session_summary,
)
from penstock.operators.selection import SessionSelection

BY_LIMITED: Final = 0  # seconds for which it has been at a limit
BY_RATE: Final = 1  # bytes a second, both ways
BY_QUEUE: Final = 2  # messages in the queue
BY_WINDOW: Final = 3  # messages in flight
BY_UNSENT: Final = 4  # bytes written for the client that it has not read
BY_DROPPED: Final = 5  # dropped messages

MEASURES: Final = ("limited", "rate", "queue", "window", "unsent", "dropped")

RATE_LIMIT: Final = "rate_limit"  # the client is above its rate limit, and reading pauses
FULL_QUEUES: Final = "full_queues"  # messages that it published wait for room in other queues

_SHORTEST_S: Final = 0.001  # duration of a limit whose beginning is not known: above 0


@final
class RankingWalk:
    """A walk over the sessions of a broker that finds the highest of them.

    Args:
        server: the broker.
        selection: the conditions that ranked sessions meet.
        measure: ``BY_LIMITED`` … ``BY_DROPPED``.
        count_max: the number of sessions that are found, at least 1.
    """

    def __init__(
        self, server: Server, selection: SessionSelection, measure: int, count_max: int
    ) -> None:
        self.selected_count = 0  # number of sessions that were ranked
        self._server = server
        self._walk = SessionWalk(server, selection)
        self._measure = measure
        self._count_max = count_max
        self._best: list[tuple[float, int, Session]] = []  # a heap, the lowest first

    @property
    def is_finished(self) -> bool:
        """Return whether all sessions were visited."""
        return self._walk.is_finished

    def step(self, visits: int, now: Now) -> None:
        """Visit the next ``visits`` sessions, and rank those that are selected."""
        best = self._best
        for session in self._walk.step(visits, now):
            self.selected_count += 1
            link = session.link
            if link is not None:
                update_rates(link, now)
            value = self._value(session, now)
            # of equal values the older session, with the lower number, ranks higher
            if len(best) < self._count_max:
                heappush(best, (value, -session.number, session))
            elif value > best[0][0]:
                heapreplace(best, (value, -session.number, session))

    def best(self) -> list[Session]:
        """Return the highest sessions found so far, the highest first."""
        found = sorted(self._best, key=_rank_key, reverse=True)
        return [session for _, _, session in found]

    def _value(self, session: Session, now: Now) -> float:
        measure = self._measure
        if measure == BY_QUEUE:
            return float(session.queue_length)
        if measure == BY_WINDOW:
            return float(session.window_length)
        if measure == BY_DROPPED:
            return float(self._server.drops.count_of(session.client_id))
        link = session.link
        if measure == BY_LIMITED:
            longest_s = 0.0
            for _, lasts_s in reached_limits(session, connection_of(self._server, session), now):
                longest_s = max(longest_s, lasts_s, _SHORTEST_S)
            return longest_s
        if link is None:
            return 0.0
        if measure == BY_UNSENT:
            return float(unsent_bytes(link))
        assert measure == BY_RATE, "a measure is one of MEASURES"
        rates = link.rates
        return 0.0 if rates is None else rates.received_per_s + rates.sent_per_s


def _rank_key(entry: tuple[float, int, Session]) -> tuple[float, int]:
    return entry[0], entry[1]


def ranking_entry(server: Server, session: Session, now: Now) -> JsonObject:
    """Return the description of a session in a ranking: that of a list, with bytes and limits."""
    link = session.link
    description: JsonObject = asdict(session_summary(server, session))
    received = sent = 0
    received_per_s = sent_per_s = 0.0
    if link is not None:
        received, sent = link.bytes_received, link.bytes_sent
        if link.rates is not None:
            received_per_s, sent_per_s = link.rates.received_per_s, link.rates.sent_per_s
    description["received_bytes"] = received
    description["sent_bytes"] = sent
    description["received_bytes_per_s"] = round(received_per_s, 1)
    description["sent_bytes_per_s"] = round(sent_per_s, 1)
    description["unsent_bytes"] = 0 if link is None else unsent_bytes(link)
    limits = reached_limits(session, connection_of(server, session), now)
    limits.sort(key=_lasts_s, reverse=True)
    description["limited_by"] = [
        {"limit": name, "lasts_s": round(lasts_s, 3)} for name, lasts_s in limits
    ]
    return description


def reached_limits(
    session: Session, connection: ServerConnection | None, now: Now
) -> list[tuple[str, float]]:
    """Return the limits that a client is at, each with its name and for how many seconds it has
    been reached.

    The duration of a rate limit, and of full queues of other sessions, is not known, and is 0.
    """
    now_s = now.monotonic_s
    found: list[tuple[str, float]] = []
    for limit in (WINDOW, WRITE_BUFFER, QUEUE):
        usage = session.transmission.limit_usage(limit)
        if usage is not None and usage.since_s >= 0:
            found.append((LIMITS[limit], usage.lasts_s(now_s)))
    if connection is not None:
        inbound = connection.inbound_limit
        if inbound is not None and inbound.since_s >= 0:
            found.append((LIMITS[INBOUND], inbound.lasts_s(now_s)))
        if connection.resume_at_s > now_s:
            found.append((RATE_LIMIT, 0.0))
        if connection.pending_publish_count > 0:
            found.append((FULL_QUEUES, 0.0))
    return found


def _lasts_s(reached: tuple[str, float]) -> float:
    return reached[1]


def update_rates(link: Link, now: Now) -> None:
    """Begin to measure the rates of a connection, or update them (``ByteRates``)."""
    rates = link.rates
    if rates is None:
        link.rates = ByteRates(link.bytes_received, link.bytes_sent, now.monotonic_s)
    else:
        rates.update(link.bytes_received, link.bytes_sent, now.monotonic_s)


def unsent_bytes(link: Link) -> int:
    """Return the bytes written for a peer that it has not read: those in the link and its
    socket."""
    return link.pending_bytes + link.buffered_bytes
