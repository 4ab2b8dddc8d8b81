"""The rates of one connection's bytes, computed from the totals that its link counts.

::

      update ── ``RATE_S_MIN`` since the mark ─▶ rate = growth since the mark / time; a new mark
          ╰──── less ─▶ the rates stay

Nothing is computed between two updates, so that a message costs nothing. Several readers share the
marks: each gets the rates of the last period of at least ``RATE_S_MIN``.
"""

from __future__ import annotations

from typing import Final, final

RATE_S_MIN: Final = 0.9
"""The shortest period of a rate, seconds: a little less than the usual time between updates."""


@final
class ByteRates:
    """The rates of one connection, in bytes a second; 0 until the first ``update`` that is late
    enough.

    Args:
        received: bytes received until now.
        sent: bytes sent until now.
        now_s: the current time, monotonic seconds.
    """

    def __init__(self, received: int, sent: int, now_s: float) -> None:
        self.received_per_s = 0.0
        self.sent_per_s = 0.0
        self._received = received
        self._sent = sent
        self._marked_s = now_s

    def update(self, received: int, sent: int, now_s: float) -> None:
        """Compute the rates since the mark and set a new mark, unless the mark is younger than
        ``RATE_S_MIN``.

        Args:
            received: bytes received until now.
            sent: bytes sent until now.
            now_s: the current time, monotonic seconds.
        """
        passed_s = now_s - self._marked_s
        if passed_s < RATE_S_MIN:
            return
        self.received_per_s = (received - self._received) / passed_s
        self.sent_per_s = (sent - self._sent) / passed_s
        self._received = received
        self._sent = sent
        self._marked_s = now_s
