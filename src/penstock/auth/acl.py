"""The access list: publish and subscribe permissions, in Mosquitto's format with additions.

::

    topic readwrite public/#          before any user line: anonymous clients
    user alice                        the lines below: the user alice
    topic read  plant/#                   she may subscribe and receive
    topic write plant/line1/+             she may publish
    topic deny  plant/secret/#            she may do neither; a deny overrides every grant
    client gateway-7                  the lines below: the client identifier gateway-7
    topic write gateway/7/#
    pattern write devices/%c/#        everyone; %c is the client identifier, %u the user name

Access that no line grants is refused. A client has all grants of its user name, of its client
identifier and of the patterns.

A name that a client chooses itself must not extend a grant: a pattern grants nothing to a client
whose ``%c`` or ``%u`` is empty, has a ``/``, ``+`` or ``#``, or would turn the pattern into a
system topic (``$SYS``). A pattern that denies applies to every name.

A subscription is granted if one granted filter covers it and no denied filter does: a client gets
an error for ``#``, instead of waiting for messages that never come. A message that a granted
subscription matches and a ``deny`` forbids is not delivered.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final
from weakref import WeakValueDictionary

from penstock.auth.filter_set import FilterSet
from penstock.engine.values.access import Authorize, Permissions
from penstock.engine.values.topic_cache import TopicCache
from penstock.engine.values.topics import topic_matches

READ: Final = "read"
WRITE: Final = "write"
READWRITE: Final = "readwrite"
DENY: Final = "deny"
ACCESS_WORDS: Final = (READ, WRITE, READWRITE, DENY)

CACHED_TOPICS_MAX: Final = 1000  # cached answers for each client and direction
CACHED_CHARACTERS_MAX: Final = 32_768  # in their topics: there may be many clients

_NAMES: Final = re.compile("(%[cu])")
_NOT_IN_A_NAME: Final = frozenset("/+#")


@final
@dataclass(frozen=True)
class Rule:
    """One line of the access list.

    Attributes:
        access: one of ``ACCESS_WORDS``.
        topic_filter: a topic filter, with %c and %u in a pattern.
        location: the file and line.
    """

    access: str
    topic_filter: str
    location: str = field(default="", compare=False)


@final
@dataclass
class AccessList(Authorize):
    """One access list, as its file was read.

    Args:
        anonymous: the rules of clients without a user name.
        users: rules by user name.
        clients: rules by client identifier.
        patterns: the rules of all clients.
    """

    anonymous: list[Rule] = field(default_factory=list)
    users: dict[str, list[Rule]] = field(default_factory=dict)
    clients: dict[str, list[Rule]] = field(default_factory=dict)
    patterns: list[Rule] = field(default_factory=list)

    _compiled_rules: dict[str, CompiledRules] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # by kind and name

    def permissions(self, username: str | None, client_id: str) -> ListedPermissions:
        """Return the permissions of one client by this list, whose rules must not change from now
        on."""
        shared: list[CompiledRules] = []
        own = self.anonymous if username is None else self.users.get(username)
        if own:
            shared.append(self._compile("anonymous" if username is None else f"u{username}", own))
        rules = self.clients.get(client_id)
        if rules:
            shared.append(self._compile(f"c{client_id}", rules))
        return ListedPermissions(self.patterns, shared, username, client_id)

    def _compile(self, key: str, rules: Sequence[Rule]) -> CompiledRules:
        """Return ``rules`` compiled, once for all clients that have the same."""
        compiled = self._compiled_rules.get(key)
        if compiled is None:
            compiled = self._compiled_rules[key] = CompiledRules(rules)
        return compiled


@final
class CompiledRules:
    """Rules compiled to sets of topic filters."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.read = FilterSet(_filters(rules, READ, READWRITE))
        self.write = FilterSet(_filters(rules, WRITE, READWRITE))
        self.denied = FilterSet(_filters(rules, DENY))


@final
class LoginRules:
    """The rules that came with a login: those without names of the client compiled, and shared by
    all logins that have the same."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        patterns: list[Rule] = []
        plain: list[Rule] = []
        for rule in rules:
            (patterns if _NAMES.search(rule.topic_filter) else plain).append(rule)
        self._patterns = tuple(patterns)
        self._compiled = _share(tuple(plain))

    def permissions(self, username: str | None, client_id: str) -> ListedPermissions:
        """Return the permissions of one client by these rules."""
        return ListedPermissions(self._patterns, (self._compiled,), username, client_id)


def _share(rules: tuple[Rule, ...]) -> CompiledRules:
    """Return ``rules`` compiled, once for all that are in use; called in any thread."""
    with _sharing:
        compiled = _shared_rules.get(rules)
        if compiled is None:
            compiled = _shared_rules[rules] = CompiledRules(rules)
        return compiled


_sharing: Final = threading.Lock()
_shared_rules: Final[WeakValueDictionary[tuple[Rule, ...], CompiledRules]] = WeakValueDictionary()


@final
class ListedPermissions(Permissions):
    """The permissions of one client by the rules of an access list.

    Answers are cached, at most ``CACHED_TOPICS_MAX`` of each kind.

    Args:
        patterns: rules with names of the client in them; they are compiled at their first use, and
            again after ``clear_cache``, because disconnected clients may be many.
        shared: the compiled rules that other clients have, too.
        username: the user name, for %u.
        client_id: the client identifier, for %c.
    """

    def __init__(
        self,
        patterns: Sequence[Rule],
        shared: Sequence[CompiledRules] = (),
        username: str | None = None,
        client_id: str = "",
    ) -> None:
        self._patterns = patterns
        self._shared = shared
        self._names = {"%c": client_id, "%u": username}
        self._all: Sequence[CompiledRules] | None = None
        self._publishes = TopicCache(CACHED_TOPICS_MAX, CACHED_CHARACTERS_MAX)
        self._receives = TopicCache(CACHED_TOPICS_MAX, CACHED_CHARACTERS_MAX)

    def may_publish(self, topic: str) -> bool:
        """Return whether a grant to write matches ``topic`` and no deny does."""
        known = self._publishes.numbers.get(topic)
        if known is None:
            granted = any(rules.write.matches(topic) for rules in self._all_rules())
            known = self._answer(self._publishes, granted, topic)
        return known == 1

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether one grant to read covers ``topic_filter`` and no deny does."""
        compiled = self._all_rules()
        return any(rules.read.covers(topic_filter) for rules in compiled) and not any(
            rules.denied.covers(topic_filter) for rules in compiled
        )

    def may_receive(self, topic: str) -> bool:
        """Return whether a grant to read matches ``topic`` and no deny does."""
        known = self._receives.numbers.get(topic)
        if known is None:
            granted = any(rules.read.matches(topic) for rules in self._all_rules())
            known = self._answer(self._receives, granted, topic)
        return known == 1

    def explain(self, topic: str, is_published: bool) -> str:
        """Return a clause with the rule that decides: the first that denies ``topic``, else one
        that grants it.

        Args:
            topic: the topic.
            is_published: True for publishing to it, False for receiving from it.
        """
        granting = (WRITE, READWRITE) if is_published else (READ, READWRITE)
        applied = [rule for compiled in self._all_rules() for rule in compiled.rules]
        for accesses, verb in ((DENY,), "is denied by"), (granting, "is granted by"):
            for rule in applied:
                if rule.access in accesses and topic_matches(rule.topic_filter, topic):
                    location = f" ({rule.location})" if rule.location else ""
                    return f"{verb} '{rule.access} {rule.topic_filter}'{location}"
        return "no line of the access list grants it"

    def clear_cache(self) -> None:
        """Drop the cached answers and compiled rules: the client is disconnected."""
        self._publishes.clear()
        self._receives.clear()
        self._all = None

    def _all_rules(self) -> Sequence[CompiledRules]:
        if self._all is None:
            self._all = self._shared
            applied = [
                rule for pattern in self._patterns for rule in _expand_pattern(pattern, self._names)
            ]
            if applied:
                self._all = [*self._shared, CompiledRules(applied)]
        return self._all

    def _answer(self, answers: TopicCache, granted: bool, topic: str) -> int:
        """Return 1 if access is ``granted`` and no deny matches ``topic``, else 0; cache the
        answer."""
        denied = granted and any(rules.denied.matches(topic) for rules in self._all_rules())
        answer = 1 if granted and not denied else 0
        answers.put(topic, answer)
        return answer


def _filters(rules: Sequence[Rule], *accesses: str) -> list[str]:
    return [rule.topic_filter for rule in rules if rule.access in accesses]


def _expand_pattern(pattern: Rule, names: Mapping[str, str | None]) -> list[Rule]:
    """Return the rule that ``pattern`` gives to the client with these names; an empty list if it
    gives none.

    Args:
        pattern: a rule whose topic filter may contain %c and %u.
        names: the client identifier by "%c", and the user name by "%u".
    """
    pieces: list[str] = []
    for piece in _NAMES.split(pattern.topic_filter):
        if piece not in names:
            pieces.append(piece)
            continue
        name = names[piece]
        if name is None or (pattern.access != DENY and not _is_harmless(name)):
            return []
        pieces.append(name)
    topic_filter = "".join(pieces)
    becomes_system = topic_filter.startswith("$") and not pattern.topic_filter.startswith("$")
    if becomes_system and pattern.access != DENY:
        return []
    return [Rule(pattern.access, topic_filter, pattern.location)]


def _is_harmless(name: str) -> bool:
    return bool(name) and not _NOT_IN_A_NAME & set(name)


NOTHING: Final = ListedPermissions(())
"""No permissions, for a client whose user was removed."""
