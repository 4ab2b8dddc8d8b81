"""The matches of recent topics, cached until a subscription that matches the topic changes.

Beside the dictionary from topic to matches there is a tree of the same topics by level, so
that the topics that a changed filter matches are found without a search of all topics: the cost of
a subscription does not depend on the number of topics in use.

::

      forget("a/+/c")     a ─┬─ 1 ─┬─ b          stays
                             │     ╰─ c ●        forgotten
                             ╰─ 2 ── c ●         forgotten

Branches stay when their topics are forgotten, because the next message needs them again;
when a limit is reached, the whole cache is cleared. It is also cleared when the search for topics
to forget has cost as much work as to match all of them again: a filter such as ``+/x`` visits
every branch, and one SUBSCRIBE may have thousands of such filters.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.routing.shared_group import SharedGroup
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values.topic_cache import LONG_TOPIC_CHARACTERS, TOPIC_CHARACTERS_MAX

_TOPICS_MAX: Final = 10_000
_MATCHES_MAX: Final = 200_000  # sessions, groups and identifiers of all topics
_BRANCHES_MAX: Final = 100_000
_EVERYTHING: Final = -1  # instead of a depth: below a "#"
_VISITS: Final = 20_000  # branches that ``forget`` may visit before the whole cache is cleared
_VISITS_EARNED: Final = 8  # further visits for each topic that is put into the cache


@final
class MergedSubscriptions:
    """The merged subscriptions of one session: QoS, Retain As Published, subscription identifiers.

    Call ``complete`` after the last ``add``: a client may have thousands of matching subscriptions,
    each with an identifier, so identifiers are first collected in a dictionary, in their order.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.qos = -1
        self.retain_as_published = False
        self.subscription_ids: tuple[int, ...] = ()
        self._collected_ids: dict[int, None] | None = None

    def add(self, entry: SessionSubscription) -> None:
        """Merge one more matching subscription."""
        subscription = entry.subscription
        self.qos = max(self.qos, subscription.qos)
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        if entry.identifier > 0:
            if self._collected_ids is None:
                self._collected_ids = {}
            self._collected_ids[entry.identifier] = None

    def complete(self) -> None:
        """Set ``subscription_ids``: every matching subscription was merged."""
        if self._collected_ids is not None:
            self.subscription_ids = tuple(self._collected_ids)
            self._collected_ids = None


@final
class Match:
    """A session with subscriptions that match a topic.

    ``subscriptions`` merges all of them, for messages of other publishers. ``own_subscriptions``
    merges those without No Local, for messages that the session itself publishes [MQTT-3.8.3-3];
    None if there are none.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.subscriptions = MergedSubscriptions(session)
        self.own_subscriptions: MergedSubscriptions | None = None

    def add(self, entry: SessionSubscription) -> None:
        """Merge one more matching subscription."""
        self.subscriptions.add(entry)
        if not entry.subscription.no_local:
            if self.own_subscriptions is None:
                self.own_subscriptions = MergedSubscriptions(self.session)
            self.own_subscriptions.add(entry)

    def complete(self) -> None:
        """Complete both: every matching subscription was merged."""
        self.subscriptions.complete()
        if self.own_subscriptions is not None:
            self.own_subscriptions.complete()


@final
class Matches:
    """The sessions and groups whose filters match a topic. The object must not be changed."""

    def __init__(
        self, sessions: list[Match], groups: list[SharedGroup], identifiers: int = 0
    ) -> None:
        self.sessions = sessions
        self.groups = groups  # each gets a copy of the message [MQTT 5 §4.8.2]
        self.identifiers = identifiers  # subscription identifiers of all sessions together

    def count(self) -> int:
        """Return the size of the entry: sessions, groups and identifiers."""
        return len(self.sessions) + len(self.groups) + self.identifiers


@final
class _Branch:
    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        self.topic: str | None = None  # the cached topic that ends at this branch


@final
class MatchCache:
    """The matches by topic."""

    def __init__(self) -> None:
        self.topics: dict[str, Matches] = {}
        self._root = _Branch()
        self._branches = 0
        self._matches = 0
        self._characters = 0
        self._visits_left = _VISITS

    def put(self, topic: str, levels: list[str], matches: Matches) -> None:
        """Store the ``matches`` of ``topic``, whose levels are ``levels``."""
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
            child = branch.children.get(level)
            if child is None:
                child = _Branch()
                branch.children[level] = child
                self._branches += 1
            branch = child
        branch.topic = topic
        self.topics[topic] = matches
        self._matches += count
        self._characters += length
        self._visits_left = min(_VISITS, self._visits_left + _VISITS_EARNED)

    def forget(self, levels: list[str]) -> None:
        """Remove the topics that a filter with these levels matches: a subscription changed."""
        if self.topics:
            if levels[0] == "#":
                self.clear()
            else:
                self._forget_below(levels)
                if self._visits_left <= 0:
                    self.clear()

    def clear(self) -> None:
        """Remove all topics."""
        self.topics.clear()
        self._root = _Branch()
        self._branches = 0
        self._matches = 0
        self._characters = 0
        self._visits_left = _VISITS

    def _forget_below(self, levels: list[str]) -> None:
        """Remove the topics that the filter with these levels matches, until no visits are left.

        The walk does not recurse, because a filter may have a thousand levels.
        """
        ahead: list[tuple[_Branch, int]] = [(self._root, 0)]
        while ahead and self._visits_left > 0:
            branch, depth = ahead.pop()
            self._visits_left -= 1
            if depth == len(levels):
                self._forget_topic(branch)
                continue
            level = "#" if depth == _EVERYTHING else levels[depth]
            if level == "#":
                self._forget_topic(branch)
                ahead += [(child, _EVERYTHING) for child in branch.children.values()]
            elif level == "+":
                ahead += [(child, depth + 1) for child in branch.children.values()]
            else:
                exact = branch.children.get(level)
                if exact is not None:
                    ahead.append((exact, depth + 1))

    def _forget_topic(self, branch: _Branch) -> None:
        topic = branch.topic
        if topic is not None:
            branch.topic = None
            self._matches -= self.topics.pop(topic).count()
