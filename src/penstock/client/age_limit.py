"""Gives up messages that wait too long to be sent (``age_s_max``), connected or not.

::

      note, note, note, … the next offset at that time
        ╰─ age_s_max later: every message before that offset is older ─▶ given up

For a message that waits in the log of an outbox only the offset is known here, not its time. A
message left by an earlier program is therefore given up ``age_s_max`` after the start, or by its
own time when it would be sent (``Outbound.refill``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from penstock.engine.clock import MICROSECONDS
from penstock.engine.session.session import Session
from penstock.runtime.driver import Driver

_CHECKS: Final = 16  # checks within ``age_s_max``
_PAUSE_S_MAX: Final = 10.0


@final
class AgeLimit:
    """Gives up old messages of one session.

    Args:
        session: the session.
        driver: runs it.
        age_s_max: how long a message may wait, seconds; 0 = for ever.
        next_offset: returns the offset of the next message that is published.
        checked: called after each check, which may have dropped messages.
    """

    def __init__(
        self,
        session: Session,
        driver: Driver,
        age_s_max: float,
        next_offset: Callable[[], int],
        checked: Callable[[], None],
    ) -> None:
        session.outbound.max_age_us = int(age_s_max * MICROSECONDS)
        self._session = session
        self._driver = driver
        self._pause_s = min(_PAUSE_S_MAX, age_s_max / _CHECKS)
        self._next_offset = next_offset
        self._checked = checked
        self._timer: asyncio.TimerHandle | None = None
        self.notes: deque[tuple[int, int]] = deque()  # time in µs, next offset

    def start(self) -> None:
        """Check ages regularly from now on, if there is a limit."""
        if self._session.outbound.max_age_us > 0:
            self._check()

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._check)
        now = self._driver.now()
        self.notes.append((now.steady_us, self._next_offset()))
        before = 0
        while self.notes and self.notes[0][0] <= now.steady_us - self._session.outbound.max_age_us:
            before = self.notes.popleft()[1]
        self._session.outbound.drop_expired_before(before, now)
        self._driver.end_turn_soon()
        self._checked()
