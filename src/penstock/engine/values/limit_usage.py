"""The use of one limit by one client: how often it was reached, for how long, and since when.

::

      below ── a message must wait, or no more may be sent ─▶ at the limit ── room again ─▶ below
                         times + 1, since = now                     total += now - since

Reaching a limit is the normal work of flow control; staying there is worth a log line. The shell
writes that line for the limits in ``EngineContext.newly_reached``, where each limit is once until
``is_watched`` is reset.
"""

from __future__ import annotations

from typing import Final, final

WINDOW: Final = 0  # the in-flight window is full, and a message waits for it
WRITE_BUFFER: Final = 1  # the client does not read, and a message waits
QUEUE: Final = 2  # the message queue was full, and is still half full
INBOUND: Final = 3  # the client has as many unacknowledged messages as it may send

LIMITS: Final = ("window", "write_buffer", "queue", "inbound")

NOT_AT_LIMIT: Final = -1.0


@final
class LimitUsage:
    """One limit of one client; times are seconds of the monotonic clock.

    Args:
        client_id: the client identifier.
        limit: ``WINDOW`` … ``INBOUND``.
    """

    def __init__(self, client_id: str, limit: int) -> None:
        self.client_id = client_id
        self.limit = limit
        self.times = 0
        self.since_s = NOT_AT_LIMIT
        self.is_watched = False  # ``EngineContext.newly_reached`` or the shell has it
        self._total_s = 0.0

    def mark_reached(self, now_s: float) -> bool:
        """Note that the client is at the limit; return whether it was below until now."""
        if self.since_s >= 0:
            return False
        self.since_s = now_s
        self.times += 1
        return True

    def mark_left(self, now_s: float) -> None:
        """Note that the client is below the limit, and add the time at the limit to the total."""
        if self.since_s >= 0:
            self._total_s += now_s - self.since_s
            self.since_s = NOT_AT_LIMIT

    def lasts_s(self, now_s: float) -> float:
        """Return for how many seconds the client has been at the limit now; 0 if it is below."""
        return now_s - self.since_s if self.since_s >= 0 else 0.0

    def total_s(self, now_s: float) -> float:
        """Return for how many seconds the client was at the limit in all."""
        return self._total_s + self.lasts_s(now_s)
