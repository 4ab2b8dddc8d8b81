"""A histogram with fixed bounds: the number of values in each bucket, and their sum.

::

      bounds     0.001   0.01   0.1        counts[i]: above bounds[i - 1], at most bounds[i]
      counts   3  │  15   │  2   │  0      the last count: above all bounds

Counting a value is a comparison with the first bound, or a bisection over some ten bounds, and the
memory never grows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import final


@final
class Histogram:
    """The counts of values by size.

    Args:
        bounds: the upper bounds of the buckets, at least one, ascending; a value may equal its
            bound.

    Attributes:
        counts: the number of values in each bucket; the last is for values above all bounds.
        total: the sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self._lowest = bounds[0]

    def count(self, value: float) -> None:
        """Count ``value`` in its bucket."""
        if value <= self._lowest:  # often: most clients have an empty window and queue
            self.counts[0] += 1
        else:
            self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
