"""A peer that does not read: how long its full buffer is put up with.

::

      buffer full ─▶ WATCHED ── it took something ─▶ the time starts anew
                        ├── there is room again ───▶ (not watched)
                        ╰── nothing for timeout_s ─▶ given up

A slow peer takes little, a dead or stuck one nothing; only the second is given up. Keep
alive does not find it when it goes on sending, or while its packets are not read.
"""

from __future__ import annotations

from typing import final


@final
class SlowPeer:
    """One peer whose write buffer is full.

    Args:
        timeout_s: without reading anything, above 0.
        now_s: when its buffer got full, on the monotonic clock.
    """

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self.timeout_s = timeout_s
        self._took_s = now_s
        self._taken_bytes: int | None = None

    def given_up(self, taken_bytes: int, now_s: float) -> bool:
        """Whether it took nothing for too long.

        Args:
            taken_bytes: how much it took since any fixed moment; only growth counts.
            now_s: when that was.
        """
        if self._taken_bytes is None:
            self._taken_bytes = taken_bytes
        elif taken_bytes > self._taken_bytes:
            self._taken_bytes = taken_bytes
            self._took_s = now_s
        return now_s - self._took_s >= self.timeout_s
