"""The broker's reports on itself: on a timer beside the driver, in the turns of its loop."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.runtime.driver import Driver
from penstock.services.flow_topics import FlowTopics
from penstock.services.limit_warnings import LimitWarnings
from penstock.services.sys_topics import SysTopics

TICK_S: Final = 0.25


async def report_forever(
    driver: Driver, sys_topics: SysTopics, flow_topics: FlowTopics, warnings: LimitWarnings
) -> None:
    """Publish and log what is due until cancelled.

    Args:
        driver: the driver in whose turns publications are sent.
        sys_topics: the topics under ``$SYS``.
        flow_topics: the flow of each client.
        warnings: logs the clients that stay at a limit.
    """
    while True:
        now = driver.now()
        changed = sys_topics.tick(now)
        if flow_topics.tick(now) or changed:
            driver.end_turn_soon()
        warnings.tick(now)
        await asyncio.sleep(TICK_S)
