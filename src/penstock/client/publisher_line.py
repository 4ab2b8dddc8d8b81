"""Publishers that wait for room, first come, first served.

::

      there is room, none waits ─▶ go on
      else ─▶ in line ── first, and there is room ─▶ go on

QoS 0 needs a connection with room in its socket, QoS 1 and 2 a place in the queue: each has its
own line, so that neither waits for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

_RETRY_S: Final = 0.25  # there is no signal when the store works again


@final
class PublisherLine:
    """A first-come, first-served line of waiting publishers.

    Args:
        has_room: returns whether one more may go on.
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self.has_room = has_room
        self.is_closed = False
        self._line = asyncio.Lock()
        self.waiting = 0  # including while the line moves from one to the next
        self._first: asyncio.Future[None] | None = None

    @property
    def is_free(self) -> bool:
        """True if one may go on at once: there is room, and no one waits."""
        return self.waiting == 0 and self.has_room()

    async def wait(self) -> None:
        """Wait for room. On return there is room, unless the line was closed."""
        self.waiting += 1
        try:
            async with self._line:
                while not self.is_closed and not self.has_room():
                    self._first = asyncio.get_running_loop().create_future()
                    await asyncio.wait((self._first,), timeout=_RETRY_S)
                self._first = None
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Wake all waiting publishers: there will be no room any more."""
        self.is_closed = True
        self.notify()

    def notify(self) -> None:
        """Wake the first of the line: there may be room."""
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
