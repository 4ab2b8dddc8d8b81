"""The subscriptions by topic filter: a tree with one node for each level of the subscribed
filters.

::

      "plant/+/temp", "plant/#"          plant ─┬─ + ── temp ● {session: subscription}
                                                ╰─ # ● {session: subscription}

Matching walks the levels of a topic once, with at most three branches at a node (the
level itself, ``+``, ``#``), so subscriptions that do not match cost nothing. The result
for a topic, with the subscriptions of each session merged, is cached until a subscription that
matches it changes (``match_cache``). The tree has groups of shared subscriptions as groups: the
member is selected for each message (``shared_subscriptions``), so that the cache stays valid when
members change.

Overlapping subscriptions of a session give one delivery with the greatest granted QoS
and all matching subscription identifiers [MQTT-3.3.4-2] [MQTT-3.3.4-4].

A topic may match two branches at each level, so that one client's overlapping filters make a walk
of tens of thousands of nodes. The publisher pays for them with its share of the turn.
"""

from __future__ import annotations

from typing import final

from penstock.engine.routing.match_cache import Match, MatchCache, Matches
from penstock.engine.routing.shared_group import SharedGroup
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values.topics import without_share_prefix
from penstock.engine.work_budget import WorkBudget


@final
class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.entries: dict[Session, SessionSubscription] | None = None
        self.groups: dict[SharedGroup, None] | None = None  # in the order in which they were added

    def child(self, level: str) -> _Node | None:
        return None if self.children is None else self.children.get(level)

    def is_unused(self) -> bool:
        return not self.entries and not self.children and not self.groups


@final
class _Found:
    def __init__(self) -> None:
        self.sessions: dict[Session, Match] = {}
        self.groups: list[SharedGroup] = []


@final
class SubscriptionTrie:
    """The subscriptions of all sessions and groups.

    Args:
        work_budget: counts the nodes visited and subscriptions collected by ``match``.
    """

    def __init__(self, work_budget: WorkBudget | None = None) -> None:
        self._work_budget = work_budget or WorkBudget()
        self._root = _Node()
        self._cache = MatchCache()

    def add(self, session: Session, topic_filter: str, entry: SessionSubscription) -> None:
        """Subscribe ``session``, replacing its subscription with the same filter."""
        levels = topic_filter.split("/")
        node = self._node(levels)
        if node.entries is None:
            node.entries = {}
        node.entries[session] = entry
        self._cache.forget(levels)

    def add_group(self, group: SharedGroup) -> None:
        """Add a shared subscription, when its first member subscribes."""
        levels = without_share_prefix(group.topic_filter).split("/")
        node = self._node(levels)
        if node.groups is None:
            node.groups = {}
        node.groups[group] = None
        self._cache.forget(levels)

    def remove(self, session: Session, topic_filter: str) -> None:
        """Unsubscribe ``session``, and remove branches without subscriptions."""
        self._remove(topic_filter, session, None)

    def remove_group(self, group: SharedGroup) -> None:
        """Remove a shared subscription without members, and branches without subscriptions."""
        self._remove(without_share_prefix(group.topic_filter), None, group)

    def _node(self, levels: list[str]) -> _Node:
        node = self._root
        for level in levels:
            if node.children is None:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                child = _Node()
                node.children[level] = child
            node = child
        return node

    def _remove(
        self, topic_filter: str, session: Session | None, group: SharedGroup | None
    ) -> None:
        path: list[tuple[_Node, str]] = []
        node = self._root
        levels = topic_filter.split("/")
        for level in levels:
            child = node.child(level)
            if child is None:
                return
            path.append((node, level))
            node = child
        if session is not None and node.entries is not None:
            node.entries.pop(session, None)
        if group is not None and node.groups is not None:
            node.groups.pop(group, None)
        while path and node.is_unused():
            node, level = path.pop()
            if node.children is not None:
                del node.children[level]
        self._cache.forget(levels)

    def match(self, topic: str) -> Matches:
        """Return the sessions and groups whose filters match ``topic``."""
        cached = self._cache.topics.get(topic)
        if cached is not None:
            return cached
        matches = self.match_once(topic)
        self._cache.put(topic, topic.split("/"), matches)
        return matches

    def match_once(self, topic: str) -> Matches:
        """Return the same as ``match``, without the cache: for many topics with one message each.

        The walk does not recurse, because a topic may have a thousand levels. A wildcard in the
        first level does not match ``$`` [MQTT-4.7.2-1].
        """
        found = _Found()
        levels = topic.split("/")
        depth_max = len(levels)
        hidden = topic.startswith("$")
        ahead: list[tuple[_Node, int]] = [(self._root, 0)]
        work = 0
        while ahead:
            node, depth = ahead.pop()
            work += 1
            children = node.children
            if children is not None and not hidden:
                rest = children.get("#")
                if rest is not None:
                    work += _collect(rest, found)
            if depth == depth_max:
                work += _collect(node, found)
            elif children is not None:
                if not hidden:
                    any_level = children.get("+")
                    if any_level is not None:
                        ahead.append((any_level, depth + 1))
                child = children.get(levels[depth])
                if child is not None:
                    ahead.append((child, depth + 1))
            hidden = False
        self._work_budget.work_done += work
        matches = list(found.sessions.values())
        identifiers = 0
        for match in matches:
            match.complete()
            identifiers += len(match.subscriptions.subscription_ids)
        return Matches(matches, found.groups, identifiers)

    def reaches(self, topic: str) -> bool:
        """Return whether a subscription may match ``topic`` or a topic below it."""
        nodes = [self._root]
        for depth, level in enumerate(topic.split("/")):
            further: list[_Node] = []
            for node in nodes:
                child = node.child(level)
                if child is not None:
                    further.append(child)
                if depth > 0 or not topic.startswith("$"):  # [MQTT-4.7.2-1]
                    if node.child("#") is not None:
                        return True
                    any_level = node.child("+")
                    if any_level is not None:
                        further.append(any_level)
            nodes = further
        return len(nodes) > 0


def _collect(node: _Node, found: _Found) -> int:
    """Add the subscriptions and groups of ``node`` to ``found``; return their number."""
    count = 0
    if node.entries is not None:
        count = len(node.entries)
        for session, entry in node.entries.items():
            match = found.sessions.get(session)
            if match is None:
                match = Match(session)
                found.sessions[session] = match
            match.add(entry)
    if node.groups is not None:
        count += len(node.groups)
        found.groups.extend(node.groups)
    return count
