"""One client at one of its limits: how often, how long, and since when.

::

      below ── a message has to wait, or no more may come ─▶ at the limit ── room again ─▶ below
                         times + 1, since = now                     total += now - since

Reaching a limit is the normal work of flow control; staying there is worth a log line. The shell,
which writes it, takes ``EngineContext.reached``: each limit is in it once until ``watched`` is
reset.
"""

from __future__ import annotations

from typing import Final, final

WINDOW: Final = 0  # the in-flight window is full and a message waits for a place
WRITE_BUFFER: Final = 1  # the client does not read, and a message waits
QUEUE: Final = 2  # the message queue is full, until less than half of it is taken
INBOUND: Final = 3  # as many messages are unacknowledged as the client may send

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
        self.watched = False  # whether it is in ``EngineContext.reached``, or the shell watches it
        self._total_s = 0.0

    def reached(self, now_s: float) -> bool:
        """Note that the limit is reached; return whether it was not before."""
        if self.since_s >= 0:
            return False
        self.since_s = now_s
        self.times += 1
        return True

    def leave(self, now_s: float) -> None:
        """Note that there is room again, and add the time at the limit to the total."""
        if self.since_s >= 0:
            self._total_s += now_s - self.since_s
            self.since_s = NOT_AT_LIMIT

    def lasts_s(self, now_s: float) -> float:
        """Return how long the limit has been reached without a break, in seconds; 0 when it is
        not."""
        return now_s - self.since_s if self.since_s >= 0 else 0.0

    def total_s(self, now_s: float) -> float:
        """Return how long the limit was reached in all, in seconds."""
        return self._total_s + self.lasts_s(now_s)
