"""Log which connections failed in their first steps to a listener, and why.

Open ports are knocked at all day, and a fleet whose certificates have expired knocks a hundred
times a second. So each reason is one line in a while, with the number of those like it.
"""

from __future__ import annotations

import logging
import time
from typing import final

from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, log_limited

logger = get_logger(__name__)


@final
class Refusals:
    """The refusals of one listener.

    Args:
        listener: its name.
    """

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._limiter = RepeatLimiter()

    def note(self, peer: str, why: str) -> None:
        """Log that ``peer`` was refused; the part of ``why`` before a colon is the reason."""
        log_limited(
            logger,
            logging.INFO,
            self._limiter,
            time.monotonic(),
            why.partition(": ")[0],
            "listener %s: %s did not get through: %s",
            self._listener,
            peer,
            Sentence(why),
        )
