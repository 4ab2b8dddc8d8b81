"""The limit that stops the queue of one session, and for how long: window, write buffer or length.

::

      NOTHING ── window full and a message waits ─▶ WINDOW
         ▲  ──── the peer does not read ──────────▶ WRITE_BUFFER
         ╰────── the queue is empty, or the client is offline

``QUEUE`` is counted in addition: a full queue counts as full until less than half of it is used,
because an overflowing queue would otherwise become full once for every message.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.clock import Now
from penstock.engine.memory.limit_usage import NOT_AT_LIMIT, QUEUE, WINDOW, WRITE_BUFFER, LimitUsage
from penstock.engine.session.queue import MessageQueue

NOTHING: Final = -1

_UNBOUNDED: Final = 2**61


@final
class Congestion:
    """The use of the limits of one client's queue. It allocates nothing before the first is
    reached."""

    def __init__(self, client_id: str, context: EngineContext) -> None:
        self._client_id = client_id
        self._context = context
        self._cause = NOTHING
        self._limits: list[LimitUsage] | None = None

    def usage(self, limit: int) -> LimitUsage | None:
        """Return how often and how long ``limit`` was reached; None while none ever was."""
        return None if self._limits is None else self._limits[limit]

    def set_cause(self, limit: int, now: Now) -> None:
        """Note that the queue waits for ``limit`` now: ``WINDOW``, ``WRITE_BUFFER`` or
        ``NOTHING``."""
        before = self._cause
        if limit == before:
            return
        if before != NOTHING:
            self._limit(before).leave(now.monotonic_s)
        self._cause = limit
        if limit != NOTHING:
            self._context.reach(self._limit(limit), now)

    def update_queue_full(self, queue: MessageQueue, now: Now) -> None:
        """Note whether the queue is full, after it grew or shrank."""
        if queue.overflowed or not queue.has_room(1):
            queue.overflowed = False
            self._context.reach(self._limit(QUEUE), now)
        elif self._limits is not None:
            limit = self._limits[QUEUE]
            if limit.since_s != NOT_AT_LIMIT and not queue.is_half_full(_UNBOUNDED):
                limit.leave(now.monotonic_s)

    def _limit(self, limit: int) -> LimitUsage:
        if self._limits is None:
            self._limits = [
                LimitUsage(self._client_id, WINDOW),
                LimitUsage(self._client_id, WRITE_BUFFER),
                LimitUsage(self._client_id, QUEUE),
            ]
        return self._limits[limit]
