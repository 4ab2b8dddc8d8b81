"""The last messages of a topic, found by looking back from the end of the log.

::

      earliest ───────────── 16 times further ─ further back ──── a first portion ── latest
                                                                       ◀── looked at in this order

Each look back is ``GROWTH`` times as wide as the one before, so what was published lately is found
at once, and a search for what is rare ends after ``MESSAGES_MAX`` of all topics, or some time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from penstock.control.diagnosis import LoggedMessage
from penstock.engine.topics import topic_matches
from penstock.stream.client import StreamClient

FIRST_PORTION: Final = 20_000
GROWTH: Final = 16
MESSAGES_MAX: Final = 20_000_000

_COLUMNS: Final = ("offset", "received_at", "client_id", "qos")


@dataclass(frozen=True, slots=True)
class LastMessages:
    """The result of a search.

    Attributes:
        messages: the messages found, the newest first.
        looked_at: messages of all topics that were looked at.
        whole_log: whether that was all that the log has.
    """

    messages: tuple[LoggedMessage, ...]
    looked_at: int
    whole_log: bool


def last_messages(client: StreamClient, topic: str, count: int, within_s: float) -> LastMessages:
    """Return the last messages of ``topic``.

    Args:
        client: the stream service; a stream that has the topic must be among its streams.
        topic: a topic name.
        count: how many at most.
        within_s: look no further back once so much time has passed, in seconds.

    Raises:
        StreamUnavailable, ConfigError, StoreFailed: as the client's calls do.
    """
    stream = _stream_of(client.streams(), topic)
    if stream is None:
        return LastMessages((), 0, False)
    ends_s = time.monotonic() + within_s
    span = client.offsets(stream)
    found: list[LoggedMessage] = []
    end, portion = span.latest, FIRST_PORTION
    while end > span.earliest and len(found) < count and time.monotonic() < ends_s:
        if span.latest - end >= MESSAGES_MAX:
            break
        start = max(span.earliest, end - portion)
        found += _read(client, stream, span.epoch, (start, end), topic)[: count - len(found)]
        end, portion = start, portion * GROWTH
    return LastMessages(tuple(found), span.latest - end, end <= span.earliest)


def _stream_of(streams: dict[str, list[str]], topic: str) -> str | None:
    """Return the stream that has ``topic``, that with the fewest filters first."""
    for name, filters in sorted(streams.items(), key=lambda stream: len(stream[1])):
        if any(topic_matches(topic_filter, topic) for topic_filter in filters):
            return name
    return None


def _read(
    client: StreamClient, stream: str, epoch: str, span: tuple[int, int], topic: str
) -> list[LoggedMessage]:
    """Return the messages of ``topic`` in a range of offsets, the newest first."""
    found: list[LoggedMessage] = []
    start, end = span
    for batch in client.read(stream, epoch, start, end, topic_filters=(topic,), columns=_COLUMNS):
        offsets, received, clients, qos = (column.to_pylist() for column in batch.columns)
        for row, offset in enumerate(offsets):
            received_at_us = round(received[row].timestamp() * 1_000_000)
            found.append(LoggedMessage(offset, received_at_us, clients[row], qos[row]))
    found.reverse()
    return found
