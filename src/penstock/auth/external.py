"""Authentication and permissions of users that are not in the password file.

::

      CONNECT ─▶ Method.concerns ─▶ Method.check, in a thread ─▶ Answer ─▶ AuthorizeByService
                                                                                  ▼ rules
      a will is due, or files are read again: permissions are needed ─▶ ExternalAclCache

A *method* (``http_requests``, ``json_web_tokens``) authenticates the clients that concern it. Rules
in its answer are the client's access list, instead of the file's. They are stored for later, of at
most ``CLIENTS_MAX`` clients; a client whose rules were dropped has no permissions.
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
        reason_code: an MQTT 5 reason code; ``SUCCESS`` accepts the client.
        username: the user name.
        rules: the client's access list; None: the broker's access list applies.
        lasts_s: seconds for which the client may stay connected; 0 = no limit.
        detail: a detail for the operator's log, which the client does not get; text that others
            chose is in parentheses.
    """

    reason_code: int
    username: str | None = None
    rules: tuple[Rule, ...] | None = None
    lasts_s: float = 0.0
    detail: str = ""


class Method(Protocol):
    """A login method besides the password file."""

    def concerns(self, credentials: Credentials) -> bool:
        """Return whether this method authenticates these credentials; called on the event loop."""
        ...

    def check(self, credentials: Credentials) -> Answer:
        """Authenticate a client, and return the answer in bounded time; called in a thread.

        A failure of any kind must not be answered with ``SUCCESS``.
        """
        ...


@final
class FirstOf:
    """Combines methods: the first whose ``concerns`` returns True authenticates the client.

    Args:
        methods: the methods, in their order of precedence.
    """

    def __init__(self, methods: Sequence[Method]) -> None:
        self._methods = methods

    def concerns(self, credentials: Credentials) -> bool:
        """Return whether one of the methods authenticates these credentials."""
        return any(method.concerns(credentials) for method in self._methods)

    def check(self, credentials: Credentials) -> Answer:
        """Return the answer of the first method that these credentials concern."""
        for method in self._methods:
            if method.concerns(credentials):
                return method.check(credentials)
        return Answer(reasons.NOT_AUTHORIZED)


@final
class ExternalAclCache:
    """The access rules in the answers of methods, by user name and client identifier.

    The rules of at most ``CLIENTS_MAX`` clients are stored; the oldest are dropped, and their
    clients have no permissions then.
    """

    def __init__(self) -> None:
        self._rules: dict[tuple[str | None, str], tuple[Rule, ...] | None] = {}

    def knows(self, username: str | None, client_id: str) -> bool:
        """Return whether the rules of an accepted client are stored."""
        return (username, client_id) in self._rules

    def permissions(
        self, username: str | None, client_id: str, access_list: AccessList | None
    ) -> Permissions | None:
        """Return the permissions by the latest answer for a client; None if it may do everything.

        Args:
            username: the user name.
            client_id: the client identifier.
            access_list: the broker's access list, which applies if the answer had no rules.
        """
        rules = self._rules.get((username, client_id), ())
        if rules is None:
            return None if access_list is None else access_list.permissions(username, client_id)
        if not rules:
            return NOTHING
        return AccessList(patterns=list(rules)).permissions(username, client_id)

    def put(self, username: str | None, client_id: str, rules: tuple[Rule, ...] | None) -> None:
        """Store the rules of an accepted client; None: the broker's access list applies."""
        key = (username, client_id)
        self._rules.pop(key, None)
        if len(self._rules) >= CLIENTS_MAX:
            del self._rules[next(iter(self._rules))]
        self._rules[key] = rules
        assert len(self._rules) <= CLIENTS_MAX, "the oldest rules make room"


@final
class AuthorizeByService(Authorize):
    """The permissions of one client by the rules in a method's answer.

    Args:
        external_acl_cache: stores the rules, once the client's identifier is known.
        rules: the rules in the answer; None: the broker's access list applies.
        access_list: the broker's access list.
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
        """Store the rules of the client, and return its permissions."""
        self._cache.put(username, client_id, self._rules)
        return self._cache.permissions(username, client_id, self._access_list)
