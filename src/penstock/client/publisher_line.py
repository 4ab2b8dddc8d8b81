"""A line of publishers that wait for room, first come, first served.

::

      there is room, and no publisher waits ─▶ publish
      else ─▶ wait in line ── first, and there is room ─▶ publish

QoS 0 needs room in the socket's buffer, QoS 1 and 2 in the queue: each has a line of its own, so
that neither waits for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

_RETRY_S: Final = 0.25  # nothing notifies when the store works again


@final
class PublisherLine:
    """A first-come, first-served line of waiting publishers.

    Args:
        has_room: returns whether there is room for a message.
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self.has_room = has_room
        self.is_closed = False
        self._lock = asyncio.Lock()
        self.waiting_count = 0  # including the one that is woken but does not run yet
        self._first_waiter: asyncio.Future[None] | None = None

    @property
    def is_free(self) -> bool:
        """True if a publisher need not wait: there is room, and no other waits."""
        return self.waiting_count == 0 and self.has_room()

    async def wait(self) -> None:
        """Wait until this publisher is first and there is room, or the line is closed."""
        self.waiting_count += 1
        try:
            async with self._lock:
                while not self.is_closed and not self.has_room():
                    self._first_waiter = asyncio.get_running_loop().create_future()
                    await asyncio.wait((self._first_waiter,), timeout=_RETRY_S)
                self._first_waiter = None
        finally:
            self.waiting_count -= 1

    def close(self) -> None:
        """Close the line: all waiting publishers return, one after the other."""
        self.is_closed = True
        self.notify()

    def notify(self) -> None:
        """Wake the first publisher, which checks again whether there is room."""
        if self._first_waiter is not None and not self._first_waiter.done():
            self._first_waiter.set_result(None)
