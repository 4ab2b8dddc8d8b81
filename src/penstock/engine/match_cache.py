"""What topics matched lately, kept until a subscription that concerns them changes.

Beside the dictionary from topic to matches stands a tree of the same topics by level, so
that a changed filter finds the topics it matches without looking at the others: a client
that subscribes costs the others nothing, however many topics are in use.

::

      forget("a/+/c")     a ─┬─ 1 ─┬─ b          stays
                             │     ╰─ c ●        forgotten
                             ╰─ 2 ── c ●         forgotten

Branches stay when their topics are forgotten, because the next message brings them back;
when there are too many of anything, all is forgotten and begins anew. So it is when looking
for what to forget has become as much work as matching it all again: a filter such as ``+/x``
passes every branch, and one SUBSCRIBE may hold thousands of them.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.session import Session, SessionSubscription
from penstock.engine.share_group import ShareGroup
from penstock.engine.topic_answers import LONG_TOPIC_CHARACTERS, TOPIC_CHARACTERS_MAX

_TOPICS_MAX: Final = 10_000
_MATCHES_MAX: Final = 200_000  # in all of it
_BRANCHES_MAX: Final = 100_000
_VISITS: Final = 20_000  # of branches, to forget, before all is forgotten ...
_VISITS_EARNED: Final = 8  # ... and so many more for each topic that was put


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

    def count(self) -> int:
        """How many they are."""
        return len(self.sessions) + len(self.groups)


@final
class _Branch:
    def __init__(self) -> None:
        self.below: dict[str, _Branch] = {}
        self.topic: str | None = None  # a topic that ends here and is in the cache


@final
class MatchCache:
    """Matches by topic."""

    def __init__(self) -> None:
        self.topics: dict[str, Matches] = {}
        self._root = _Branch()
        self._branches = 0
        self._matches = 0
        self._characters = 0
        self._visits_left = _VISITS

    def put(self, topic: str, levels: list[str], matches: Matches) -> None:
        """Keep what ``topic``, of these levels, matched."""
        count = matches.count()
        length = len(topic)
        if length >= LONG_TOPIC_CHARACTERS:
            return
        full = len(self.topics) >= _TOPICS_MAX or self._branches >= _BRANCHES_MAX
        full = full or self._characters + length > TOPIC_CHARACTERS_MAX
        if full or self._matches + count > _MATCHES_MAX:
            self.clear()
        branch = self._root
        for level in levels:
            child = branch.below.get(level)
            if child is None:
                child = _Branch()
                branch.below[level] = child
                self._branches += 1
            branch = child
        branch.topic = topic
        self.topics[topic] = matches
        self._matches += count
        self._characters += length
        self._visits_left = min(_VISITS, self._visits_left + _VISITS_EARNED)

    def forget(self, levels: list[str]) -> None:
        """A subscription to the filter of these levels changed."""
        if self.topics:
            if levels[0] == "#":
                self.clear()
            else:
                self._forget_below(self._root, levels, 0)
                if self._visits_left <= 0:
                    self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.topics.clear()
        self._root = _Branch()
        self._branches = 0
        self._matches = 0
        self._characters = 0
        self._visits_left = _VISITS

    def _forget_below(self, branch: _Branch, levels: list[str], depth: int) -> None:
        self._visits_left -= 1
        if self._visits_left <= 0:
            return
        if depth == len(levels):
            self._forget_topic(branch)
            return
        level = levels[depth]
        if level == "#":
            self._forget_all(branch)
        elif level == "+":
            for child in branch.below.values():
                self._forget_below(child, levels, depth + 1)
        else:
            exact = branch.below.get(level)
            if exact is not None:
                self._forget_below(exact, levels, depth + 1)

    def _forget_all(self, branch: _Branch) -> None:
        self._visits_left -= 1
        if self._visits_left <= 0:
            return
        self._forget_topic(branch)
        for child in branch.below.values():
            self._forget_all(child)

    def _forget_topic(self, branch: _Branch) -> None:
        topic = branch.topic
        if topic is not None:
            branch.topic = None
            self._matches -= self.topics.pop(topic).count()
