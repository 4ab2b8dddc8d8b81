"""The parameters of a run: publishers, subscribers, topics, rates and its length.

::

      publisher i ── topic i ──▶ subscribers j with j ≡ i, modulo the smaller of both numbers

      1 → 1      0 ─▶ 0            10 → 10    i ─▶ i
      1 → 50     0 ─▶ all 50       10 → 1     all ten ─▶ 0
      4 → 10     0 ─▶ 0, 4, 8      1 ─▶ 1, 5, 9      2 ─▶ 2, 6      3 ─▶ 3, 7

Without ``%i`` in the topic, all publishers have one topic, and every subscriber gets every message.

With a rate, message n of all is due n / rate seconds after the start, and the publisher with the
number n modulo ``publishers`` sends it. Its latency counts from when it was due, however late it is
sent: a broker that stalls delays the messages due meanwhile, and a latency counted from the sending
would hide that ("coordinated omission": Gil Tene, How NOT to Measure Latency, Strange Loop 2015,
https://www.youtube.com/watch?v=lJ8ydIuPFeU).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.bench.stamp import SIZE_BYTES
from penstock.errors import ConfigError

NUMBER_PLACEHOLDER: Final = "%i"
"""Placeholder for the publisher's number in a topic."""

_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of one run.

    Attributes:
        publishers: the number of publishers, 1 or more.
        subscribers: the number of subscribers.
        payload_bytes: size of each payload, ``SIZE_BYTES`` or more.
        qos: QoS of messages and subscriptions, 0 to 2.
        window: most messages of a publisher that the broker has not acknowledged; 1 or more.
        rate_per_s: messages of all publishers a second; 0: as fast as windows allow.
        duration_s: how long messages are sent, the warm-up not counted; None: until ``messages``
            were sent.
        messages: number of messages of all publishers; None: as many as there is time for.
        topic: the topic; ``%i`` in it stands for the publisher's number.
        warm_up_s: messages due in these first seconds count in no latency and no rate.
        end_to_end: most messages of a publisher that some subscriber has not received; 0: any.
    """

    publishers: int = 1
    subscribers: int = 1
    payload_bytes: int = 64
    qos: int = 0
    window: int = 100
    rate_per_s: float = 0.0
    duration_s: float | None = None
    messages: int | None = None
    topic: str = "bench/%i"
    warm_up_s: float = 0.0
    end_to_end: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range, and combinations that contradict each other.

        Raises:
            ConfigError: the message names the option and what it must be.
        """
        if self.payload_bytes < SIZE_BYTES:
            raise ConfigError(
                f"-s is {self.payload_bytes}, and must be {SIZE_BYTES} or more: each message says"
                " who sent it, and when"
            )
        for option, number in (
            ("-r", self.rate_per_s),
            ("-d", self.duration_s or 0.0),
            ("--warm-up", self.warm_up_s),
        ):
            if not math.isfinite(number):
                raise ConfigError(f"{option} is {number}, but must be a finite number")
        if (self.duration_s is None) == (self.messages is None):
            raise ConfigError("give either -d SECONDS or -n MESSAGES")
        if "+" in self.topic or "#" in self.topic or not self.topic:
            raise ConfigError(
                f"-t is {self.topic!r}, but must be a topic, such as bench/{NUMBER_PLACEHOLDER}"
            )

    def topic_of(self, publisher: int) -> str:
        """Return the topic to which a publisher publishes."""
        return self.topic.replace(NUMBER_PLACEHOLDER, str(publisher))

    def publishers_of(self, subscriber: int) -> range:
        """Return the numbers of the publishers whose messages a subscriber gets."""
        if NUMBER_PLACEHOLDER not in self.topic:
            return range(self.publishers)
        lanes = min(self.publishers, self.subscribers)
        return range(subscriber % lanes, self.publishers, lanes)

    def filters_of(self, subscriber: int) -> list[str]:
        """Return the topic filters of a subscriber."""
        return list(dict.fromkeys(map(self.topic_of, self.publishers_of(subscriber))))

    def fan_out(self, publisher: int) -> int:
        """Return the number of subscribers that get the messages of a publisher."""
        if NUMBER_PLACEHOLDER not in self.topic:
            return self.subscribers
        lanes = min(self.publishers, self.subscribers)
        return len(range(publisher % lanes, self.subscribers, lanes)) if lanes else 0

    @property
    def sending_s(self) -> float | None:
        """The time during which messages are sent, in seconds, the warm-up included; None: until
        all are sent."""
        return None if self.duration_s is None else self.warm_up_s + self.duration_s

    @property
    def interval_ns(self) -> float:
        """The time between two messages of all publishers, in nanoseconds; 0.0 without a rate."""
        return _NS_PER_S / self.rate_per_s if self.rate_per_s else 0.0

    def due(self, elapsed_ns: int) -> int | None:
        """Return how many messages of all publishers are due ``elapsed_ns`` after the start; None:
        any number."""
        if not self.rate_per_s:
            return self.messages
        if self.sending_s is not None:
            elapsed_ns = min(elapsed_ns, int(self.sending_s * _NS_PER_S) - 1)
        count = int(elapsed_ns / self.interval_ns) + 1
        return count if self.messages is None else min(count, self.messages)

    def share(self, publisher: int, count: int) -> int:
        """Return how many of the first ``count`` messages of the run this publisher sends."""
        return len(range(publisher, count, self.publishers))
