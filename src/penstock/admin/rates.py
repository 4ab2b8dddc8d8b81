"""A limit on the requests of one token: so many a second, after as many at once."""

from __future__ import annotations

import time
from typing import Final, final

PER_S: Final = 20.0
"""Requests of one token in a second."""

AT_ONCE: Final = 40.0
"""Requests of one token at once, after a pause."""


@final
class Rates:
    """Counts requests by the name of their token; there are as many names as tokens."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # requests, and when that was

    def may_ask(self, name: str) -> bool:
        """Return whether one more request may be made now; count it."""
        now_s = time.monotonic()
        left, then_s = self._left.get(name, (AT_ONCE, now_s))
        left = min(AT_ONCE, left + (now_s - then_s) * PER_S)
        may = left >= 1.0
        self._left[name] = (left - 1.0 if may else left), now_s
        return may
