"""Who may connect: how many at once, how many a second, and how many files the system gives.

::

   accepted ─▶ the listener's max_connections ─▶ the process's descriptors ─▶ served
                        │ more                            │ more
                        ╰───────▶ closed at once ◀────────╯

   listening ─▶ a token in the bucket? ─▶ accept
                        │ none: the connection waits in the system's queue

A new connection above a number is closed at once, so that its client knows; above a rate it
waits, because the clients of a reconnecting fleet would only come again, and all together.
"""

from __future__ import annotations

import logging
from typing import Final, final

from penstock.telemetry.logs import RepeatLimiter, warn_limited

logger = logging.getLogger(__name__)

_WAIT_S_MIN: Final = 0.001


@final
class TokenBucket:
    """At most ``per_s`` tokens a second, after ``per_s`` at once.

    Args:
        per_s: tokens a second, at least 1; 0 = no limit.
        now_s: the time of the start, any steady clock.
    """

    def __init__(self, per_s: int, now_s: float) -> None:
        self._per_s = per_s
        self._tokens = float(per_s)
        self._filled_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is a token; 0.0 if there is one now."""
        if self._per_s == 0:
            return 0.0
        earned = (now_s - self._filled_s) * self._per_s
        self._tokens = min(float(self._per_s), self._tokens + earned)
        self._filled_s = now_s
        if self._tokens >= 1.0:
            return 0.0
        return max(_WAIT_S_MIN, (1.0 - self._tokens) / self._per_s)

    def take(self) -> None:
        """Take the token that ``wait_s`` found."""
        self._tokens -= 1.0


@final
class Descriptors:
    """The connections of all listeners together, which share one limit of open files.

    Args:
        connections_max: connections that leave enough files for everything else.
    """

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.open = 0
        self.warned = False


@final
class Place:
    """The place of one admitted connection, given back once."""

    def __init__(self, admission: Admission, descriptors: Descriptors) -> None:
        self._admission = admission
        self._descriptors = descriptors
        self._taken = True

    def release(self) -> None:
        """The connection is gone; further calls do nothing."""
        if self._taken:
            self._taken = False
            self._admission.open -= 1
            self._descriptors.open -= 1


@final
class Admission:
    """The bounds of one listener.

    Args:
        name: of the listener, for warnings.
        max_connections: open connections.
        descriptors: shared by all listeners.
    """

    def __init__(self, name: str, max_connections: int, descriptors: Descriptors) -> None:
        self.open = 0
        self._name = name
        self._max_connections = max_connections
        self._descriptors = descriptors
        self._limiter = RepeatLimiter()

    def admit(self, peer: str, now_s: float) -> Place | None:
        """A place for one more connection; None if it is to be closed."""
        descriptors = self._descriptors
        if descriptors.open >= descriptors.connections_max:
            if not descriptors.warned:  # once: the limit will not change while this runs
                descriptors.warned = True
                logger.warning(
                    "refused a connection from %s, and will refuse more: %d are open, as many as"
                    " the limit of open files leaves room for; raise it (ulimit -Hn, LimitNOFILE"
                    " in a systemd unit, --ulimit nofile of a container) and start again",
                    peer,
                    descriptors.open,
                )
            return None
        if self.open >= self._max_connections:
            warn_limited(
                logger,
                self._limiter,
                now_s,
                "max_connections",
                "refused a connection from %s: max_connections (%d) of listener %s are open",
                peer,
                self._max_connections,
                self._name,
            )
            return None
        self.open += 1
        descriptors.open += 1
        return Place(self, descriptors)
