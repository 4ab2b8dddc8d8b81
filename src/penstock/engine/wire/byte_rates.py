"""The rates of one connection's bytes, from two totals that its link counts write by write.

::

      a look ── ``RATE_S_MIN`` since the mark ─▶ rate = growth since the mark / time; a new mark
          ╰──── less ─▶ the rates of the last look

Between looks nothing happens, so that a message costs nothing. Several who look share the marks:
each gets the rates of the last period of at least ``RATE_S_MIN``.
"""

from __future__ import annotations

from typing import Final, final

RATE_S_MIN: Final = 0.9
"""The shortest time that a rate is of, seconds: a little less than from one look to the next."""


@final
class ByteRates:
    """The rates of one connection; 0 until the second look.

    Args:
        received: total of bytes received until now.
        sent: total of bytes sent until now.
        now_s: the moment, monotonic seconds.
    """

    def __init__(self, received: int, sent: int, now_s: float) -> None:
        self.received_per_s = 0.0
        self.sent_per_s = 0.0
        self._received = received
        self._sent = sent
        self._marked_s = now_s

    def update(self, received: int, sent: int, now_s: float) -> None:
        """Compute the rates since the mark and set a new mark; do nothing before ``RATE_S_MIN``.

        Args:
            received: total of bytes received until now.
            sent: total of bytes sent until now.
            now_s: the moment, monotonic seconds.
        """
        passed_s = now_s - self._marked_s
        if passed_s < RATE_S_MIN:
            return
        self.received_per_s = (received - self._received) / passed_s
        self.sent_per_s = (sent - self._sent) / passed_s
        self._received = received
        self._sent = sent
        self._marked_s = now_s
