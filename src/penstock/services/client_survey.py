"""A survey of all clients for metrics: how full windows and queues are, how many are at a limit.

::

      a scrape asks ── the last survey is recent ─▶ its result
            ╰───────── it is not ─▶ a walk over all sessions, 0.5 ms at a time ─▶ a new result
                                         ╰── takes longer than ``WAIT_S_MAX`` ─▶ the last one

Nothing is kept up to date between scrapes, so a message costs nothing. A walk is due once the last
one began ``1 / SHARE`` times as long ago as it took of the loop: however many clients there are and
however often somebody asks, surveys take no more than that share of the processor.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, final

from penstock.engine.memory.limit_usage import INBOUND, LIMITS, QUEUE, WINDOW, WRITE_BUFFER
from penstock.engine.operating.listing import connection_of, is_bridge
from penstock.engine.reporting.histogram import Histogram
from penstock.engine.server.server import Server
from penstock.engine.session.session import Session
from penstock.runtime.driver import Driver
from penstock.services.portions import in_portions

SHARE: Final = 0.02
"""Share of one processor that surveys may take."""

WAIT_S_MAX: Final = 1.0
"""How long a scrape waits for a survey, seconds."""

VISITS: Final = 32
"""Sessions between two looks at the clock."""

_PORTION_S: Final = 0.0005
_PAUSE_S: Final = 0.005

WINDOW_BOUNDS: Final = (0.0, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 10_000.0)
QUEUE_BOUNDS: Final = (0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0)


@final
class Survey:
    """The result of one walk; bridges of this broker are left out.

    Attributes:
        at_s: when it was complete, monotonic seconds.
        window: places taken in the window, by connected client.
        queue: messages in the queue, by session.
        by_version: connected clients, by protocol level.
        by_listener: connected clients, by the listener that they use.
        by_group: connected clients, by listener and client group.
        at_limit: sessions at each limit of ``LIMITS``.
    """

    def __init__(self) -> None:
        self.at_s = 0.0
        self.window = Histogram(WINDOW_BOUNDS)
        self.queue = Histogram(QUEUE_BOUNDS)
        self.by_version: dict[int, int] = {}
        self.by_listener: dict[str, int] = {}
        self.by_group: dict[tuple[str, str], int] = {}
        self.at_limit = [0] * len(LIMITS)

    def add(self, server: Server, session: Session) -> None:
        """Count one session."""
        if is_bridge(session):
            return
        self.queue.count(session.queue_length)
        for limit in (WINDOW, WRITE_BUFFER, QUEUE):
            usage = session.transmission.limit_usage(limit)
            if usage is not None and usage.since_s >= 0:
                self.at_limit[limit] += 1
        connection = connection_of(server, session)
        if connection is None:
            return
        self.window.count(session.window_length)
        self.by_version[connection.version] = self.by_version.get(connection.version, 0) + 1
        self.by_listener[session.zone] = self.by_listener.get(session.zone, 0) + 1
        counters = connection.link.counters
        pair = (counters.listener, counters.group)
        self.by_group[pair] = self.by_group.get(pair, 0) + 1
        inbound = connection.inbound_limit
        if inbound is not None and inbound.since_s >= 0:
            self.at_limit[INBOUND] += 1


@final
class ClientSurvey:
    """Surveys the clients of one broker when asked, within its share of the loop.

    Args:
        server: the broker.
        driver: runs it.
    """

    def __init__(self, server: Server, driver: Driver) -> None:
        self._server = server
        self._driver = driver
        self._last: Survey | None = None
        self._due_s = 0.0
        self._walking: asyncio.Task[None] | None = None

    async def recent(self) -> Survey | None:
        """Return a survey as recent as its share allows; None while the first one goes on."""
        if self._walking is None and time.monotonic() >= self._due_s:
            self._walking = asyncio.create_task(self._walk(), name="survey of clients")
        if self._walking is not None:
            await asyncio.wait((self._walking,), timeout=WAIT_S_MAX)
        return self._last

    def stop(self) -> None:
        """End a walk under way."""
        if self._walking is not None:
            self._walking.cancel()

    async def _walk(self) -> None:
        began_s = time.monotonic()
        survey = Survey()
        order = self._server.registry.order
        cursor = 0

        def step() -> bool:
            nonlocal cursor
            sessions = order.after(cursor, VISITS)
            for session in sessions:
                cursor = session.number
                survey.add(self._server, session)
            return len(sessions) < VISITS

        try:
            took_s = await in_portions(self._driver, step, _PORTION_S, _PAUSE_S)
            survey.at_s = time.monotonic()
            self._due_s = began_s + took_s / SHARE
            self._last = survey
        finally:
            self._walking = None
