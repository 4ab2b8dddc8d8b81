"""Client groups: a name for some of the clients, under which metrics count them together.

A group is described by patterns (``name_patterns``). The first that fits a client is its group, and
``OTHER`` where none does. It is decided once, when the client is let in, so that a message costs
nothing. A name that is longer than any device's fits no pattern: whoever is let in or refused chose
it, and the loop waits while it is looked at.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.name_patterns import NamePattern

OTHER: Final = "other"
"""The group of clients that fit no other."""

NAME_CHARACTERS_MAX: Final = 1024
"""Characters of a client identifier or user name; a longer one fits no pattern."""


@final
class ClientGroup:
    """The description of one group; conditions that are empty fit every client.

    Args:
        name: its name.
        client: pattern of client identifiers.
        user: pattern of user names; a client without one fits no pattern.
        listener: the name of a listener.
    """

    def __init__(self, name: str, client: str = "", user: str = "", listener: str = "") -> None:
        self.name = name
        self._client = NamePattern(client) if client else None
        self._user = NamePattern(user) if user else None
        self._listener = listener

    def has(self, listener: str, client_id: str, username: str | None) -> bool:
        """Return whether a client fits."""
        if self._listener and self._listener != listener:
            return False
        if self._client is not None and not _fits(self._client, client_id):
            return False
        user = self._user
        return user is None or (username is not None and _fits(user, username))


@final
class ClientGroups:
    """All groups of a broker, in the order in which they are asked."""

    def __init__(self, groups: tuple[ClientGroup, ...] = ()) -> None:
        self._groups = groups

    def name_for(self, listener: str, client_id: str, username: str | None) -> str:
        """Return the name of the first group that a client fits; ``username`` is None for an
        anonymous one."""
        for group in self._groups:
            if group.has(listener, client_id, username):
                return group.name
        return OTHER


def _fits(pattern: NamePattern, name: str) -> bool:
    return len(name) <= NAME_CHARACTERS_MAX and pattern.matches(name)
