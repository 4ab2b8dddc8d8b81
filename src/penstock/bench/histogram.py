"""Latencies, counted in buckets whose width grows with the value: constant memory, known error.

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

_BITS: Final = 7  # bits of a value below its highest one that choose its bucket
_BUCKETS: Final = (64 - _BITS) << _BITS  # for values up to 2**63 - 1


@final
class Histogram:
    """A histogram of durations in nanoseconds.

    Attributes:
        count: the number of all values.
        max_ns: the greatest value, exactly; 0 without values.
    """

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKETS
        self.count = 0
        self.max_ns = 0
        self._sum_ns = 0

    def record(self, value_ns: int) -> None:
        """Count a value, in nanoseconds; a negative one counts as 0."""
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
        """The mean of all values, exactly; 0.0 without values."""
        return self._sum_ns / self.count if self.count else 0.0

    def quantile_ns(self, fraction: float) -> int:
        """Return the value that a fraction of all values, 0 to 1, does not exceed; 0 without
        values."""
        rank = max(1, ceil(fraction * self.count))
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= rank:
                return min(_greatest_in(bucket), self.max_ns)
        return self.max_ns


def _greatest_in(bucket: int) -> int:
    """Return the greatest value that a bucket counts."""
    shift = max(0, (bucket >> _BITS) - 1)
    return ((bucket - (shift << _BITS) + 1) << shift) - 1
