"""Filters that the log takes over, and those that are left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)

from penstock.decoding.topic_pattern import TopicPattern
from penstock.spark.options import parse_options
from penstock.spark.pushdown import push_down
from penstock.spark.source import BatchReader
from penstock.stream.pushed_filters import TOPICS_MAX, IntRange, PushedFilters
from penstock.stream.requests import COUNT_MAX, TIME_US_MAX

OFFSET, AT, TOPIC, MACHINE = ("offset",), ("received_at",), ("topic",), ("machine",)
PATTERN = TopicPattern.parse("plant/{line}/{machine}/{n:int}")


def second(n: int) -> datetime:
    return datetime.fromtimestamp(n, UTC)


@pytest.mark.parametrize(
    ("filters", "low", "high"),
    [
        ([GreaterThan(OFFSET, 5)], 6, COUNT_MAX),
        ([GreaterThanOrEqual(OFFSET, 5), LessThan(OFFSET, 9)], 5, 9),
        ([LessThanOrEqual(OFFSET, 9), LessThan(OFFSET, 20)], 0, 10),
        ([EqualTo(OFFSET, 7)], 7, 8),
        ([EqualNullSafe(OFFSET, 7), GreaterThan(OFFSET, -3)], 7, 8),
        ([In(OFFSET, (8, 6, 7))], 6, 9),
        ([LessThanOrEqual(OFFSET, COUNT_MAX)], 0, COUNT_MAX),
        ([GreaterThan(OFFSET, 9), LessThan(OFFSET, 3)], 10, 3),
    ],
)
def test_bounds_of_offsets_are_taken_over(filters: list[Filter], low: int, high: int) -> None:
    pushed, left = push_down(PushedFilters(), filters)
    assert pushed.offsets == IntRange(low, high)
    assert left == []


def test_bounds_of_times_are_taken_over_to_the_microsecond() -> None:
    exact = datetime(2026, 11, 25, 18, 0, 0, 1, UTC)
    since = GreaterThanOrEqual(AT, second(100))
    pushed, left = push_down(PushedFilters(), [since, LessThan(AT, exact)])
    assert pushed.since_us == 100_000_000
    assert pushed.until_us == 1_795_629_600_000_001
    assert left == []
    assert not PushedFilters().has_times
    assert (PushedFilters().since_us, PushedFilters().until_us) == (None, None)
    assert push_down(PushedFilters(), [GreaterThan(AT, second(-5))])[0].times_us == IntRange(
        0, TIME_US_MAX
    )


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(OFFSET, 5)),
        EqualTo(OFFSET, None),
        EqualTo(OFFSET, 2.5),
        In(OFFSET, (1, None)),
        In(OFFSET, ()),
        EqualTo(("payload",), b"x"),
        EqualTo(("properties", "offset"), 5),
        GreaterThan(AT, datetime(2026, 1, 1)),  # noqa: DTZ001  # whose time?
        IsNull(OFFSET),
        IsNotNull(("properties",)),
        GreaterThan(TOPIC, "a"),
        EqualTo(TOPIC, "plant/+"),
        EqualTo(TOPIC, ""),
        In(TOPIC, ("a", None)),
        In(TOPIC, tuple(f"t/{n}" for n in range(TOPICS_MAX + 1))),
        StringEndsWith(TOPIC, "/a"),
        StringStartsWith(TOPIC, "plant"),
        StringStartsWith(TOPIC, "pl#nt/"),
        StringStartsWith(TOPIC, "/"),
    ],
)
def test_a_filter_that_the_log_cannot_do_is_left_to_spark(one: Filter) -> None:
    assert push_down(PushedFilters(), [one]) == (PushedFilters(), [one])


def test_a_part_of_a_filter_narrows_what_is_read_and_is_left_to_spark_too() -> None:
    some = In(OFFSET, (3, 900))
    assert push_down(PushedFilters(), [some]) == (PushedFilters(offsets=IntRange(3, 901)), [some])
    prefix = StringStartsWith(TOPIC, "plant/1/te")
    assert push_down(PushedFilters(), [prefix]) == (PushedFilters(topics=("plant/1/#",)), [prefix])
    chosen = PushedFilters(topics=("plant/#",))
    assert push_down(chosen, [prefix]) == (chosen, [prefix])


@pytest.mark.parametrize(
    ("chosen", "one", "topics", "is_empty"),
    [
        ((), EqualTo(TOPIC, "a/b"), ("a/b",), False),
        ((), In(TOPIC, ("a/b", "c", "a/b")), ("a/b", "c"), False),
        (("a/#",), In(TOPIC, ("a/b", "c")), ("a/b",), False),
        (("a/#",), EqualTo(TOPIC, "c"), (), True),
    ],
)
def test_topics_are_those_of_the_filter_and_of_the_option(
    chosen: tuple[str, ...], one: Filter, topics: tuple[str, ...], is_empty: bool
) -> None:
    pushed, left = push_down(PushedFilters(topics=chosen), [one])
    assert (pushed.topics, pushed.is_empty, left) == (topics, is_empty, [])


def test_a_column_that_is_never_null_need_not_be_looked_at() -> None:
    assert push_down(PushedFilters(), [IsNotNull(name) for name in (OFFSET, AT, TOPIC)]) == (
        PushedFilters(),
        [],
    )


def test_no_topic_can_be_two_at_once() -> None:
    filters: list[Any] = [EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b"), EqualTo(TOPIC, "b")]
    assert push_down(PushedFilters(), filters)[0].is_empty


@pytest.mark.parametrize(
    ("filters", "topics", "is_empty"),
    [
        ([IsNotNull(MACHINE), EqualTo(MACHINE, "m7")], ("plant/+/m7/+",), False),
        ([In(MACHINE, ("m7", "m8"))], ("plant/+/m7/+", "plant/+/m8/+"), False),
        ([EqualTo(MACHINE, "m7"), EqualTo(("line",), "l1")], ("plant/l1/m7/+",), False),
        ([In(MACHINE, ("m7", "m8")), EqualTo(MACHINE, "m8")], ("plant/+/m8/+",), False),
        ([EqualTo(MACHINE, "m7"), EqualTo(MACHINE, "m8")], (), True),
        ([EqualTo(TOPIC, "plant/l1/m7/7")], ("plant/l1/m7/7",), False),
    ],
)
def test_conditions_on_named_levels_become_topic_filters(
    filters: list[Filter], topics: tuple[str, ...], is_empty: bool
) -> None:
    """The log sent the messages of all machines for one."""
    pushed, left = push_down(PushedFilters(topics=("plant/+/+/+",)), filters, PATTERN)
    assert (pushed.topics, pushed.is_empty, left) == (topics, is_empty, [])


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("n",), 7),
        IsNotNull(("n",)),
        GreaterThan(MACHINE, "m7"),
        EqualTo(MACHINE, "a/b"),
        In(MACHINE, ("m7", "+")),
        EqualTo(MACHINE, None),
        EqualTo(("machine", "part"), "m7"),
        In(MACHINE, tuple(f"m{n}" for n in range(TOPICS_MAX + 1))),
    ],
)
def test_a_filter_that_restricts_no_level_to_its_texts_is_left_to_spark(one: Filter) -> None:
    chosen = PushedFilters(topics=("plant/+/+/+",))
    assert push_down(chosen, [one], PATTERN) == (chosen, [one])


def test_pyspark_takes_the_reader_for_one_without_push_down_where_that_is_off() -> None:
    """As pyspark/sql/worker/plan_data_source_read.py looks at it."""
    method = BatchReader(parse_options({}), []).pushFilters
    assert getattr(method, "__func__", None) is DataSourceReader.pushFilters
