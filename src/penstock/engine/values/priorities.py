"""Priorities of topics in the message queue: an ordered table of topic filters.

The first filter that matches a topic determines its priority, so a topic has one priority and
its messages keep their order. The priorities of recent topics are cached.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.topic_cache import TopicCache
from penstock.engine.values.topics import topic_matches

PRIORITY_SHIFT: Final = 48  # the upper bits of a sequence number are the number of its lane
SLOT_SHIFT: Final = 8  # a lane's number: a slot (``group_members``) in the upper bits, a priority
PRIORITY_MASK: Final = (1 << SLOT_SHIFT) - 1

PRIORITY_MAX: Final = 255
_CACHED_TOPICS_MAX: Final = 10_000


@final
class TopicPriorities:
    """The table of priorities.

    Args:
        table: topic filter to priority, 1..255; the first that matches counts.
    """

    def __init__(self, table: dict[str, int]) -> None:
        self._table = table
        self._cache = TopicCache(_CACHED_TOPICS_MAX)

    def priority_of(self, topic: str) -> int:
        """Return the priority of ``topic``; 0 when no filter matches it."""
        priority = self._cache.numbers.get(topic)
        if priority is None:
            priority = 0
            for topic_filter, given in self._table.items():
                if topic_matches(topic_filter, topic):
                    priority = given
                    break
            self._cache.put(topic, priority)
        return priority
