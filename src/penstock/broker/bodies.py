"""Bodies that lie in the log only, read for the sessions that asked for them.

::

      wanted ─▶ read in a thread ── read ─▶ supplied to who asked, in the loop
                    ▲         │
                    ╰─ 1 s ───╯ it failed: nothing is gone, and it is tried again
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, final

from penstock.engine.clock import Now
from penstock.engine.effects import Stored
from penstock.engine.message import Message
from penstock.store.api import Store
from penstock.telemetry.logs import RepeatLimiter, warn_limited

logger = logging.getLogger(__name__)

_READ_AGAIN_S: Final = 1.0


@final
class BodyReader:
    """Reads bodies from a store.

    Args:
        store: it reads from.
        now: both clocks.
        supplied: called when somebody was given what they asked for.
    """

    def __init__(self, store: Store, now: Callable[[], Now], supplied: Callable[[], None]) -> None:
        self._store = store
        self._now = now
        self._supplied = supplied
        self._loop = asyncio.get_running_loop()
        self._limiter = RepeatLimiter()
        self._tries_again = True

    def fetch(self, stored: Stored, offsets: list[int]) -> None:
        """Read what ``stored`` asked for, if it still wants it."""
        if not stored.wants(offsets):
            return
        reading = self._loop.run_in_executor(None, self._store.read, offsets)
        reading.add_done_callback(lambda done: self._fetched(stored, offsets, done))

    def stop(self) -> None:
        """What cannot be read now is not tried again."""
        self._tries_again = False

    def _fetched(
        self, stored: Stored, offsets: list[int], done: asyncio.Future[dict[int, Message]]
    ) -> None:
        try:
            bodies = done.result()
        except Exception as error:  # whatever went wrong, the bodies are not gone
            warn_limited(
                logger,
                self._limiter,
                time.monotonic(),
                "read",
                "the log cannot be read, and is tried again: %s; look into the kernel's log for"
                " what is wrong with the disk, and run 'penstock store check' while no broker runs",
                error,
            )
            if self._tries_again:
                self._loop.call_later(_READ_AGAIN_S, self.fetch, stored, offsets)
            return
        stored.supply(offsets, bodies, self._now())
        self._supplied()
