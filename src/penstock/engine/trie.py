"""Topic filter → sessions: a tree with one node for each level of the subscribed filters.

::

      "plant/+/temp", "plant/#"          plant ─┬─ + ── temp ● {session: grant}
                                                ╰─ # ● {session: grant}

Matching walks the levels of a topic once, with at most three ways on from a node (the
level itself, ``+``, ``#``), so subscriptions that do not match cost nothing. The result
for a topic, merged to one grant for each session, is cached until any subscription
changes. Groups of shared subscriptions hang in the tree as groups: which member gets a
message is chosen for each (``sharing``), so members come and go without a new match.

Overlapping subscriptions of a session give one delivery with the greatest granted QoS
and all matching subscription identifiers [MQTT-3.3.4-2] [MQTT-3.3.4-4].
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.session import Session, SessionSubscription
from penstock.engine.sharing import ShareGroup
from penstock.engine.topics import unshared

_CACHED_TOPICS_MAX: Final = 10_000
_CACHED_MATCHES_MAX: Final = 200_000


@final
class Grant:
    """What a session gets of a topic: QoS, retain as published, subscription identifiers."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.qos = -1
        self.retain_as_published = False
        self.subscription_ids: tuple[int, ...] = ()

    def add(self, entry: SessionSubscription) -> None:
        """Merge one more matching subscription."""
        subscription = entry.subscription
        self.qos = max(self.qos, subscription.qos)
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        if entry.identifier > 0 and entry.identifier not in self.subscription_ids:
            self.subscription_ids = (*self.subscription_ids, entry.identifier)


@final
class Match:
    """A session that a topic reaches.

    ``grant`` is for messages of others; ``own`` for those the session itself published:
    subscriptions with No Local left out [MQTT-3.8.3-3], None when nothing is left.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.grant = Grant(session)
        self.own: Grant | None = None

    def add(self, entry: SessionSubscription) -> None:
        """Merge one more matching subscription."""
        self.grant.add(entry)
        if not entry.subscription.no_local:
            if self.own is None:
                self.own = Grant(self.session)
            self.own.add(entry)


@final
class Matches:
    """Everything a topic reaches; must not be changed."""

    def __init__(self, sessions: list[Match], groups: list[ShareGroup]) -> None:
        self.sessions = sessions
        self.groups = groups  # each gets the message once more [MQTT 5 §4.8.2]


@final
class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.entries: dict[Session, SessionSubscription] = {}
        self.groups: list[ShareGroup] | None = None

    def unused(self) -> bool:
        return not self.entries and not self.children and not self.groups


@final
class _Found:
    def __init__(self) -> None:
        self.sessions: dict[Session, Match] = {}
        self.groups: list[ShareGroup] = []


@final
class SubscriptionTrie:
    """All subscriptions of all sessions."""

    def __init__(self) -> None:
        self._root = _Node()
        self._cache: dict[str, Matches] = {}
        self._cached_matches = 0  # in all of it

    def add(self, session: Session, topic_filter: str, entry: SessionSubscription) -> None:
        """Subscribe ``session``, replacing its subscription with the same filter."""
        self._node(topic_filter).entries[session] = entry
        self._forget()

    def add_group(self, group: ShareGroup) -> None:
        """A shared subscription with its first member."""
        node = self._node(unshared(group.topic_filter))
        if node.groups is None:
            node.groups = []
        node.groups.append(group)
        self._forget()

    def remove(self, session: Session, topic_filter: str) -> None:
        """Unsubscribe ``session``; branches that nobody uses go with it."""
        self._remove(topic_filter, session, None)

    def remove_group(self, group: ShareGroup) -> None:
        """A shared subscription without members; branches that nobody uses go with it."""
        self._remove(unshared(group.topic_filter), None, group)

    def _node(self, topic_filter: str) -> _Node:
        node = self._root
        for level in topic_filter.split("/"):
            child = node.children.get(level)
            if child is None:
                child = _Node()
                node.children[level] = child
            node = child
        return node

    def _forget(self) -> None:
        self._cache.clear()
        self._cached_matches = 0

    def _remove(self, topic_filter: str, session: Session | None, group: ShareGroup | None) -> None:
        path: list[tuple[_Node, str]] = []
        node = self._root
        for level in topic_filter.split("/"):
            child = node.children.get(level)
            if child is None:
                return
            path.append((node, level))
            node = child
        if session is not None:
            node.entries.pop(session, None)
        if group is not None and node.groups is not None and group in node.groups:
            node.groups.remove(group)
        while path and node.unused():
            node, level = path.pop()
            del node.children[level]
        self._forget()

    def match(self, topic: str) -> Matches:
        """The sessions and groups a message with this topic is for."""
        cached = self._cache.get(topic)
        if cached is not None:
            return cached
        found = _Found()
        levels = topic.split("/")
        self._walk(self._root, levels, 0, topic.startswith("$"), found)
        matches = Matches(list(found.sessions.values()), found.groups)
        count = len(matches.sessions) + len(matches.groups)
        self._cached_matches += count
        if len(self._cache) >= _CACHED_TOPICS_MAX or self._cached_matches > _CACHED_MATCHES_MAX:
            self._cache.clear()
            self._cached_matches = count
        self._cache[topic] = matches
        return matches

    def _walk(
        self,
        node: _Node,
        levels: list[str],
        depth: int,
        hidden: bool,
        found: _Found,
    ) -> None:
        """Collect from ``node`` down; ``hidden`` keeps wildcards off ``$`` [MQTT-4.7.2-1]."""
        if not hidden:
            rest = node.children.get("#")
            if rest is not None:
                _collect(rest, found)
        if depth == len(levels):
            _collect(node, found)
            return
        child = node.children.get(levels[depth])
        if child is not None:
            self._walk(child, levels, depth + 1, False, found)
        if not hidden:
            any_level = node.children.get("+")
            if any_level is not None:
                self._walk(any_level, levels, depth + 1, False, found)


def _collect(node: _Node, found: _Found) -> None:
    for session, entry in node.entries.items():
        match = found.sessions.get(session)
        if match is None:
            match = Match(session)
            found.sessions[session] = match
        match.add(entry)
    if node.groups is not None:
        found.groups.extend(node.groups)
