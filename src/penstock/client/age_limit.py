"""Drops messages that wait longer than ``age_s_max`` to be sent, with or without a connection.

::

      at each check: sample the next offset
        ╰─ age_s_max later: every message below that offset is too old ─▶ dropped

For a message in the log of an outbox only the offset is in memory, not its time. A message of an
earlier program is therefore dropped ``age_s_max`` after the start, or by its own time when it is
about to be sent (``Outbound.refill``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from penstock.engine.api import Session
from penstock.engine.values.clock import MICROSECONDS
from penstock.runtime.driver import Driver

_CHECKS_PER_AGE: Final = 16  # checks in each ``age_s_max``
_INTERVAL_S_MAX: Final = 10.0


@final
class AgeLimit:
    """Drops messages of one session that have waited too long.

    Args:
        session: the session.
        driver: the driver of the session's engine.
        age_s_max: time that a message may wait, seconds; 0 for no limit.
        next_offset: returns the offset that the next published message will get.
        on_check: called after each check, which may have dropped messages.
    """

    def __init__(
        self,
        session: Session,
        driver: Driver,
        age_s_max: float,
        next_offset: Callable[[], int],
        on_check: Callable[[], None],
    ) -> None:
        session.outbound.max_age_us = int(age_s_max * MICROSECONDS)
        self._session = session
        self._driver = driver
        self._interval_s = min(_INTERVAL_S_MAX, age_s_max / _CHECKS_PER_AGE)
        self._next_offset = next_offset
        self._on_check = on_check
        self._timer: asyncio.TimerHandle | None = None
        self.offset_samples: deque[tuple[int, int]] = deque()  # time in µs, next offset

    def start(self) -> None:
        """Start the periodic checks, if there is a limit."""
        if self._session.outbound.max_age_us > 0:
            self._check()

    def stop(self) -> None:
        """Stop the periodic checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._check)
        now = self._driver.now()
        self.offset_samples.append((now.steady_us, self._next_offset()))
        before = 0
        while (
            self.offset_samples
            and self.offset_samples[0][0] <= now.steady_us - self._session.outbound.max_age_us
        ):
            before = self.offset_samples.popleft()[1]
        self._session.outbound.drop_expired_before(before, now)
        self._driver.end_turn_soon()
        self._on_check()
