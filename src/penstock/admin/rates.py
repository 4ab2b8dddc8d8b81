"""Limits on how often something is done: so many a second, after as many at once."""

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
class Rates:
    """Counts by name.

    Args:
        per_s: how many a second.
        at_once: how many at once.
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
        self._left: dict[str, tuple[float, float]] = {}  # how many, and when that was

    def may(self, name: str) -> bool:
        """Return whether one more is allowed now; count it."""
        now_s = self._clock()
        left, then_s = self._left.pop(name, (self._at_once, now_s))
        left = min(self._at_once, left + (now_s - then_s) * self._per_s)
        may = left >= 1.0
        if len(self._left) >= NAMES_MAX:
            del self._left[next(iter(self._left))]
        self._left[name] = (left - 1.0 if may else left), now_s
        return may
