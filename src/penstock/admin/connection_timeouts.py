"""HTTP connections: how many there may be, and how long one may take for a request.

::

      open ─▶ waits: no request yet, half of one, or its body ─▶ answers ─▶ waits …
                │ or for its peer to read earlier answers
                │ for HEAD_S to twice that ─▶ closed
                ╰ CONNECTIONS_MAX others are there ─▶ the one that waits longest is closed

uvicorn bounds how long a connection may be idle between two requests, and not how slowly a request
may arrive, or how long a peer may leave answers unread; and where it has many connections it
refuses all requests, health checks too. So each is looked at every ``HEAD_S``: one that has begun
no request since then, and answers none or cannot write its answer, is closed.
A new connection always finds a place as long as one that only waits has one, and of those that are
answered only ``web.ANSWERS_MAX`` are no checks.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CONNECTIONS_MAX: Final = 96
"""Connections at the same time."""

HEAD_S: Final = 10.0
"""Time for a request to arrive whole, seconds; twice that at most."""


@final
class TimeoutProtocol(H11Protocol):  # type: ignore[misc,unused-ignore]
    """HTTP/1.1 of uvicorn, with a time limit for requests and a limit of connections."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override,unused-ignore]
        """Accept a connection, and begin to check it every ``HEAD_S``."""
        self.waits_since_s = self.loop.time()
        super().connection_made(transport)
        self._last: RequestResponseCycle | None = None  # the request of the last check
        self._watching = self.loop.call_later(HEAD_S, self._look)
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the checks of a connection that is closed."""
        self._watching.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.waits_since_s = self.loop.time()
        super().on_response_complete()

    @property
    def waits(self) -> bool:
        """Return whether the connection waits for its peer to send or to read something."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return True
        return bool(self.flow.write_paused)

    def _make_room(self) -> None:
        """Close the connection that has waited longest, or this one where none waits."""
        waiting = [
            one
            for one in self.connections
            if isinstance(one, TimeoutProtocol) and one is not self and one.waits
        ]
        victim = min(waiting, key=lambda one: one.waits_since_s, default=self)
        self.connections.discard(victim)
        victim.transport.abort()

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        is_idle = cycle is None or cycle.response_complete or self.flow.write_paused
        if cycle is self._last and is_idle:
            self.transport.abort()
            return
        self._last = cycle
        self._watching = self.loop.call_later(HEAD_S, self._look)
