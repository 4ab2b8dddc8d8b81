"""Authentication and permissions of users that are not in the password file.

::

      CONNECT ─▶ Method.concerns ─▶ Method.check, in a thread ─▶ Answer ─▶ AuthorizeByService
                                                                                  ▼
      files are read again, or a will is due: permissions are needed ─▶ its session, its will

A *method* (``http_requests``, ``json_web_tokens``) authenticates the clients that concern it. Rules
in its answer are the client's access list, instead of the file's. They belong to the client's
session and will: no other login can take them away, and there is no list of them that could miss
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from penstock.auth.acl import LoginRules
from penstock.engine.values.access import Authorize, Credentials, Permissions
from penstock.protocol import reasons


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
    rules: LoginRules | None = None
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

    def close(self) -> None:
        """End all checks that are under way, at once: the broker stops."""
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

    def close(self) -> None:
        """End the checks of all methods."""
        for method in self._methods:
            method.close()


class Files(Protocol):
    """The password file and the access list in use."""

    def names(self, username: str | None) -> bool:
        """Return whether the password file has this user."""
        ...

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions of a user of the password file; None: it may do everything."""
        ...

    def listed_permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions by the access list alone; None: it may do everything."""
        ...


@final
class AuthorizeByService(Authorize):
    """The permissions of one client by the rules in a method's answer.

    Args:
        files: returns the password file and the access list in use, which a reload replaces.
        rules: the rules in the answer; None: the access list applies.
    """

    def __init__(self, files: Callable[[], Files], rules: LoginRules | None) -> None:
        self._files = files
        self._rules = rules

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions of the client now; those of the files if the password file has its
        user meanwhile."""
        files = self._files()
        if files.names(username):
            return files.permissions(username, client_id)
        if self._rules is None:
            return files.listed_permissions(username, client_id)
        return self._rules.permissions(username, client_id)
