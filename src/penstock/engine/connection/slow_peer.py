"""A peer that does not read: how long its full write buffer is tolerated.

::

      buffer full ─▶ WATCHED ── it read something ─▶ the time starts anew
                        ├── there is room again ───▶ (not watched)
                        ╰── nothing for timeout_s ─▶ given up

A slow peer reads little, a dead or stuck one nothing; only the second is disconnected. Keep alive
does not detect it while it continues to send, or while its packets are not read.
"""

from __future__ import annotations

from typing import final


@final
class SlowPeer:
    """One peer whose write buffer is full.

    Args:
        timeout_s: how long it may read nothing, seconds, above 0.
        now_s: when its buffer became full, monotonic seconds.
    """

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self.timeout_s = timeout_s
        self._took_s = now_s
        self._taken_bytes: int | None = None

    def has_stalled(self, taken_bytes: int, now_s: float) -> bool:
        """Return whether the peer has read nothing for too long.

        Args:
            taken_bytes: how much it has read since any fixed moment; only growth counts.
            now_s: when that was read, monotonic seconds.
        """
        if self._taken_bytes is None:
            self._taken_bytes = taken_bytes
        elif taken_bytes > self._taken_bytes:
            self._taken_bytes = taken_bytes
            self._took_s = now_s
        return now_s - self._took_s >= self.timeout_s
