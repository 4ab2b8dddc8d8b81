"""Users that are known outside of the password file: their authentication, and their permissions.

::

      CONNECT ─▶ Method.concerns ─▶ Method.check, in a thread ─▶ Answer ─▶ AuthorizeByService
                                                                                  ▼ rules
      a will is due, files are read again: permissions are asked for ─▶ ExternalAclCache

A *method* (``http_requests``, ``json_web_tokens``) answers for the clients that concern it. Rules
that come with an answer are the client's access list, instead of the file's. They are stored
for later questions, of at most ``CLIENTS_MAX`` clients; a client whose rules are dropped may do
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from penstock.auth.acl import NOTHING, AccessList, Rule
from penstock.engine.access.access import Authorize, Credentials, Permissions
from penstock.protocol import reasons

CLIENTS_MAX: Final = 200_000


@final
@dataclass(frozen=True)
class Answer:
    """The outcome of one check of a client.

    Args:
        reason_code: an MQTT 5 reason code; ``SUCCESS`` lets the client in.
        username: the user name.
        rules: the client's access list; None leaves that to the access list of the broker.
        lasts_s: how long it may stay connected, seconds; 0 = as long as it likes.
        detail: for the operator, beside the name of the code; text that others chose stands in
            parentheses. The client does not see it.
    """

    reason_code: int
    username: str | None = None
    rules: tuple[Rule, ...] | None = None
    lasts_s: float = 0.0
    detail: str = ""


class Method(Protocol):
    """A way to authenticate a client, beside the password file."""

    def concerns(self, credentials: Credentials) -> bool:
        """Return whether this method answers for these credentials; called on the event loop."""
        ...

    def check(self, credentials: Credentials) -> Answer:
        """Authenticate a client; called in a thread, in bounded time. A failure of any kind is no
        success."""
        ...


@final
class FirstOf:
    """Several methods as one: the first whose ``concerns`` is true checks the client.

    Args:
        methods: the methods, in the order in which they are asked.
    """

    def __init__(self, methods: Sequence[Method]) -> None:
        self._methods = methods

    def concerns(self, credentials: Credentials) -> bool:
        """Return whether one of the methods answers for these credentials."""
        return any(method.concerns(credentials) for method in self._methods)

    def check(self, credentials: Credentials) -> Answer:
        """Ask the first method that answers for these credentials."""
        for method in self._methods:
            if method.concerns(credentials):
                return method.check(credentials)
        return Answer(reasons.NOT_AUTHORIZED)


@final
class ExternalAclCache:
    """The access rules that methods answered with, by user name and client identifier.

    At most ``CLIENTS_MAX`` clients have some; the oldest are dropped, and their clients may then do
    nothing.
    """

    def __init__(self) -> None:
        self._rules: dict[tuple[str | None, str], tuple[Rule, ...] | None] = {}

    def knows(self, username: str | None, client_id: str) -> bool:
        """Return whether an answer let this client in."""
        return (username, client_id) in self._rules

    def permissions(
        self, username: str | None, client_id: str, access_list: AccessList | None
    ) -> Permissions | None:
        """Return the permissions that the latest answer gives; None = everything."""
        rules = self._rules.get((username, client_id), ())
        if rules is None:
            return None if access_list is None else access_list.permissions(username, client_id)
        if not rules:
            return NOTHING
        return AccessList(patterns=list(rules)).permissions(username, client_id)

    def put(self, username: str | None, client_id: str, rules: tuple[Rule, ...] | None) -> None:
        """Remember the rules of a client that is let in."""
        key = (username, client_id)
        self._rules.pop(key, None)
        if len(self._rules) >= CLIENTS_MAX:
            del self._rules[next(iter(self._rules))]
        self._rules[key] = rules
        assert len(self._rules) <= CLIENTS_MAX, "the oldest rules make room"


@final
class AuthorizeByService(Authorize):
    """The permissions of one client by the rules that a method answered with.

    Args:
        external_acl_cache: stores the rules, once the client's identifier is known.
        rules: the rules of the answer.
        access_list: the broker's.
    """

    def __init__(
        self,
        external_acl_cache: ExternalAclCache,
        rules: tuple[Rule, ...] | None,
        access_list: AccessList | None,
    ) -> None:
        self._cache = external_acl_cache
        self._rules = rules
        self._access_list = access_list

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the client's permissions, and remember them for later questions."""
        self._cache.put(username, client_id, self._rules)
        return self._cache.permissions(username, client_id, self._access_list)
