"""Logs a warning when a client stays at one of its limits, and a line when it has left the limit.

It also warns when there is no room for more sessions of any client (``engine.memory.pool``).

::

      reached ─▶ watched ── still there after limit_warning_s ─▶ warned ── left ─▶ logged,
                    ╰────── left before ─▶ forgotten                               and forgotten

A limit that is reached and left again, a thousand times a second, is flow control at work; it is
watched as one entry. At most ``LINES_MAX`` clients are named in ten seconds; further clients are
counted in one line.
"""

from __future__ import annotations

import logging
from heapq import heappop, heappush
from itertools import count
from typing import Final, final

from penstock.engine.api import EngineContext
from penstock.engine.values.clock import Now
from penstock.engine.values.limit_usage import INBOUND, LIMITS, WINDOW, WRITE_BUFFER, LimitUsage
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

RECHECK_S: Final = 1.0
LINES_MAX: Final = 20
LINES_INTERVAL_S: Final = 10.0

_CAUSES: Final[dict[int, tuple[str, str]]] = {  # cause, remedy
    WINDOW: (
        "its in-flight window is full and messages wait",
        "it acknowledges too slowly: let it, or raise limits.max_inflight and its Receive Maximum",
    ),
    WRITE_BUFFER: (
        "it does not read what it is sent",
        "look at the client and its network, or have it subscribe to less",
    ),
    INBOUND: (
        "as many of its messages are unacknowledged as it may send",
        "it must release its QoS 2 messages (PUBREL), or raise limits.receive_maximum",
    ),
}


@final
class LimitWarnings:
    """Watches the limits that clients reached.

    Args:
        context: the engine context, which lists the clients that reached a limit.
        warning_s: seconds for which a client must stay at a limit; 0 = no warnings.
    """

    def __init__(self, context: EngineContext, warning_s: float) -> None:
        self._context = context
        self.warning_s = warning_s
        # A heap of due time, order, limit, and the time since which it is warned of (-1.0: not).
        self._watch_heap: list[tuple[float, int, LimitUsage, float]] = []
        self._order = count()
        self._line_count = 0
        self._unnamed_count = 0
        self._sessions_refused = 0
        self._interval_ends_s = 0.0

    def tick(self, now: Now) -> None:
        """Warn of clients that stay at a limit, and log clients that have left their limit."""
        for at_limit in self._context.take_newly_reached():
            if at_limit.limit not in _CAUSES or self.warning_s == 0:
                at_limit.is_watched = False
                continue
            self._watch(at_limit, max(at_limit.since_s, 0.0) + self.warning_s, -1.0)
        now_s = now.monotonic_s
        if now_s >= self._interval_ends_s:
            self._end_interval(now_s)
        while self._watch_heap and self._watch_heap[0][0] <= now_s:
            _, _, at_limit, warned_s = heappop(self._watch_heap)
            self._check(at_limit, warned_s, now_s)

    def _check(self, at_limit: LimitUsage, warned_s: float, now_s: float) -> None:
        lasts_s = at_limit.lasts_s(now_s)
        if at_limit.since_s < 0:
            at_limit.is_watched = False
            if warned_s >= 0:
                self._log_within_limit(
                    logging.INFO,
                    "client %s is below its limit again, after %.0f s (%s)",
                    at_limit.client_id,
                    now_s - warned_s,
                    LIMITS[at_limit.limit],
                )
        elif warned_s >= 0:
            self._watch(at_limit, now_s + RECHECK_S, warned_s)
        elif lasts_s < self.warning_s:
            self._watch(at_limit, at_limit.since_s + self.warning_s, -1.0)
        else:
            cause, remedy = _CAUSES[at_limit.limit]
            self._log_within_limit(
                logging.WARNING,
                "client %s is at its limit for %.0f s: %s; %s",
                at_limit.client_id,
                lasts_s,
                cause,
                remedy,
            )
            self._watch(at_limit, now_s + RECHECK_S, at_limit.since_s)

    def _watch(self, at_limit: LimitUsage, due_s: float, warned_s: float) -> None:
        heappush(self._watch_heap, (due_s, next(self._order), at_limit, warned_s))

    def _log_within_limit(self, level: int, message: str, *args: object) -> None:
        if self._line_count >= LINES_MAX:
            self._unnamed_count += 1
            return
        self._line_count += 1
        assert self._line_count <= LINES_MAX, "an interval has at most LINES_MAX lines"
        logger.log(level, message, *args)

    def _end_interval(self, now_s: float) -> None:
        self._interval_ends_s = now_s + LINES_INTERVAL_S
        self._line_count = 0
        refused = self._context.budget.sessions_refused
        if refused > self._sessions_refused:
            logger.warning(
                "%d sessions, subscriptions or wills were refused: there is no room for more in"
                " memory.sessions_bytes_max, or in what one user may have of it"
                " (memory.share_max)",
                refused - self._sessions_refused,
            )
            self._sessions_refused = refused
        if self._unnamed_count:
            logger.warning(
                "%d more clients reached or left their limits: see `penstock flow`",
                self._unnamed_count,
            )
            self._unnamed_count = 0
