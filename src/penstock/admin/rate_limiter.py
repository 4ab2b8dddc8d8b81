"""Limits on requests and logins: a token bucket for each user, token or address."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

PER_S: Final = 20.0
"""Requests a second of one token or user."""

BURST: Final = 40.0
"""Requests of one token or user in a burst."""

LOGINS_PER_S: Final = 0.5
"""Password checks a second of one address; passwords checked recently do not count."""

LOGINS_BURST: Final = 10.0
"""Password checks of one address in a burst."""

NAMES_MAX: Final = 10_000
"""Buckets of one limiter at most; the least recently used one is dropped, and is full again."""


@final
class RateLimiter:
    """A token bucket for each name.

    Args:
        per_s: tokens added to each bucket a second.
        burst: tokens of a full bucket; each bucket begins full.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        per_s: float = PER_S,
        burst: float = BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and the time of that count

    def allow(self, name: str) -> bool:
        """Take a token from the bucket of a name; return False if it is empty."""
        now_s = self._clock()
        left, then_s = self._buckets.pop(name, (self._burst, now_s))
        left = min(self._burst, left + (now_s - then_s) * self._per_s)
        is_allowed = left >= 1.0
        if len(self._buckets) >= NAMES_MAX:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[name] = (left - 1.0 if is_allowed else left), now_s
        return is_allowed
