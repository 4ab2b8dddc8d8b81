"""Rate limits: a token bucket, on the caller's clock.

::

      per_s tokens a second ─▶ [ at most per_s tokens ] ─▶ one for each message, or byte
                                   below 0: reading pauses until the bucket is at 0 again

Messages that come too fast are not dropped: they take the bucket below zero, and reading pauses
until it is at zero again. A pause lasts a hundredth of a second at least, so that a client at its
limit is handled in portions and not packet by packet.
"""

from __future__ import annotations

from typing import Final, final

PAUSE_S_MIN: Final = 0.01


@final
class TokenBucket:
    """The token bucket of one client.

    Args:
        per_s: tokens that are added a second, above 0; the bucket has at most as many.
        now_s: the time at which the bucket begins, full, monotonic seconds.
    """

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._tokens = per_s
        self._filled_s = now_s

    def take(self, tokens: int, now_s: float) -> float:
        """Use ``tokens``; return how many seconds reading must pause, 0.0 for no pause."""
        filled = self._tokens + (now_s - self._filled_s) * self._per_s
        self._filled_s = now_s
        self._tokens = min(filled, self._per_s) - tokens
        if self._tokens >= 0.0:
            return 0.0
        return PAUSE_S_MIN - self._tokens / self._per_s
