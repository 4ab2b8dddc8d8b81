"""Filters of a batch query that the log applies: other rows are not read, or not sent.

    offset       >= > < <= = in          other ranges of offsets
    received_at  >= > < <= = in          ranges where there may be such rows, and rows by their time
    topic        = in                    topic filters, those of the option topics among them
    topic        like 'plant/1/%'        a topic filter that is no narrower
    offset, received_at, topic is not null   always true

All other filters are left to Spark, and so are those that the log applies only in part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from penstock.stream.pushed_filters import IntRange, PushedFilters

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = (("offset",), ("received_at",), ("topic",))


def push_down(
    pushed: PushedFilters, filters: Iterable[Filter]
) -> tuple[PushedFilters, list[Filter]]:
    """Add filters to the log's own; return the result, and the filters left to Spark."""
    left = []
    for one in filters:
        pushed, is_done = _push(pushed, one)
        if not is_done:
            left.append(one)
    return pushed, left


def _push(pushed: PushedFilters, one: Filter) -> tuple[PushedFilters, bool]:
    if isinstance(one, IsNotNull):
        return pushed, one.attribute in _NEVER_NULL
    attribute = getattr(one, "attribute", None)
    if attribute == ("offset",):
        cut = _cut(pushed.offsets, one, _whole)
        return (pushed, False) if cut is None else (replace(pushed, offsets=cut[0]), cut[1])
    if attribute == ("received_at",):
        cut = _cut(pushed.times_us, one, _micros)
        return (pushed, False) if cut is None else (replace(pushed, times_us=cut[0]), cut[1])
    if attribute == ("topic",):
        return _push_topics(pushed, one)
    return pushed, False


def _cut(
    bounds: IntRange, one: Filter, number: Callable[[Any], int | None]
) -> tuple[IntRange, bool] | None:
    """Return the bounds cut by a filter, and whether that is all of it; None if it has no
    bounds."""
    if isinstance(one, In):
        numbers = [number(value) for value in one.value]
        found = [value for value in numbers if value is not None]
        if len(found) < len(numbers) or not found:
            return None
        low, high = min(found), max(found)
        return bounds.cut(low, high + 1), high - low < len(set(found))
    value = number(getattr(one, "value", None))
    if value is None:
        return None
    match one:
        case EqualTo() | EqualNullSafe():
            return bounds.cut(value, value + 1), True
        case GreaterThan():
            return bounds.cut(value + 1, bounds.high), True
        case GreaterThanOrEqual():
            return bounds.cut(value, bounds.high), True
        case LessThan():
            return bounds.cut(bounds.low, value), True
        case LessThanOrEqual():
            return bounds.cut(bounds.low, value + 1), True
    return None


def _push_topics(pushed: PushedFilters, one: Filter) -> tuple[PushedFilters, bool]:
    if isinstance(one, StringStartsWith):
        return pushed.with_topics_below(one.value), False
    if isinstance(one, In):
        found = pushed.with_topics(one.value)
    elif isinstance(one, EqualTo | EqualNullSafe):
        found = pushed.with_topics([one.value])
    else:
        found = None
    return (pushed, False) if found is None else (found, True)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _micros(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


class QuietPushFilters:
    """A `pushFilters` that PySpark does not see unless the user has enabled push-down.

    Otherwise a reader with its own is an error ("DATA_SOURCE_PUSHDOWN_DISABLED" in
    pyspark/sql/worker/plan_data_source_read.py), and reading would fail for users who do not
    know the setting. PySpark looks at the function behind the method, which is that of its base.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, act: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._act = act

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Push filters down; return the others."""
        return self._act(filters)
