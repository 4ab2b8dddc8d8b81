"""Finds the last messages of a topic by searching backward from the end of the log.

::

      earliest ── third portion, 256 times as long ── second, 16 times as long ── first ── latest
                                                                        ◀── searched in this order

Each portion is ``GROWTH`` times as long as the one before, so recent messages are found at once.
The search ends after ``MESSAGES_MAX`` messages of all topics, or when its time is over.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from penstock.control.diagnosis import LoggedMessage
from penstock.engine.values.topics import topic_matches
from penstock.stream.client import StreamClient

FIRST_PORTION: Final = 20_000
GROWTH: Final = 16
MESSAGES_MAX: Final = 20_000_000

_COLUMNS: Final = ("offset", "received_at", "client_id", "qos")


@dataclass(frozen=True, slots=True)
class LastMessages:
    """The result of a search.

    Attributes:
        messages: the messages found, newest first.
        searched: number of messages of all topics that were searched.
        is_complete: whether the whole log was searched.
    """

    messages: tuple[LoggedMessage, ...]
    searched: int
    is_complete: bool


def last_messages(client: StreamClient, topic: str, count: int, within_s: float) -> LastMessages:
    """Return the last messages of ``topic``; none if no stream has the topic.

    Args:
        client: a client of the stream service.
        topic: a topic name.
        count: greatest number of messages to return.
        within_s: seconds after which no further portion of the log is searched.

    Raises:
        StreamUnavailable, ConfigError, StoreUnavailable: a call of the client failed.
    """
    stream = _stream_of(client.streams(), topic)
    if stream is None:
        return LastMessages((), 0, False)
    deadline_s = time.monotonic() + within_s
    span = client.offsets(stream)
    found: list[LoggedMessage] = []
    end, portion = span.latest, FIRST_PORTION
    while end > span.earliest and len(found) < count and time.monotonic() < deadline_s:
        if span.latest - end >= MESSAGES_MAX:
            break
        start = max(span.earliest, end - portion)
        found += _read(client, stream, span.epoch, (start, end), topic)[: count - len(found)]
        end, portion = start, portion * GROWTH
    return LastMessages(tuple(found), span.latest - end, end <= span.earliest)


def _stream_of(streams: dict[str, list[str]], topic: str) -> str | None:
    """Return the name of the stream with ``topic`` and the fewest filters; None if there is
    none."""
    for name, filters in sorted(streams.items(), key=lambda stream: len(stream[1])):
        if any(topic_matches(topic_filter, topic) for topic_filter in filters):
            return name
    return None


def _read(
    client: StreamClient, stream: str, epoch: str, span: tuple[int, int], topic: str
) -> list[LoggedMessage]:
    """Return the messages of ``topic`` in a range of offsets, newest first."""
    found: list[LoggedMessage] = []
    start, end = span
    for batch in client.read(stream, epoch, start, end, topic_filters=(topic,), columns=_COLUMNS):
        offsets, received, clients, qos = (column.to_pylist() for column in batch.columns)
        for row, offset in enumerate(offsets):
            received_at_us = round(received[row].timestamp() * 1_000_000)
            found.append(LoggedMessage(offset, received_at_us, clients[row], qos[row]))
    found.reverse()
    return found
