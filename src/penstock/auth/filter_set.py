"""A set of topic filters: whether one of them matches a topic, or covers another filter.

::

      "plant/+/temp", "plant/#"          plant ─┬─ + ── temp ●
                                                ╰─ # ●

The filters are a tree by levels, so that a search takes as many steps as the topic has levels and
matching branches, and not one comparison for each filter: otherwise a SUBSCRIBE of 30,000 filters
is compared with each of 200 lines of an access list. The search does not recurse, because a topic
may have a thousand levels.

The results are those of ``topics.topic_matches`` and ``topics.filter_covers`` for each filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final


@final
class _Level:
    def __init__(self) -> None:
        self.children: dict[str, _Level] = {}
        self.is_end = False  # whether a filter of the set ends at this level


@final
class FilterSet:
    """Topic filters, all well formed.

    Args:
        filters: the filters of the set.
    """

    def __init__(self, filters: Iterable[str]) -> None:
        self.visits = 0  # nodes visited by all searches so far
        self._root = _Level()
        for topic_filter in filters:
            node = self._root
            for level in topic_filter.split("/"):
                child = node.children.get(level)
                if child is None:
                    child = _Level()
                    node.children[level] = child
                node = child
            node.is_end = True

    def matches(self, topic: str) -> bool:
        """Return whether a filter of the set matches a message published to ``topic``."""
        return self._reaches(topic, False)

    def covers(self, topic_filter: str) -> bool:
        """Return whether one filter of the set matches every topic that ``topic_filter``
        matches."""
        if topic_filter == "#":  # every topic has a first level, so "+/#" is the same
            some = self._root.children.get("+")
            if some is not None and "#" in some.children:
                return True
        return self._reaches(topic_filter, True)

    def _reaches(self, text: str, is_filter: bool) -> bool:
        """Return whether a filter of the set matches ``text``, a topic or a filter.

        With ``is_filter``, wildcards in ``text`` are matched by wildcards only.
        """
        hidden = text.startswith("$")  # [MQTT-4.7.2-1]
        nodes = [self._root]
        for level in text.split("/"):
            further: list[_Level] = []
            for node in nodes:
                self.visits += 1
                below = node.children
                if not hidden:
                    if "#" in below:
                        return True
                    any_level = below.get("+")
                    if any_level is not None and not (is_filter and level == "#"):
                        further.append(any_level)
                child = below.get(level)
                if child is not None and not (is_filter and level in ("+", "#")):
                    further.append(child)
            if not further:
                return False
            hidden = False
            nodes = further
        return any(node.is_end or "#" in node.children for node in nodes)
