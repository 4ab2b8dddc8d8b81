"""Filters that the log applies for its readers: ranges of offsets, times of receipt, topics.

    query ──▶ PushedFilters ──▶ spans: the parts of the log to read
                    ╰─────────▶ topics and times, which the service applies to each row of them

Spark's filters become these in `penstock.spark.pushdown`, DuckDB's in `penstock.sql.predicates`,
and the options of `penstock tail` in `penstock.cli.log_selection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.topics import is_topic_name, topic_matches
from penstock.store.ranges import Ranges, subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.requests import COUNT_MAX, TIME_US_MAX, TOPIC_LEVELS_MAX

TOPICS_MAX: Final = 100
"""Most topics of one filter: with more, each message would be compared with each of them."""


@dataclass(frozen=True, slots=True)
class IntRange:
    """Whole numbers from `low` up to, not including, `high`."""

    low: int
    high: int

    def cut(self, low: int, high: int) -> IntRange:
        """Return the intersection."""
        return IntRange(max(self.low, low), min(self.high, high))


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters of a query that the log applies.

    Attributes:
        offsets: the wanted offsets.
        times_us: the wanted times of receipt, µs since the Unix epoch.
        topics: MQTT topic filters; empty: every message of the stream.
        is_empty: whether no topic can match.
    """

    offsets: IntRange = IntRange(0, COUNT_MAX)
    times_us: IntRange = IntRange(0, TIME_US_MAX)
    topics: tuple[str, ...] = ()
    is_empty: bool = False

    @property
    def since_us(self) -> int | None:
        """The time from which on messages are wanted; None for any."""
        return self.times_us.low or None

    @property
    def until_us(self) -> int | None:
        """The time before which messages are wanted; None for any."""
        return self.times_us.high if self.times_us.high < TIME_US_MAX else None

    @property
    def has_times(self) -> bool:
        """True if the time of receipt matters."""
        return self.since_us is not None or self.until_us is not None

    def with_topics(self, topics: Sequence[object]) -> PushedFilters | None:
        """Return the filters with only these topic names; None if they cannot be pushed down."""
        if len(topics) > TOPICS_MAX:
            return None
        wanted = [topic for topic in dict.fromkeys(topics) if _is_topic(topic)]
        if len(wanted) < len(set(topics)):
            return None
        names = [topic for topic in wanted if isinstance(topic, str)]
        if self.topics:
            names = [
                topic
                for topic in names
                if any(topic_matches(topic_filter, topic) for topic_filter in self.topics)
            ]
        return replace(self, topics=tuple(names), is_empty=self.is_empty or not names)

    def with_topics_below(self, prefix: str) -> PushedFilters:
        """Return the filters with a topic filter that every topic with this prefix matches."""
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
    """Return the parts of `log` that may have rows which pass the filters, in order.

    Args:
        client: reaches the stream service.
        log: the stream and its offsets now.
        pushed: the filters.
        given_up: lost ranges to leave out; a range with one of them is refused otherwise.

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


def _is_topic(value: object) -> bool:
    return isinstance(value, str) and is_topic_name(value, TOPIC_LEVELS_MAX)
