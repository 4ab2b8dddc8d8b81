"""Reads message bodies from the log for the sessions that need them.

::

      fetch ─▶ read in a thread ── success ─▶ supplied to the session, on the event loop
                    ▲         │
                    ╰─ 1 s ───╯ failure: the messages are still in the log, and are read again

A log in memory is read on the event loop: a thread would take longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import final

from penstock.engine.api import BodyRequester
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)


@final
class BodyReader:
    """Reads bodies from the log.

    Args:
        read: returns messages by offset, without those that the log no longer has; called in a
            thread if it ``blocks``.
        now: returns the time of the clocks.
        on_supply: called when a session got bodies.
        blocks: whether ``read`` may block or fail.
        retry_s: pause after a failed read, in seconds.
    """

    def __init__(
        self,
        read: Callable[[list[int]], dict[int, Message]],
        now: Callable[[], Now],
        on_supply: Callable[[], None],
        blocks: bool = True,
        retry_s: float = 1.0,
    ) -> None:
        self._read = read
        self._now = now
        self._on_supply = on_supply
        self._blocks = blocks
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self._limiter = RepeatLimiter()
        self._is_stopped = False

    def fetch(self, requester: BodyRequester, offsets: list[int]) -> None:
        """Read the bodies at ``offsets`` and supply them to a requester that still needs them."""
        assert offsets, "a session asks for one body at least"
        if self._is_stopped or not requester.needs_bodies(offsets):
            return
        if not self._blocks:
            self._loop.call_soon(self._read_in_loop, requester, offsets)
            return
        reading = self._loop.run_in_executor(None, self._read, offsets)
        reading.add_done_callback(lambda done: self._finish_read(requester, offsets, done))

    def stop(self) -> None:
        """Start no more reads; reads under way still supply their bodies."""
        self._is_stopped = True

    def _finish_read(
        self, requester: BodyRequester, offsets: list[int], done: asyncio.Future[dict[int, Message]]
    ) -> None:
        try:
            bodies = done.result()
        except Exception as error:  # after any error the bodies are still in the log
            warn_limited(
                logger,
                self._limiter,
                time.monotonic(),
                "read",
                "messages that wait for %s, offsets %d to %d, cannot be read from the log; trying"
                " again: %s; look into the kernel's log for what is wrong with the disk, and run"
                " 'penstock store check' while no broker runs",
                requester.purpose(),
                min(offsets),
                max(offsets),
                error,
            )
            self._loop.call_later(self._retry_s, self.fetch, requester, offsets)
            return
        self._supply(requester, offsets, bodies)

    def _read_in_loop(self, requester: BodyRequester, offsets: list[int]) -> None:
        if requester.needs_bodies(offsets):
            self._supply(requester, offsets, self._read(offsets))

    def _supply(
        self, requester: BodyRequester, offsets: list[int], bodies: dict[int, Message]
    ) -> None:
        assert len(bodies) <= len(offsets), "a read finds no more than it was asked for"
        requester.supply(offsets, bodies, self._now())
        self._on_supply()
