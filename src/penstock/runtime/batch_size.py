"""The largest size of a batch, adapted so that no client waits long for the commit before its own.

The bytes that a disk writes in a hundredth of a second differ by a factor of a hundred between
disks, and with other load, so the size is not a setting but measured: a large commit that took too
long halves the size, and a large commit that did not lets it grow, as TCP finds the rate of a link.
Small commits measure the time of a sync, which does not depend on the size.
"""

from __future__ import annotations

from typing import Final, final

SLICE_S: Final = 0.02  # the longest time that writing a commit should take, without its sync
BYTES_MIN: Final = 1_048_576  # smaller batches would cost syncs and save no time
SMALL_BYTES: Final = BYTES_MIN // 16
BYTES_FIRST: Final = 4 * BYTES_MIN


@final
class BatchSize:
    """The largest size of a batch; clients that send more wait for the next one.

    Args:
        bytes_most: the upper bound of the size, in bytes of messages.

    Attributes:
        bytes_max: the present size, in bytes of messages.
    """

    def __init__(self, bytes_most: int) -> None:
        self._bytes_most = bytes_most
        self.bytes_max = min(BYTES_FIRST, bytes_most)
        self._sync_s = 0.0  # moving average of the duration of small commits

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
