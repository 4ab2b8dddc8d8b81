"""A peer that does not read: for how long its write buffer may be full.

::

      buffer full ─▶ WATCHED ── it read some bytes ─▶ the timeout restarts
                        ├── there is room again ────▶ (not watched)
                        ╰── nothing for timeout_s ──▶ disconnected

A slow peer reads little, a dead or stuck one nothing; only the second is disconnected. Keep alive
does not detect it while it continues to send, or while its packets are not read.

The time counts from the first look at what it has read: a busy broker may look late, and does not
know what was read before.
"""

from __future__ import annotations

from typing import final


@final
class SlowPeer:
    """One peer whose write buffer is full.

    Args:
        timeout_s: seconds for which it may read nothing, above 0.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._last_read_s = 0.0
        self._read_bytes: int | None = None

    def has_stalled(self, taken_bytes: int, now_s: float) -> bool:
        """Return whether the peer has read nothing for ``timeout_s``.

        Args:
            taken_bytes: bytes that it has read since any fixed moment.
            now_s: the current time, monotonic seconds.
        """
        if self._read_bytes is None or taken_bytes > self._read_bytes:
            self._read_bytes = taken_bytes
            self._last_read_s = now_s
        return now_s - self._last_read_s >= self.timeout_s
