"""Authentication and authorization: the two ports that an identity provider implements.

*Authenticate* answers "who is this?" for a CONNECT: at once, or later where the answer is
slow (a password hash is slow on purpose). *Authorize* answers "what may they do?" with one
``Permissions`` for each client; ``None`` instead of it means everything, so that a broker
without an access list pays nothing for having the port.

::

      CONNECT ─▶ judge ── AuthResult ─────────────────────────▶ CONNACK
                   ╰──── None ─▶ AWAIT_VERDICT ─▶ decided ────▶ CONNACK

      CONNECT with a method ─▶ exchange ─▶ step ── CONTINUE ─▶ AUTH 0x18 ─▶ step …
                                             ├──── SUCCESS ──▶ CONNACK, AUTH 0x00
                                             ╰──── FAILURE ──▶ CONNACK, DISCONNECT

The second picture is the enhanced authentication of MQTT 5 §4.12. The implementations are
outside the engine (``penstock.auth``, ``penstock.services.authentication``): they may draw
random numbers and read clocks, the engine may not. The classes here accept all clients.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.wire.link import Link
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
        anonymous_allowed: whether its listener accepts clients without credentials.
        address: the peer's address as the shell names it; empty where it is not known.
    """

    def __init__(
        self,
        client_id: str,
        username: str | None,
        password: bytes | None,
        anonymous_allowed: bool = True,
        address: str = "",
    ) -> None:
        self.client_id = client_id
        self.username = username
        self.password = password
        self.anonymous_allowed = anonymous_allowed
        self.address = address


@final
class AuthResult:
    """The answer of ``Authenticate`` to a CONNECT.

    Args:
        reason_code: an MQTT 5 reason code; ``SUCCESS`` lets the client in.
        username: the authenticated user; None for an anonymous client.
        authorize: the port that gives this client's permissions instead of the broker's.
        lasts_s: how long it may stay connected, seconds; 0 = without limit.
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
        reason: one sentence for the client, left out where it makes the packet too large or
            the client wants none.
        user_properties: for the client, left out likewise, and first.
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
    """One run of an authentication method with one client; ended by ``SUCCESS`` or ``FAILURE``.

    A step is taken on the event loop: it must be quick.
    """

    def step(self, data: bytes | None) -> Step:
        """Take the client's authentication data, None when it sent none; return the server's
        answer."""
        del data
        return Step(FAILURE)


@mypyc_attr(allow_interpreted_subclasses=True)
class Permissions:
    """The permissions of one client. An implementation may cache its answers."""

    def may_publish(self, topic: str) -> bool:
        """Return whether a message of this client may go to ``topic``."""
        del topic
        return True

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether this client may subscribe to all that ``topic_filter`` matches."""
        del topic_filter
        return True

    def may_receive(self, topic: str) -> bool:
        """Return whether a message with this topic may go to this client."""
        del topic
        return True

    def explain(self, topic: str, is_published: bool) -> str:
        """Return the rule that decides whether this client may publish to ``topic``, or receive it.

        One clause for an operator; empty where there are no rules to be named.
        """
        del topic, is_published
        return ""

    def clear_cache(self) -> None:
        """Release cached answers: the client is disconnected."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticate:
    """The port that checks credentials."""

    def judge(self, credentials: Credentials, link: Link) -> AuthResult | None:
        """Return the verdict on a CONNECT, or None if it takes time.

        With None, the implementation calls ``ServerConnection.decided`` later; ``link`` identifies
        the connection then. A link that closed meanwhile needs no answer.
        """
        del credentials, link
        return AuthResult(reasons.SUCCESS)

    def exchange(self, method: str, credentials: Credentials) -> Exchange | None:
        """Start a run of an authentication method; return it, or None when there is no such
        method.

        The credentials of a client that authenticates again have only its identifier and address.
        """
        del method, credentials
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class Authorize:
    """The port that authorizes: returns the permissions of each client."""

    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        """Return the permissions of this client as of now; None = everything is allowed.

        ``username`` was authenticated; None is an anonymous client.
        """
        del username, client_id
        return None
