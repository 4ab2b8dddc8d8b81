"""Latencies, counted in buckets that grow with what they hold: constant memory, known error.

::

      nanoseconds   0 1 2 … 255 │ 256-257 258-259 … 510-511 │ 512-515 … │ …
      a bucket has       1      │            2              │     4     │ twice as many each time

Every power of two is cut into 128 buckets, so that a bucket is narrower than 1/128 of any value in
it. The reported value is the greatest of its bucket: never below the true one, and less than
0.8 % above it. HdrHistogram works the same way (Gil Tene, http://hdrhistogram.org).
"""

from __future__ import annotations

from math import ceil
from typing import Final, final

ERROR_MAX: Final = 1 / 128
"""The most by which a reported value may exceed the true one, as a fraction of it."""

_BITS: Final = 7  # of a value, beside its highest
_BUCKETS: Final = (64 - _BITS) << _BITS  # up to 2**63 - 1


@final
class Histogram:
    """Counts how many values there were of each size.

    Attributes:
        count: the number of all values.
        max_ns: the greatest value, exactly; 0 if there is none.
    """

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKETS
        self.count = 0
        self.max_ns = 0
        self._sum_ns = 0

    def record(self, value_ns: int) -> None:
        """Count a value, nanoseconds; below 0 it is 0."""
        if value_ns < 0:
            value_ns = 0
        shift = value_ns.bit_length() - _BITS - 1
        bucket = value_ns if shift <= 0 else (shift << _BITS) + (value_ns >> shift)
        self._buckets[bucket] += 1
        self.count += 1
        self._sum_ns += value_ns
        if value_ns > self.max_ns:
            self.max_ns = value_ns

    @property
    def mean_ns(self) -> float:
        """The mean, exactly; 0.0 if there is none."""
        return self._sum_ns / self.count if self.count else 0.0

    def quantile_ns(self, part: float) -> int:
        """Return the value that this fraction of all values, 0 to 1, does not exceed; 0 if there is
        none."""
        wanted = max(1, ceil(part * self.count))
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= wanted:
                return min(_greatest_in(bucket), self.max_ns)
        return self.max_ns


def _greatest_in(bucket: int) -> int:
    """Return the greatest value that is counted in this bucket."""
    shift = max(0, (bucket >> _BITS) - 1)
    return ((bucket - (shift << _BITS) + 1) << shift) - 1
