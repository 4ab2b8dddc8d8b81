"""The broker's account of itself: on a timer beside the driver, in the turns of its loop."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.driver import Driver
from penstock.broker.sys_topics import SysTopics

TICK_S: Final = 0.25


async def tell_forever(driver: Driver, sys_topics: SysTopics) -> None:
    """Publish what is due until cancelled.

    Args:
        driver: whose turn sends what was published.
        sys_topics: the topics under ``$SYS``.
    """
    while True:
        if sys_topics.tick(driver.now()):
            driver.end_turn_soon()
        await asyncio.sleep(TICK_S)
