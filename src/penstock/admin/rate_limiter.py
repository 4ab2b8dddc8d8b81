"""Limits on requests and logins: a token bucket for each user, token or address."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

PER_S: Final = 20.0
"""Requests of one token or user in a second."""

AT_ONCE: Final = 40.0
"""Requests of one token or user at once, after a pause."""

LOGINS_PER_S: Final = 0.5
"""Passwords from one address in a second, those apart that were right a short while ago."""

LOGINS_AT_ONCE: Final = 10.0
"""Such passwords at once, after a pause."""

NAMES_MAX: Final = 10_000
"""Names that are counted; the one that did something longest ago is forgotten."""


@final
class RateLimiter:
    """A token bucket for each name.

    Args:
        per_s: tokens that a bucket gets a second.
        at_once: tokens of a full bucket; each begins full.
        clock: tells the time, seconds.
    """

    def __init__(
        self,
        per_s: float = PER_S,
        at_once: float = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # tokens, and when there were as many

    def allow(self, name: str) -> bool:
        """Take a token of a name's bucket; return whether there was one."""
        now_s = self._clock()
        left, then_s = self._left.pop(name, (self._at_once, now_s))
        left = min(self._at_once, left + (now_s - then_s) * self._per_s)
        is_allowed = left >= 1.0
        if len(self._left) >= NAMES_MAX:
            del self._left[next(iter(self._left))]
        self._left[name] = (left - 1.0 if is_allowed else left), now_s
        return is_allowed
