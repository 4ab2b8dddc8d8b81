"""Pushes filters of a batch query down to the log, which then reads or sends fewer rows.

    offset       >= > < <= = in          narrow the range of offsets that is read
    received_at  >= > < <= = in          narrow that range, and leave out rows by their time
    topic        = in                    topic filters, besides those of the option topics
    topic        like 'plant/1/%'        a topic filter that may match more topics
    machine      = in                    topic filters, if `topicPattern` names a level machine
    offset, received_at, topic is not null   always true

Spark applies all other filters, and also those that the log applies only in part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

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

from penstock.stream.pushed_filters import IntRange, PushedFilters, is_topic_level

if TYPE_CHECKING:  # most queries name no levels, and a planner must start soon
    from penstock.decoding.topic_pattern import TopicPattern

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = (("offset",), ("received_at",), ("topic",))


def push_down(
    pushed: PushedFilters, filters: Iterable[Filter], pattern: TopicPattern | None = None
) -> tuple[PushedFilters, list[Filter]]:
    """Add filters of a query to those of the log.

    Args:
        pushed: the filters that the log applies anyway.
        filters: the filters of the query.
        pattern: the topics with named levels that the source reads; None for no named levels.

    Returns:
        The filters of the log, and the filters that Spark must apply.
    """
    unapplied = []
    on_levels = _OnLevels(pattern)
    for condition in filters:
        if on_levels.add(condition):
            continue
        pushed, is_complete = _push_one(pushed, condition)
        if not is_complete:
            unapplied.append(condition)
    narrowed = on_levels.push(pushed)
    if narrowed is None:
        return pushed, unapplied + on_levels.conditions
    return narrowed, unapplied


class _OnLevels:
    """The filters on named levels of a pattern, which together make topic filters."""

    def __init__(self, pattern: TopicPattern | None) -> None:
        self._levels = () if pattern is None else pattern.levels
        self._names = () if pattern is None else pattern.exact_levels
        self._values: dict[str, list[str]] = {}
        self.conditions: list[Filter] = []

    def add(self, condition: Filter) -> bool:
        """Add a filter; return whether it is on a named level, and can be applied by the log."""
        (name, *parts) = getattr(condition, "attribute", ("",))
        if parts or name not in self._names:
            return False
        if isinstance(condition, IsNotNull):
            return True
        if isinstance(condition, In):
            texts = list(dict.fromkeys(condition.value))
        elif isinstance(condition, EqualTo | EqualNullSafe):
            texts = [condition.value]
        else:
            return False
        if not all(map(is_topic_level, texts)):
            return False
        self._values[name] = [text for text in texts if text in self._values.get(name, texts)]
        self.conditions.append(condition)
        return True

    def push(self, pushed: PushedFilters) -> PushedFilters | None:
        """Return the filters of the log restricted by those on levels; None if it cannot be."""
        return pushed.with_levels(self._levels, self._values) if self._values else pushed


def _push_one(pushed: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    if isinstance(condition, IsNotNull):
        return pushed, condition.attribute in _NEVER_NULL
    attribute = getattr(condition, "attribute", None)
    if attribute == ("offset",):
        narrowed = _narrow(pushed.offsets, condition, _as_integer)
        return (
            (pushed, False)
            if narrowed is None
            else (replace(pushed, offsets=narrowed[0]), narrowed[1])
        )
    if attribute == ("received_at",):
        narrowed = _narrow(pushed.times_us, condition, _as_microseconds)
        return (
            (pushed, False)
            if narrowed is None
            else (replace(pushed, times_us=narrowed[0]), narrowed[1])
        )
    if attribute == ("topic",):
        return _push_topics(pushed, condition)
    return pushed, False


def _narrow(
    bounds: IntRange, condition: Filter, number: Callable[[Any], int | None]
) -> tuple[IntRange, bool] | None:
    """Return the bounds narrowed by a filter, and whether they are equivalent to the filter.

    None if no bounds follow from the filter.
    """
    if isinstance(condition, In):
        numbers = [number(value) for value in condition.value]
        found = [value for value in numbers if value is not None]
        if len(found) < len(numbers) or not found:
            return None
        low, high = min(found), max(found)
        return bounds.cut(low, high + 1), high - low < len(set(found))
    value = number(getattr(condition, "value", None))
    if value is None:
        return None
    match condition:
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


def _push_topics(pushed: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    if isinstance(condition, StringStartsWith):
        return pushed.with_topics_below(condition.value), False
    if isinstance(condition, In):
        found = pushed.with_topics(condition.value)
    elif isinstance(condition, EqualTo | EqualNullSafe):
        found = pushed.with_topics([condition.value])
    else:
        found = None
    return (pushed, False) if found is None else (found, True)


def _as_integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _as_microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


class QuietPushFilters:
    """A `pushFilters` method that is no error for users who have not enabled push-down.

    PySpark refuses a reader whose class overrides `pushFilters` while push-down is disabled
    ("DATA_SOURCE_PUSHDOWN_DISABLED" in pyspark/sql/worker/plan_data_source_read.py). It compares
    the function behind the method with that of its base class, so this object shows it that
    function.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Push filters down; return those that Spark must apply."""
        return self._push(filters)
