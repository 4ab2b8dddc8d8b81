"""A histogram: each value in the bucket whose bound it does not exceed."""

from penstock.telemetry.histogram import Histogram


def test_a_value_that_equals_a_bound_is_within_it() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (0.0, 1.0, 1.5, 10.0, 11.0):
        histogram.count(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 23.5
