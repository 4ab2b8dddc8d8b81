"""Client groups: named sets of clients, which metrics count together.

A group is described by patterns (``name_patterns``). A client belongs to the first group that it
matches, or to ``OTHER``. Its group is determined once, when its CONNECT is accepted, so that a
message costs nothing. A name of more than ``NAME_CHARACTERS_MAX`` characters matches no pattern:
any client, even one that is refused, may choose such a name, and the event loop waits while a name
is matched.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.name_patterns import NamePattern

OTHER: Final = "other"
"""The group of clients that match no configured group."""

NAME_CHARACTERS_MAX: Final = 1024
"""Characters of a client identifier or user name; a longer one matches no pattern."""


@final
class ClientGroup:
    """The description of one group; an empty condition matches every client.

    Args:
        name: the name of the group.
        client: pattern of client identifiers.
        user: pattern of user names; a client without a user name matches no pattern.
        listener: the name of a listener.
    """

    def __init__(self, name: str, client: str = "", user: str = "", listener: str = "") -> None:
        self.name = name
        self._client = NamePattern(client) if client else None
        self._user = NamePattern(user) if user else None
        self._listener = listener

    def matches(self, listener: str, client_id: str, username: str | None) -> bool:
        """Return whether a client with these names on this listener belongs to the group."""
        if self._listener and self._listener != listener:
            return False
        if self._client is not None and not _fits(self._client, client_id):
            return False
        user = self._user
        return user is None or (username is not None and _fits(user, username))


@final
class ClientGroups:
    """All groups of a broker, in the order in which they are tried."""

    def __init__(self, groups: tuple[ClientGroup, ...] = ()) -> None:
        self._groups = groups

    def name_for(self, listener: str, client_id: str, username: str | None) -> str:
        """Return the name of the first group that a client matches, else ``OTHER``.

        ``username`` is None for an anonymous client.
        """
        for group in self._groups:
            if group.matches(listener, client_id, username):
                return group.name
        return OTHER


def _fits(pattern: NamePattern, name: str) -> bool:
    return len(name) <= NAME_CHARACTERS_MAX and pattern.matches(name)
