"""A client's identity and permissions: what an identity provider answers.

``Authorize`` returns the ``Permissions`` of each client; ``None`` instead means that everything is
allowed, so that a broker without an access list pays nothing. The port that checks credentials is
``Authenticate``. The implementations are outside the engine (``penstock.auth``,
``penstock.services.authentication``), because they draw random numbers and read clocks. The classes
here allow everything.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.protocol import reasons

CONTINUE: Final = 0
SUCCESS: Final = 1
FAILURE: Final = 2


@final
class Credentials:
    """The parts of a CONNECT that identify its client.

    Args:
        client_id: the client identifier; empty when the server will assign one.
        username: the user name of the CONNECT; None if it has none.
        password: the password of the CONNECT; None if it has none.
        allows_anonymous: whether the listener accepts clients without credentials.
        address: the peer's address as the shell names it; empty if it is not known.
    """

    def __init__(
        self,
        client_id: str,
        username: str | None,
        password: bytes | None,
        allows_anonymous: bool = True,
        address: str = "",
    ) -> None:
        self.client_id = client_id
        self.username = username
        self.password = password
        self.allows_anonymous = allows_anonymous
        self.address = address


@final
class AuthResult:
    """The answer of ``Authenticate`` to a CONNECT.

    Args:
        reason_code: an MQTT 5 reason code; ``SUCCESS`` accepts the client.
        username: the authenticated user; None for an anonymous client.
        authorize: the port that returns the permissions of this client; None = the broker's port.
        lasts_s: how long the client may stay connected, seconds; 0 = without limit.
        detail: an explanation for the operator beside the name of the code; the client does not
            get it.
    """

    def __init__(
        self,
        reason_code: int,
        username: str | None = None,
        authorize: Authorize | None = None,
        lasts_s: float = 0.0,
        detail: str = "",
    ) -> None:
        self.reason_code = reason_code
        self.username = username
        self.authorize = authorize
        self.lasts_s = lasts_s
        self.detail = detail


@final
class Step:
    """The server's answer to one step of an enhanced authentication (MQTT 5 §4.12).

    Args:
        outcome: ``CONTINUE``, ``SUCCESS`` or ``FAILURE``.
        data: authentication data for the client, None for none.
        username: the authenticated user, with ``SUCCESS``.
        reason_code: the reason of a ``FAILURE``.
        reason: one sentence for the client; omitted if the packet would be too large, or the
            client asked for no problem information.
        user_properties: for the client; omitted in the same cases, before ``reason``.
    """

    def __init__(
        self,
        outcome: int,
        data: bytes | None = None,
        username: str | None = None,
        reason_code: int = reasons.NOT_AUTHORIZED,
        reason: str = "",
        user_properties: list[tuple[str, str]] | None = None,
    ) -> None:
        self.outcome = outcome
        self.data = data
        self.username = username
        self.reason_code = reason_code
        self.reason = reason
        self.user_properties = user_properties


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange:
    """One run of an authentication method with one client, until ``SUCCESS`` or ``FAILURE``."""

    def step(self, data: bytes | None) -> Step:
        """Return the answer to the client's authentication data, None if it sent none.

        It runs on the event loop, so it must not take long.
        """
        del data
        return Step(FAILURE)


@mypyc_attr(allow_interpreted_subclasses=True)
class Permissions:
    """The permissions of one client. An implementation may cache the results of its methods."""

    def may_publish(self, topic: str) -> bool:
        """Return whether this client may publish to ``topic``."""
        del topic
        return True

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether this client may subscribe to ``topic_filter``."""
        del topic_filter
        return True

    def may_receive(self, topic: str) -> bool:
        """Return whether this client may receive messages with this topic."""
        del topic
        return True

    def explain(self, topic: str, is_published: bool) -> str:
        """Return the rule that decides whether this client may publish to ``topic``, or receive it.

        The result is one clause for an operator; empty if the implementation has no named rules.
        """
        del topic, is_published
        return ""

    def clear_cache(self) -> None:
        """Release cached results: the client is disconnected."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Authorize:
    """The port that returns the permissions of each client."""

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the current permissions of this client; None = everything is allowed.

        ``username`` is the authenticated user, None for an anonymous client.
        """
        del username, client_id
        return None

    def permissions_of_absent(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions of a client whose login is not known any more: its session is
        gone, or it has not connected since the start. It is never more than what the client had.

        ``username`` is the user that the session belongs to, None if there is no session.
        """
        return self.permissions(username, client_id)
