"""An executor with a bounded number of threads and a bounded queue, for requests of one kind.

::

      run ─▶ WAITING_MAX requests wait already? ── yes ─▶ refused
                       ╰── no ─▶ wait for a free thread ─▶ run in it ─▶ result

Waiting requests count towards the ``web.ANSWERS_MAX`` HTTP requests that are answered at a time.
Each kind has a queue of its own, and a short one, so that slow requests of one kind do not use up
that limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, final

from penstock.errors import StoreError

WAITING_MAX: Final = 8
"""Requests that may wait for a thread of one executor."""

T = TypeVar("T")


@final
class BoundedExecutor:
    """Runs requests of one kind in a bounded number of threads.

    Args:
        name: the kind of requests, in the plural, for the error message.
        running_max: requests that run at the same time.
        waiting_max: further requests that may wait.
    """

    def __init__(self, name: str, running_max: int, waiting_max: int = WAITING_MAX) -> None:
        self._name = name
        self._slots = asyncio.Semaphore(running_max)
        self._threads = ThreadPoolExecutor(running_max, name)
        self._free_places = running_max + waiting_max

    async def run(self, work: Callable[[], T]) -> T:
        """Wait for a free thread, call ``work`` in it, and return its result.

        Raises:
            StoreError: ``waiting_max`` requests wait already.
            Exception: the error that ``work`` raised.
        """
        if self._free_places == 0:
            raise StoreError(f"too many {self._name} are waiting; try again")
        self._free_places -= 1
        try:
            async with self._slots:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._free_places += 1
