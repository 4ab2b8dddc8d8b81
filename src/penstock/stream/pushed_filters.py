"""Filters that are pushed down to the log: ranges of offsets, times of receipt, topics.

    query ──▶ PushedFilters ──▶ spans: the ranges of offsets to read
                    ╰─────────▶ topics and times, by which the service filters the rows

Spark's filters become these in `penstock.spark.pushdown`, DuckDB's in `penstock.sql.predicates`,
and the options of `penstock tail` in `penstock.cli.log_selection`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.engine.values.topics import is_topic_name, topic_matches
from penstock.store.ranges import Ranges, subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.requests import COUNT_MAX, TIME_US_MAX, TOPIC_LEVELS_MAX

if TYPE_CHECKING:  # it needs pydantic, and a planner of Spark must start soon
    from penstock.config.topic_pattern import Level

TOPICS_MAX: Final = 100
"""Greatest number of topics that are pushed down: each message is compared with each topic."""


@dataclass(frozen=True, slots=True)
class IntRange:
    """Whole numbers from `low` up to, not including, `high`."""

    low: int
    high: int

    def cut(self, low: int, high: int) -> IntRange:
        """Return the intersection with the range from `low` up to, not including, `high`."""
        return IntRange(max(self.low, low), min(self.high, high))


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters of a query that the log applies.

    Attributes:
        offsets: the range of offsets.
        times_us: the range of times of receipt, µs since the Unix epoch.
        topics: MQTT topic filters; empty for all messages of the stream.
        is_empty: whether no topic can match.
    """

    offsets: IntRange = IntRange(0, COUNT_MAX)
    times_us: IntRange = IntRange(0, TIME_US_MAX)
    topics: tuple[str, ...] = ()
    is_empty: bool = False

    @property
    def since_us(self) -> int | None:
        """The earliest time of receipt, µs since the Unix epoch; None for no limit."""
        return self.times_us.low or None

    @property
    def until_us(self) -> int | None:
        """The end of the times of receipt, excluded, µs since the Unix epoch; None for no limit."""
        return self.times_us.high if self.times_us.high < TIME_US_MAX else None

    @property
    def has_times(self) -> bool:
        """True if the time of receipt is limited."""
        return self.since_us is not None or self.until_us is not None

    def with_topics(self, topics: Sequence[object]) -> PushedFilters | None:
        """Return these filters restricted to the topic names in `topics`; None if `topics` has too
        many values, or a value that is no topic name."""
        if len(topics) > TOPICS_MAX:
            return None
        valid = [topic for topic in dict.fromkeys(topics) if _is_topic(topic)]
        if len(valid) < len(set(topics)):
            return None
        names = [topic for topic in valid if isinstance(topic, str)]
        if self.topics:
            names = [
                topic
                for topic in names
                if any(topic_matches(topic_filter, topic) for topic_filter in self.topics)
            ]
        return replace(self, topics=tuple(names), is_empty=self.is_empty or not names)

    def with_levels(
        self, levels: Sequence[Level], values: Mapping[str, Sequence[str]]
    ) -> PushedFilters | None:
        """Return these filters restricted to topics whose named levels have one of these values.

        None if these filters have other topics than those of the levels, or if there would be more
        topic filters than are pushed down.

        Args:
            levels: the levels of the topics.
            values: texts that are each a level of a topic (`is_topic_level`), by name of a level.
        """
        choices = [values.get(level.name, (level.wildcard,)) for level in levels]
        is_too_much = math.prod(map(len, choices)) > TOPICS_MAX
        if is_too_much or self.topics != ("/".join(level.wildcard for level in levels),):
            return None
        topics = tuple("/".join(parts) for parts in itertools.product(*choices))
        return replace(self, topics=topics, is_empty=self.is_empty or not topics)

    def with_topics_below(self, prefix: str) -> PushedFilters:
        """Return these filters with a topic filter that every topic with this prefix matches.

        They are returned unchanged if `prefix` has no complete level, or there is a filter already.
        """
        level, slash, _ = prefix.rpartition("/")
        if slash and not self.topics and not self.is_empty and _is_topic(level):
            return replace(self, topics=(f"{level}/#",))
        return self


def spans_to_read(
    client: StreamClient,
    log: StreamOffsets,
    pushed: PushedFilters,
    given_up: Iterable[tuple[int, int]] = (),
) -> Ranges:
    """Return the ranges of offsets of `log` that may have rows which pass the filters, ascending.

    Args:
        client: a client of the stream service.
        log: the stream and its present offsets.
        pushed: the filters.
        given_up: lost ranges to leave out; the service refuses to read a range that includes one.

    Raises:
        PenstockError: the stream service cannot be read.
    """
    span = pushed.offsets.cut(log.earliest, log.latest)
    times = pushed.times_us
    if pushed.is_empty or span.low >= span.high or times.low >= times.high:
        return []
    spans = [(span.low, span.high)]
    if pushed.has_times:
        spans = client.received_between(log.stream, log.epoch, spans[0], times.low, times.high)
    return [part for one in spans for part in subtract_ranges(*one, given_up)]


def is_topic_level(value: object) -> bool:
    """Return whether a value is the text of one level of a topic."""
    return _is_topic(value) and "/" not in str(value)


def _is_topic(value: object) -> bool:
    return isinstance(value, str) and is_topic_name(value, TOPIC_LEVELS_MAX)
