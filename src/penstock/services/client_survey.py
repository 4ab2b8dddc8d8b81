"""A survey of all clients for metrics: how full windows and queues are, how many are at a limit.

::

      a scrape ── no walk is due ─▶ the last result
            ╰──── a walk is due ─▶ a walk over all sessions, 0.5 ms at a time ─▶ a new result
                                         ╰── takes longer than ``WAIT_S_MAX`` ─▶ the last result

Nothing is counted between scrapes, so a message costs nothing. After a walk that took N seconds of
the event loop, the next walk is due N / ``SHARE`` seconds after that walk began: however many
clients and scrapes there are, surveys take no more than that share of the processor.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, final

from penstock.engine.api import Server
from penstock.operators.survey import Survey, SurveyWalk
from penstock.runtime.driver import Driver
from penstock.services.portions import run_in_portions

SHARE: Final = 0.005
"""Share of one processor that surveys may take."""

WAIT_S_MAX: Final = 1.0
"""Longest time in seconds that a scrape waits for a survey."""

VISITS: Final = 32
"""Sessions that are visited between two readings of the clock."""

_PORTION_S: Final = 0.0005
_PAUSE_S: Final = 0.005


@final
class ClientSurvey:
    """Surveys the clients of one broker on request, within ``SHARE`` of the processor.

    Args:
        server: the broker's engine.
        driver: the driver that runs the engine.
    """

    def __init__(self, server: Server, driver: Driver) -> None:
        self._server = server
        self._driver = driver
        self._last_survey: Survey | None = None
        self._due_s = 0.0
        self._walk_task: asyncio.Task[None] | None = None

    async def refresh(self) -> Survey | None:
        """Walk over the clients if a walk is due; return the last complete survey, None before the
        first."""
        if self._walk_task is None and time.monotonic() >= self._due_s:
            self._walk_task = asyncio.create_task(self._walk(), name="survey of clients")
        if self._walk_task is not None:
            await asyncio.wait((self._walk_task,), timeout=WAIT_S_MAX)
        return self._last_survey

    def stop(self) -> None:
        """End a walk under way."""
        if self._walk_task is not None:
            self._walk_task.cancel()

    async def _walk(self) -> None:
        began_s = time.monotonic()
        walk = SurveyWalk(self._server)

        def step() -> bool:
            return walk.step(VISITS)

        try:
            took_s = await run_in_portions(self._driver, step, _PORTION_S, _PAUSE_S)
            walk.survey.at_s = time.monotonic()
            self._due_s = began_s + took_s / SHARE
            self._last_survey = walk.survey
        finally:
            self._walk_task = None
