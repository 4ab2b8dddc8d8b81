"""HTTP connections that take their time with a request, or with an answer, are closed.

uvicorn bounds how long a connection may be idle between two requests, and not how slowly a request
may arrive. So each connection is looked at every ``HEAD_S``: one that has begun no request since
then, and answers none, is closed.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S: Final = 10.0
"""Time for a request to arrive whole, seconds; twice that at most."""


@final
class ImpatientProtocol(H11Protocol):  # type: ignore[misc,unused-ignore]
    """HTTP/1.1 of uvicorn, with a time limit for requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override,unused-ignore]
        """Take a connection, and begin to look at it."""
        super().connection_made(transport)
        self._last: RequestResponseCycle | None = None  # what it answered when it was looked at
        self._watching = self.loop.call_later(HEAD_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take leave of a connection."""
        self._watching.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is self._last and (cycle is None or cycle.response_complete):
            self.transport.abort()
            return
        self._last = cycle
        self._watching = self.loop.call_later(HEAD_S, self._look)
