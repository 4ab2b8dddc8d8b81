"""A survey of all clients: histograms of windows and queues, and the clients at each limit.

::

      sessions, some at a time ─▶ SurveyWalk ─▶ Survey: histograms, and counts by kind of client

Nothing is counted between two walks, so that a message costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from penstock.engine.api import Server, Session
from penstock.engine.values.limit_usage import INBOUND, LIMITS, QUEUE, WINDOW, WRITE_BUFFER
from penstock.operators.listing import connection_of, is_bridge
from penstock.telemetry.histogram import Histogram

WINDOW_BOUNDS: Final[Sequence[float]] = (0.0, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 10_000.0)
QUEUE_BOUNDS: Final[Sequence[float]] = (
    0.0,
    1.0,
    10.0,
    100.0,
    1_000.0,
    10_000.0,
    100_000.0,
    1_000_000.0,
)

_OF_SESSIONS: Final = (WINDOW, WRITE_BUFFER, QUEUE)


@final
class Survey:
    """The result of one walk; sessions of this broker's bridges are not counted.

    Attributes:
        at_s: when the walk ended, monotonic seconds.
        window: histogram of the messages in flight of connected clients.
        queue: histogram of the queued messages of sessions.
        by_version: number of connected clients by protocol level.
        by_listener: number of connected clients by listener.
        by_group: number of connected clients by listener and client group.
        at_limit: number of sessions at each limit of ``LIMITS``.
    """

    def __init__(self) -> None:
        self.at_s = 0.0
        self.window = Histogram(WINDOW_BOUNDS)
        self.queue = Histogram(QUEUE_BOUNDS)
        self.by_version: dict[int, int] = {}
        self.by_listener: dict[str, int] = {}
        self.by_group: dict[tuple[str, str], int] = {}
        self.at_limit = [0] * len(LIMITS)
        self._connected: dict[tuple[int, str, str, str], int] = {}

    def add(self, server: Server, session: Session) -> None:
        """Count ``session``, and its client if that is connected."""
        if is_bridge(session):
            return
        transmission = session.transmission
        self.queue.count(session.queue_length)
        if transmission.congestion.was_at_limit:
            for limit in _OF_SESSIONS:
                usage = transmission.limit_usage(limit)
                if usage is not None and usage.since_s >= 0:
                    self.at_limit[limit] += 1
        connection = connection_of(server, session)
        if connection is None:
            return
        self.window.count(session.window_length)
        counters = connection.link.counters
        kind = (connection.version, session.limits_name, counters.listener, counters.group)
        self._connected[kind] = self._connected.get(kind, 0) + 1
        inbound = connection.inbound_limit
        if inbound is not None and inbound.since_s >= 0:
            self.at_limit[INBOUND] += 1

    def add_up(self) -> None:
        """Compute the counts by version, listener and group; to be called once, after the last
        session."""
        for (version, limits_name, listener, group), count in self._connected.items():
            self.by_version[version] = self.by_version.get(version, 0) + count
            self.by_listener[limits_name] = self.by_listener.get(limits_name, 0) + count
            pair = (listener, group)
            self.by_group[pair] = self.by_group.get(pair, 0) + count


@final
class SurveyWalk:
    """A walk over the sessions of a broker that fills a survey.

    Args:
        server: the broker.
    """

    def __init__(self, server: Server) -> None:
        self.survey = Survey()
        self._server = server
        self._cursor = 0

    def step(self, visits: int) -> bool:
        """Count the next ``visits`` sessions; return whether all sessions were counted."""
        sessions = self._server.registry.index.sessions_after(self._cursor, visits)
        for session in sessions:
            self._cursor = session.number
            self.survey.add(self._server, session)
        if len(sessions) == visits:
            return False
        self.survey.add_up()
        return True
