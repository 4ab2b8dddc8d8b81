"""The size of a batch: adapted so that no client waits long for the commit before its own.

How much a disk writes in a hundredth of a second differs by a factor of a hundred from one to the
next, and with other work of the disk and the interpreter, so it is not a setting but measured: a
large commit that took too long halves the size, and one that did not lets it grow back, as TCP
finds the rate of a link. Small commits tell how long a sync takes, which does not depend on size.
"""

from __future__ import annotations

from typing import Final, final

SLICE_S: Final = 0.02  # a commit should take no longer
BYTES_MIN: Final = 1_048_576  # less would cost syncs and save no time
SMALL_BYTES: Final = BYTES_MIN // 16
BYTES_FIRST: Final = 4 * BYTES_MIN


@final
class BatchSize:
    """The number of message bytes in a batch above which the clients that filled it must wait.

    Args:
        bytes_most: the largest such number.
    """

    def __init__(self, bytes_most: int) -> None:
        self._bytes_most = bytes_most
        self.bytes_max = min(BYTES_FIRST, bytes_most)
        self._sync_s = 0.0  # how long small commits took lately

    def adapt(self, size_bytes: int, seconds: float) -> None:
        """Adapt the size to a commit of ``size_bytes`` bytes of messages that took ``seconds``."""
        if size_bytes < SMALL_BYTES:
            self._sync_s += (seconds - self._sync_s) / 8
        elif size_bytes >= self.bytes_max // 2:
            if seconds - self._sync_s > SLICE_S:
                least = min(BYTES_MIN, self._bytes_most)
                self.bytes_max = max(least, self.bytes_max // 2)
            else:
                self.bytes_max = min(self._bytes_most, self.bytes_max + self.bytes_max // 4)
        assert 0 < self.bytes_max <= self._bytes_most, "a batch has room for one message"
