"""Long work on the event loop in short portions, so that clients are served between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.runtime.driver import Driver

PORTION_S: Final = 0.002
"""Time in seconds after which a portion ends, once the step under way has returned."""


async def run_in_portions(
    driver: Driver, step: Callable[[], bool], portion_s: float | None = None, pause_s: float = 0.0
) -> float:
    """Call ``step`` until it returns True; clients are served after each portion.

    Args:
        driver: the driver, which serves the clients.
        step: does a small part of the work, and returns whether all of it is done.
        portion_s: time in seconds for which steps follow each other; None: ``PORTION_S``.
        pause_s: time in seconds between two portions, for other work of the event loop.

    Returns:
        The seconds that all portions took together.
    """
    took_s = 0.0
    while True:
        began_s = time.monotonic()
        ends_s = began_s + (PORTION_S if portion_s is None else portion_s)
        finished = step()
        while not finished and time.monotonic() < ends_s:
            finished = step()
        took_s += time.monotonic() - began_s
        driver.end_turn_soon()
        if finished:
            return took_s
        await asyncio.sleep(pause_s)
