"""The broker's periodic reports on itself: ``$SYS``, the flow of clients, and warnings."""

from __future__ import annotations

import asyncio
from typing import Final, final

from penstock.config.status import Status
from penstock.runtime.driver import Driver
from penstock.services.flow_topics import FlowTopics
from penstock.services.limit_warnings import LimitWarnings
from penstock.services.slowness_warnings import SlownessWarnings
from penstock.services.sys_topics import SysTopics

TICK_S: Final = 0.25


@final
class StatusReports:
    """The reports of one broker about itself.

    Args:
        driver: the driver in whose turns publications are sent.
        sys_topics: the topics under ``$SYS``.
        flow_topics: the flow of each client.
        warnings: logs the clients that stay at a limit.
        slowness: logs delays of the event loop and of commits.
    """

    def __init__(
        self,
        driver: Driver,
        sys_topics: SysTopics,
        flow_topics: FlowTopics,
        warnings: LimitWarnings,
        slowness: SlownessWarnings,
    ) -> None:
        self._driver = driver
        self._sys_topics = sys_topics
        self._flow_topics = flow_topics
        self._warnings = warnings
        self._slowness = slowness

    async def run(self) -> None:
        """Publish and log the reports that are due, until cancelled."""
        driver = self._driver
        while True:
            now = driver.now()
            changed = self._sys_topics.tick(now)
            if self._flow_topics.tick(now) or changed:
                driver.end_turn_soon()
            self._warnings.tick(now)
            self._slowness.tick(now)
            await asyncio.sleep(TICK_S)

    def apply_settings(self, settings: Status) -> None:
        """Use other intervals and thresholds from now on."""
        self._sys_topics.set_interval(settings.sys_interval_s, self._driver.now())
        self._flow_topics.interval_s = settings.sys_interval_s
        self._warnings.warning_s = settings.limit_warning_s
        self._slowness.loop_s = settings.loop_warning_s
        self._slowness.commit_s = settings.commit_warning_s
