"""The access list: who may publish and subscribe where. Mosquitto's format, and a little more.

::

    topic readwrite public/#          before any user line: anonymous clients
    user alice                        from here on: the user alice
    topic read  plant/#                   she may subscribe and receive
    topic write plant/line1/+             she may publish
    topic deny  plant/secret/#            neither; a deny goes before every grant
    client gateway-7                  from here on: the client identifier gateway-7
    topic write gateway/7/#
    pattern write devices/%c/#        everyone; %c is the client identifier, %u the user name

What no line grants is refused. Everything a client is granted counts together: by its user
name, its client identifier and the patterns.

A name that a client chose itself must not widen a grant: a pattern grants nothing to a client
whose ``%c`` or ``%u`` is empty, has a ``/``, ``+`` or ``#``, or would make a topic of the
broker's own (``$SYS``) of it. A pattern that denies is taken with whatever name there is.

A subscription is granted when one granted filter covers all of it and no denied one does:
a client is told that ``#`` is not for it, instead of waiting for messages that never come.
What a granted subscription matches and a ``deny`` forbids is not delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from penstock.engine.access import Authorize, Permissions
from penstock.engine.topic_answers import TopicAnswers
from penstock.engine.topics import filter_covers, topic_matches

READ: Final = "read"
WRITE: Final = "write"
READWRITE: Final = "readwrite"
DENY: Final = "deny"
ACCESS_WORDS: Final = (READ, WRITE, READWRITE, DENY)

CACHED_TOPICS_MAX: Final = 1000  # answers kept for each client and direction
CACHED_CHARACTERS_MAX: Final = 32_768  # of their topics: there may be many clients

_NOT_IN_A_NAME: Final = frozenset("/+#")


@final
@dataclass(frozen=True)
class Rule:
    """One line: one of ``ACCESS_WORDS``, and a topic filter (with %c and %u in a pattern)."""

    access: str
    topic_filter: str


@final
@dataclass
class AccessList(Authorize):
    """One access list, as its file was read.

    Args:
        anonymous: rules of clients without a user name.
        users: rules by user name.
        clients: rules by client identifier.
        patterns: rules of everyone.
    """

    anonymous: list[Rule] = field(default_factory=list)
    users: dict[str, list[Rule]] = field(default_factory=dict)
    clients: dict[str, list[Rule]] = field(default_factory=dict)
    patterns: list[Rule] = field(default_factory=list)

    def permissions(self, username: str | None, client_id: str) -> ListedPermissions:
        """What this list grants one client."""
        own = self.anonymous if username is None else self.users.get(username, [])
        rules = [*own, *self.clients.get(client_id, [])]
        names = {"%c": client_id, "%u": username}
        for pattern in self.patterns:
            rules += _applied(pattern, names)
        return ListedPermissions(rules)


@final
class ListedPermissions(Permissions):
    """What some rules allow; answers are remembered, at most ``CACHED_TOPICS_MAX`` of each kind."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._read = _filters(rules, READ, READWRITE)
        self._write = _filters(rules, WRITE, READWRITE)
        self._denied = _filters(rules, DENY)
        self._publishes = TopicAnswers(CACHED_TOPICS_MAX, CACHED_CHARACTERS_MAX)
        self._receives = TopicAnswers(CACHED_TOPICS_MAX, CACHED_CHARACTERS_MAX)

    def may_publish(self, topic: str) -> bool:
        """Whether a grant to write matches ``topic`` and no deny does."""
        return self._answer(self._publishes, self._write, topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether one grant to read covers ``topic_filter`` and no deny does."""
        return any(filter_covers(granted, topic_filter) for granted in self._read) and not any(
            filter_covers(denied, topic_filter) for denied in self._denied
        )

    def may_receive(self, topic: str) -> bool:
        """Whether a grant to read matches ``topic`` and no deny does."""
        return self._answer(self._receives, self._read, topic)

    def forget_answers(self) -> None:
        """Let go of what is remembered: the client is away."""
        self._publishes.clear()
        self._receives.clear()

    def _answer(self, answers: TopicAnswers, granted: Sequence[str], topic: str) -> bool:
        known = answers.known.get(topic)
        if known is None:
            known = 1 if self._allows(granted, topic) else 0
            answers.put(topic, known)
        return known == 1

    def _allows(self, granted: Sequence[str], topic: str) -> bool:
        return any(topic_matches(wanted, topic) for wanted in granted) and not any(
            topic_matches(denied, topic) for denied in self._denied
        )


def _filters(rules: Sequence[Rule], *accesses: str) -> list[str]:
    return [rule.topic_filter for rule in rules if rule.access in accesses]


def _applied(pattern: Rule, names: Mapping[str, str | None]) -> list[Rule]:
    """``pattern`` with the names of one client; nothing where it is not for this client."""
    pieces: list[str] = []
    rest = pattern.topic_filter
    while rest:
        name = names.get(rest[:2], "") if rest[0] == "%" else ""
        if rest[:2] not in names:
            pieces.append(rest[0])
            rest = rest[1:]
            continue
        if name is None or (pattern.access != DENY and not _is_harmless(name)):
            return []
        pieces.append(name)
        rest = rest[2:]
    topic_filter = "".join(pieces)
    becomes_system = topic_filter.startswith("$") and not pattern.topic_filter.startswith("$")
    if becomes_system and pattern.access != DENY:
        return []
    return [Rule(pattern.access, topic_filter)]


def _is_harmless(name: str) -> bool:
    return bool(name) and not _NOT_IN_A_NAME & set(name)


NOTHING: Final = ListedPermissions(())
"""What a client may do who is no user any more."""
