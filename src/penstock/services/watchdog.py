"""The watchdog: tells the service manager that the broker works, as long as it does.

The watchdog runs in the event loop and sends nothing while the loop is blocked. Beyond that, two
things must progress between two checks::

      the driver's turns ──── their count has grown
      a commit under way ──── an attempt to write it has ended, with or without success

The second finds a disk that never answers. A store that fails with an error, and is tried again,
does progress: the broker then serves what it can, and the status line has the failure.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from penstock.engine.api import Server
from penstock.runtime.driver import Driver
from penstock.services.service_manager import ServiceManager

CHECK_INTERVAL_S: Final = 5.0
"""Time between two checks, in seconds; at most half the service manager's watchdog time."""


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
        self._attempts = -1  # at the last check; -1 = no commit was under way

    async def run(self) -> None:
        """Report progress to the service manager until cancelled; return at once if there is no
        service manager."""
        if not self._manager.is_present:
            return
        watchdog_s = self._manager.watchdog_s
        interval_s = min(CHECK_INTERVAL_S, watchdog_s / 2) if watchdog_s else CHECK_INTERVAL_S
        while True:
            self._driver.end_turn_soon()
            await asyncio.sleep(interval_s)
            if self.has_progressed() and watchdog_s:
                self._manager.notify_watchdog()
            self._manager.notify_status(self.status())

    def has_progressed(self) -> bool:
        """Return whether, since the last call, the driver ended a turn, and an attempt to write the
        commit under way ended, if there is such a commit."""
        turns, attempts = self._driver.turns, self._driver.commit_attempts
        is_stuck = turns == self._turns or attempts == self._attempts >= 0
        self._turns, self._attempts = turns, attempts
        return not is_stuck

    def status(self) -> str:
        """Return the status line: the number of clients, and the failure of a store that fails."""
        failure = self._server.context.store_failure
        clients = f"{len(self._server.connections)} clients"
        return f"{clients}; nothing is acknowledged: {failure}" if failure else clients
