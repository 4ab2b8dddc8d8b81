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

from penstock.engine.operating.survey import Survey, SurveyWalk
from penstock.engine.server.server import Server
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
        walk = SurveyWalk(self._server)

        def step() -> bool:
            return walk.step(VISITS)

        try:
            took_s = await in_portions(self._driver, step, _PORTION_S, _PAUSE_S)
            walk.survey.at_s = time.monotonic()
            self._due_s = began_s + took_s / SHARE
            self._last = walk.survey
        finally:
            self._walking = None
