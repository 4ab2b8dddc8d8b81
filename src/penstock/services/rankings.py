"""Ranks the sessions of a running broker on request, in a small share of its event loop.

::

      rank ─▶ lock: one ranking at a time, ``WAITING_MAX`` wait ─▶ walk over all sessions: 0.5 ms,
                                                  then 9.5 ms for clients, … ─▶ the highest

Nothing is counted between rankings: a message costs nothing, and rankings without a pause take a
twentieth of one processor. Other requests of operators do not wait for rankings.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, final

from penstock.control.admin_requests import LIMIT_MAX
from penstock.control.ranking_requests import RankSessions, ShowFlow
from penstock.engine.api import Server, Session
from penstock.errors import ConfigError, StoreError
from penstock.operators.flow_details import flow_details
from penstock.operators.listing import JsonObject
from penstock.operators.ranking import MEASURES, RankingWalk, ranking_entry
from penstock.runtime.driver import Driver
from penstock.services.administration import selection_of
from penstock.services.control import Control
from penstock.services.portions import run_in_portions

WAITING_MAX: Final = 8
"""Rankings that wait or are under way, at most."""

VISITS: Final = 32
"""Sessions that are visited between two readings of the clock."""

_PORTION_S: Final = 0.0005
_PAUSE_S: Final = 0.0095


@final
class Rankings:
    """Ranks the sessions of one broker.

    Args:
        server: the broker's engine.
        driver: the driver that runs the engine.
    """

    def __init__(self, server: Server, driver: Driver) -> None:
        self._server = server
        self._driver = driver
        self._one_at_a_time = asyncio.Lock()
        self._waiting_count = 0

    def serve_on(self, control: Control) -> None:
        """Answer requests on ``control``."""
        control.on(RankSessions, self.rank)
        control.on(ShowFlow, self.show_flow)

    async def rank(self, request: RankSessions) -> JsonObject:
        """Return the sessions that have the highest values of a measure.

        Raises:
            ConfigError: the limit or the filter of the request cannot be used.
            StoreError: too many rankings wait already, or the broker is stopping.
        """
        if not 1 <= request.limit <= LIMIT_MAX:
            raise ConfigError(f"a ranking has 1 to {LIMIT_MAX} entries, not {request.limit}")
        measure = MEASURES.index(request.measure)
        selection = selection_of(request.filter)
        if self._waiting_count >= WAITING_MAX:
            raise StoreError(f"{WAITING_MAX} others wait for a ranking of sessions; ask again")
        began_s = time.monotonic()
        self._waiting_count += 1
        try:
            async with self._one_at_a_time:
                walk = RankingWalk(self._server, selection, measure, request.limit)
                entries = await self._describe_highest(walk)
        finally:
            self._waiting_count -= 1
        took_s = time.monotonic() - began_s
        return {"entries": entries, "selected": walk.selected_count, "took_s": round(took_s, 4)}

    async def _describe_highest(self, walk: RankingWalk) -> list[JsonObject]:
        """Walk over all sessions; return the descriptions of the highest ones, without sessions
        that ended meanwhile."""
        described: list[JsonObject] = []
        best: list[Session] | None = None

        def step() -> bool:
            nonlocal best
            if self._server.shutting_down:  # a shutdown waits for requests
                raise StoreError("the broker is stopping")
            now = self._driver.now()
            if not walk.is_finished:
                walk.step(VISITS, now)
                return False
            if best is None:
                best = walk.best()
                best.reverse()
            if best and not best[-1].is_ended:
                described.append(ranking_entry(self._server, best[-1], now))
            del best[-1:]
            return not best

        await run_in_portions(self._driver, step, _PORTION_S, _PAUSE_S)
        return described

    async def show_flow(self, request: ShowFlow) -> JsonObject | None:
        """Return the window and the queue of one client; None if the client has no session."""
        session = self._server.registry.sessions.get(request.client_id)
        if session is None:
            return None
        return flow_details(self._server, session, self._driver.now())
