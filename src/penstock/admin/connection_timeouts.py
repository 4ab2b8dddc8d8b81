"""Limits of HTTP connections: their number, and the time that a request may take to arrive.

::

      opened ─▶ waiting for a request, its rest or its body ─▶ response ─▶ waiting …
                │ or for the peer to read earlier responses
                ├ for REQUEST_S_MAX to twice that ─▶ closed
                ╰ more than CONNECTIONS_MAX are open ─▶ the one that has waited longest is closed

uvicorn limits how long a connection may be idle between two requests, but not how slowly a request
may arrive, nor how long a peer may leave responses unread; and at its own limit of connections it
refuses all requests, health checks too. So ``TimeoutProtocol`` checks each connection every
``REQUEST_S_MAX``, and closes it if no request began since the last check and it answers none, or
cannot write its response.

A new connection is accepted as long as another one is waiting, which is then closed. Health checks
apart, at most ``web.ANSWERS_MAX`` connections are not waiting.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CONNECTIONS_MAX: Final = 96
"""Connections that may be open at the same time."""

REQUEST_S_MAX: Final = 10.0
"""Interval between the checks of a connection, seconds; a request may take that long to arrive, and
at most twice as long."""


@final
class TimeoutProtocol(H11Protocol):  # type: ignore[misc,unused-ignore]
    """uvicorn's HTTP/1.1 protocol, with a time limit for requests and a limit of connections."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override,unused-ignore]
        """Accept a connection, and check it every ``REQUEST_S_MAX`` from now on."""
        self.waiting_since_s = self.loop.time()
        super().connection_made(transport)
        self._checked_cycle: RequestResponseCycle | None = None  # the request of the last check
        self._check_timer = self.loop.call_later(REQUEST_S_MAX, self._check_idle)
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the checks of a closed connection."""
        self._check_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Note that the connection waits for the next request from now on."""
        self.waiting_since_s = self.loop.time()
        super().on_response_complete()

    @property
    def is_waiting(self) -> bool:
        """Return whether the peer has to send a request, or to read a response, next."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return True
        return bool(self.flow.write_paused)

    def _make_room(self) -> None:
        """Close the connection that has waited longest, or this one if no other is waiting."""
        waiting = [
            one
            for one in self.connections
            if isinstance(one, TimeoutProtocol) and one is not self and one.is_waiting
        ]
        victim = min(waiting, key=lambda one: one.waiting_since_s, default=self)
        self.connections.discard(victim)
        victim.transport.abort()

    def _check_idle(self) -> None:
        """Close the connection if it was idle since the last check; else schedule the next."""
        cycle: RequestResponseCycle | None = self.cycle
        is_idle = cycle is None or cycle.response_complete or self.flow.write_paused
        if cycle is self._checked_cycle and is_idle:
            self.transport.abort()
            return
        self._checked_cycle = cycle
        self._check_timer = self.loop.call_later(REQUEST_S_MAX, self._check_idle)
