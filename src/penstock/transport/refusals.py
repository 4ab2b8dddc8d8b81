"""Logs connections that a listener refused before MQTT, with the reason.

An open port is scanned all day, and a fleet whose certificates have expired connects a hundred
times a second. So each reason is logged once in a while, with the number of similar refusals.
"""

from __future__ import annotations

import logging
import time
from typing import final

from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, log_limited

logger = get_logger(__name__)


@final
class Refusals:
    """Logs the refusals of one listener.

    Args:
        listener: the name of the listener.
    """

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._limiter = RepeatLimiter()

    def log_refusal(self, peer: str, why: str) -> None:
        """Log that ``peer`` was refused; refusals with equal text before a colon in ``why`` are
        logged as similar."""
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
