"""The watchdog: tells the service manager that the broker works, as long as it does.

It runs in the event loop and sends nothing while that stands still. Beyond that, two things must go
round between two looks::

      the driver's turn ──── its count has grown
      a commit under way ─── an attempt to write it has ended, however it ended

A disk that never answers is found by the second. A store that fails with an error, and is tried
again, goes round: the broker then serves what it can, and the status line says what is wrong.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from penstock.engine.server.server import Server
from penstock.runtime.driver import Driver
from penstock.services.service_manager import ServiceManager

LOOK_S: Final = 5.0
"""Time between two looks, in seconds; shorter where the service manager is less patient."""


@final
class Watchdog:
    """Watches one broker.

    Args:
        manager: the service manager.
        server: the engine, which knows whether the store fails.
        driver: the driver of its turns.
    """

    def __init__(self, manager: ServiceManager, server: Server, driver: Driver) -> None:
        self._manager = manager
        self._server = server
        self._driver = driver
        self._turns = driver.turns
        self._attempts = -1  # at the last look; -1 = no commit was under way

    async def run(self) -> None:
        """Report progress to the service manager until cancelled; return at once without one."""
        if not self._manager.is_present:
            return
        patience_s = self._manager.watchdog_s
        every_s = min(LOOK_S, patience_s / 2) if patience_s else LOOK_S
        while True:
            self._driver.end_turn_soon()
            await asyncio.sleep(every_s)
            if self.has_progressed() and patience_s:
                self._manager.is_alive()
            self._manager.status(self.status())

    def has_progressed(self) -> bool:
        """Return whether the driver ended a turn since the last call, and the commit under way, if
        there is one, an attempt to write it."""
        turns, attempts = self._driver.turns, self._driver.commit_attempts
        stands = turns == self._turns or attempts == self._attempts >= 0
        self._turns, self._attempts = turns, attempts
        return not stands

    def status(self) -> str:
        """Return the status line: the number of clients, and why the store fails, if it does."""
        failure = self._server.context.store.failure
        clients = f"{len(self._server.connections)} clients"
        return f"{clients}; nothing is acknowledged: {failure}" if failure else clients
