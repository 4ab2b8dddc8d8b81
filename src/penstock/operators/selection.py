"""The selection of sessions by an operator: by client identifier, user, address and time.

A selection is applied to one session at a time, while its caller walks over all sessions. Patterns
are those of a shell (``name_patterns``). A condition that is not given matches every session.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.api import ServerConnection, Session
from penstock.engine.values.addresses import IPNetwork, host_of, ip_of, network_of
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.name_patterns import NamePattern

ANONYMOUS: Final = ""  # as the pattern of a user: sessions without a user name


@final
class SessionSelection:
    """The conditions for a session, all of which a selected session meets.

    Args:
        client: pattern of the client identifier; None = any.
        user: pattern of the user name, ``ANONYMOUS`` for sessions without one; None = any.
        address: pattern of the peer address, with or without the port, or a network such as
            10.0.0.0/8; None = any, also without a connection.
        connected: True for sessions with a connection, False for those without; None = both.
        older_than_s: seconds for which the session has been connected, or offline, at least; 0 =
            any.
        client_id: the client identifier itself, not a pattern; None = any.

    Raises:
        ValueError: ``address`` has a slash and is not a network, or a pattern is too long.
    """

    def __init__(
        self,
        client: str | None = None,
        user: str | None = None,
        address: str | None = None,
        connected: bool | None = None,
        older_than_s: float = 0.0,
        client_id: str | None = None,
    ) -> None:
        self.connected = connected
        self._client_id = client_id
        self._client = _pattern(client)
        self._user = _pattern(user)
        self._is_anonymous = user == ANONYMOUS
        self._network: IPNetwork | None = None
        self._address: NamePattern | None = None
        if address is not None and "/" in address and not address.startswith("process "):
            self._network = network_of(address)
        else:
            self._address = _pattern(address)
        self._older_than_us = int(older_than_s * MICROSECONDS)

    def has(self, session: Session, connection: ServerConnection | None, now: Now) -> bool:
        """Return whether ``session`` meets all conditions.

        ``connection`` is its connection, None while it is disconnected.
        """
        is_connected = session.link is not None
        if self.connected is not None and self.connected != is_connected:
            return False
        if self._client_id is not None and self._client_id != session.client_id:
            return False
        if self._client is not None and not self._client.matches(session.client_id):
            return False
        if self._is_anonymous:
            if session.username is not None:
                return False
        elif self._user is not None and (
            session.username is None or not self._user.matches(session.username)
        ):
            return False
        if self._older_than_us > 0 and now.steady_us - since_us(session, connection) <= (
            self._older_than_us
        ):
            return False
        if self._address is None and self._network is None:
            return True
        return connection is not None and self._matches_address(connection.address)

    def _matches_address(self, address: str) -> bool:
        if self._network is not None:
            there = ip_of(address)  # a Unix socket has none
            return there is not None and there in self._network
        pattern = self._address
        assert pattern is not None
        return pattern.matches(address) or pattern.matches(host_of(address))


def since_us(session: Session, connection: ServerConnection | None) -> int:
    """Return when the session last connected or disconnected, microseconds of the steady clock."""
    if connection is not None:
        return connection.connected_at_us
    return session.disconnected_at_us


def _pattern(pattern: str | None) -> NamePattern | None:
    if pattern is None or pattern == "*":
        return None
    return NamePattern(pattern)
