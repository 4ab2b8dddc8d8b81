"""The limit that stops the queue of one session, and since when: window or write buffer.

::

      NOTHING ── window full and a message waits ─▶ WINDOW
         ▲  ──── the peer does not read ──────────▶ WRITE_BUFFER
         ╰────── the queue is empty, or the client is offline

The use of ``QUEUE``, the limits of the queue itself, is counted in addition. A queue that was full
counts as full until less than half of it is used: otherwise an overflowing queue would reach the
limit once for every message.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.session.queue import MessageQueue
from penstock.engine.values.clock import Now
from penstock.engine.values.limit_usage import NOT_AT_LIMIT, QUEUE, WINDOW, WRITE_BUFFER, LimitUsage

NOTHING: Final = -1

_UNBOUNDED: Final = 2**61


@final
class Congestion:
    """The use of the limits that stop one client's queue; nothing is allocated until one is
    reached."""

    def __init__(self, client_id: str, context: EngineContext) -> None:
        self._client_id = client_id
        self._context = context
        self._cause = NOTHING
        self._limits: list[LimitUsage] | None = None

    @property
    def was_at_limit(self) -> bool:
        """Return whether a limit was ever reached."""
        return self._limits is not None

    def usage(self, limit: int) -> LimitUsage | None:
        """Return the use of ``limit``; None if no limit was reached yet."""
        return None if self._limits is None else self._limits[limit]

    def set_cause(self, limit: int, now: Now) -> None:
        """Note that the queue waits for ``limit`` now: ``WINDOW``, ``WRITE_BUFFER`` or
        ``NOTHING``."""
        before = self._cause
        if limit == before:
            return
        if before != NOTHING:
            self._limit(before).mark_left(now.monotonic_s)
        self._cause = limit
        if limit != NOTHING:
            self._context.reach(self._limit(limit), now)

    def update_queue_full(self, queue: MessageQueue, now: Now) -> None:
        """Note whether the queue is full, after it grew or shrank."""
        if queue.has_overflowed or not queue.has_room(1):
            queue.has_overflowed = False
            self._context.reach(self._limit(QUEUE), now)
        elif self._limits is not None:
            limit = self._limits[QUEUE]
            if limit.since_s != NOT_AT_LIMIT and not queue.is_half_full(_UNBOUNDED):
                limit.mark_left(now.monotonic_s)

    def _limit(self, limit: int) -> LimitUsage:
        if self._limits is None:
            self._limits = [
                LimitUsage(self._client_id, WINDOW),
                LimitUsage(self._client_id, WRITE_BUFFER),
                LimitUsage(self._client_id, QUEUE),
            ]
        return self._limits[limit]
