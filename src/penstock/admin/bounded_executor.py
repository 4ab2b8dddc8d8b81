"""An executor for requests of one kind: some at a time, each in a thread; a few more may wait.

::

      run ─▶ WAITING_MAX wait already? ── yes ─▶ refused
                       ╰── no ─▶ its turn ─▶ a thread ─▶ done

All requests that wait are among the ``web.ANSWERS_MAX`` that are answered at a time. So that one
kind that takes long does not take the places of all others, only few of each may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, final

from penstock.errors import StoreError

WAITING_MAX: Final = 8
"""Requests that wait for their turn in one executor."""

T = TypeVar("T")


@final
class BoundedExecutor:
    """Runs requests of one kind in threads, a bounded number of them.

    Args:
        name: the kind in a word or two, as a refusal tells it.
        turns: how many are at work at a time.
        waiting_max: how many more may wait.
    """

    def __init__(self, name: str, turns: int, waiting_max: int = WAITING_MAX) -> None:
        self._name = name
        self._turns = asyncio.Semaphore(turns)
        self._threads = ThreadPoolExecutor(turns, name)
        self._room = turns + waiting_max

    async def run(self, work: Callable[[], T]) -> T:
        """Wait for a turn, call ``work`` in a thread, and return its result.

        Raises:
            StoreError: too many wait already.
        """
        if self._room == 0:
            raise StoreError(f"too many {self._name} wait for their turn; ask again")
        self._room -= 1
        try:
            async with self._turns:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._room += 1
