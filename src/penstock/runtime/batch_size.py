"""How large a batch may get, so that nobody waits long for the commit in front of theirs.

What a disk writes in a hundredth of a second differs by a factor of a hundred from one to the
next, and with what else it has to do, so it is not a setting but measured: a large commit that took
too long halves the size, and one that did not lets it grow back, as TCP finds the rate of a link.
Small commits say nothing: they take what a sync takes.
"""

from __future__ import annotations

from typing import Final, final

SLICE_S: Final = 0.02  # a commit should take no longer
BYTES_MIN: Final = 1_048_576  # less would cost syncs and save no time
BYTES_FIRST: Final = 4 * BYTES_MIN


@final
class BatchSize:
    """The bytes of messages in one batch above which who made much of it waits.

    Args:
        bytes_most: it never gets larger.
    """

    def __init__(self, bytes_most: int) -> None:
        self._bytes_most = bytes_most
        self.bytes_max = min(BYTES_FIRST, bytes_most)

    def took(self, size_bytes: int, seconds: float) -> None:
        """A commit of so many bytes of messages took so long."""
        if seconds > SLICE_S:
            if size_bytes > BYTES_MIN:
                least = min(BYTES_MIN, self._bytes_most)
                self.bytes_max = max(least, min(self.bytes_max, size_bytes) // 2)
        elif size_bytes >= self.bytes_max // 2:
            self.bytes_max = min(self._bytes_most, self.bytes_max + self.bytes_max // 4)
