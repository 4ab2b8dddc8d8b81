"""Work on many entries in portions, so that clients have their turn after each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.runtime.driver import Driver

PORTION_S: Final = 0.002
"""How long one request may hold the loop in a turn, in seconds; a few entries more."""


async def in_portions(
    driver: Driver, step: Callable[[], bool], portion_s: float | None = None, pause_s: float = 0.0
) -> float:
    """Call ``step`` until it is true; clients have their turn after each portion.

    Args:
        driver: runs the clients.
        step: does a little, and returns whether all is done.
        portion_s: how long steps may follow each other, seconds; None: ``PORTION_S``.
        pause_s: time for others between two portions, seconds.

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
