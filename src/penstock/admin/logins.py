"""Logins of operators with a token or with name and password, and the sessions that they open.

::

      form of the page ─▶ rate limit ─▶ a token, or the broker checks ─▶ session, found by a cookie
      Basic on the API ─▶ checked recently? ─ yes ─▶ session, found by a hash of the password
                             ╰── no ─▶ as for the form

The broker checks passwords and has the roles (``services.operator_logins``). It confirms the role
of a session's user before each request that changes something, and otherwise every ``CONFIRM_S``;
the session of a user that was removed or banned ends.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from typing import Final, NamedTuple, final

from starlette.requests import Request

from penstock.admin.broker import BrokerRequests
from penstock.admin.rate_limiter import LOGINS_BURST, LOGINS_PER_S, RateLimiter
from penstock.admin.sessions import SECRET_BYTES, Session, Sessions, key_of, new_secret
from penstock.auth.admin_tokens import AdminGrant, AdminTokens
from penstock.control.login_requests import (
    BANNED,
    NO_ROLE,
    TOO_OFTEN,
    WRONG_LOGIN,
    ConfirmLogin,
    LogIn,
    LoginOutcome,
)

PAGE_IDLE_S: Final = 1800.0
PAGE_AGE_S: Final = 43_200.0
"""Idle time and age after which a session of the page ends, seconds."""

PASSWORD_IDLE_S: Final = 60.0
PASSWORD_AGE_S: Final = 300.0
"""Idle time and age after which the password of an API request is checked again, seconds."""

_IPV6_SITE_BITS: Final = 64


class HttpRefusal(NamedTuple):
    """An HTTP request that is refused.

    Attributes:
        status: the HTTP status.
        why: the reason, one sentence.
        headers: headers of the response; None for none.
    """

    status: int
    why: str
    headers: dict[str, str] | None = None


_REFUSALS: Final = {
    WRONG_LOGIN: HttpRefusal(401, "the user name or the password is wrong"),
    BANNED: HttpRefusal(403, "this user or address is banned"),
    TOO_OFTEN: HttpRefusal(
        429, "too many passwords were wrong, or wait for a check", {"Retry-After": "10"}
    ),
    NO_ROLE: HttpRefusal(403, "this user has no role in admin.users"),
}
_UNAVAILABLE: Final = HttpRefusal(503, "the password cannot be checked now")
TOO_MANY_REQUESTS: Final = HttpRefusal(
    429, "too many requests of this token or user", {"Retry-After": "1"}
)
TOO_MANY_LOGINS: Final = HttpRefusal(
    429, "there were too many logins from this address", {"Retry-After": "2"}
)


@final
class Logins:
    """Logs operators in, and has the sessions of the page and of passwords on the API.

    Args:
        broker: checks passwords.
        tokens: the tokens that open a session of the page without a user name; None for none.
        has_users: whether users of the broker are operators (admin.users).
    """

    def __init__(self, broker: BrokerRequests, tokens: AdminTokens | None, has_users: bool) -> None:
        self._broker = broker
        self._tokens = tokens
        self._has_users = has_users
        self._page_sessions = Sessions(PAGE_IDLE_S, PAGE_AGE_S)
        self._password_sessions = Sessions(PASSWORD_IDLE_S, PASSWORD_AGE_S)
        self._key = secrets.token_bytes(SECRET_BYTES)  # key of the hashes of passwords
        self._limiter = RateLimiter(LOGINS_PER_S, LOGINS_BURST)

    async def log_in(
        self, user: str, password: str, address: str
    ) -> tuple[str, Session] | HttpRefusal:
        """Open a session of the page.

        Args:
            user: the user name; "" if ``password`` is a token.
            password: the password, or a token.
            address: the address that the request comes from.

        Returns:
            The secret for the session's cookie, and the session; or the reason for a refusal.

        Raises:
            PenstockError: the broker does not answer.
        """
        if not self._limiter.allow(_rate_limit_key(address)):
            return TOO_MANY_LOGINS
        secret = new_secret()
        grant = None if user or self._tokens is None else self._tokens.grant(password)
        if grant is not None:
            return secret, self._page_sessions.open(key_of(secret), grant, address, None)
        found = await self._check_password(user, password, address, "page")
        if isinstance(found, HttpRefusal):
            return found
        return secret, self._open_session(self._page_sessions, key_of(secret), found, address)

    async def authenticate_password(
        self, user: str, password: str, address: str, limiter: RateLimiter | None, *, modifies: bool
    ) -> Session | HttpRefusal:
        """Authenticate a request that has a user name and a password.

        Args:
            user: the user name.
            password: the password.
            address: the address that the request comes from.
            limiter: limits the rate of requests of each user; None for no limit.
            modifies: whether the request changes something.

        Returns:
            The session of the user, or the reason for a refusal.

        Raises:
            PenstockError: the broker does not answer.
        """
        key = self._hash(user, password, address)
        session = self._password_sessions.find(key, address)
        if session is not None:
            if limiter is not None and not limiter.allow(session.grant.name):
                return TOO_MANY_REQUESTS
            if await self._is_confirmed(session, modifies=modifies):
                return session
        self._password_sessions.end(key)
        if not self._limiter.allow(_rate_limit_key(address)):
            return TOO_MANY_LOGINS
        found = await self._check_password(user, password, address, "API")
        if isinstance(found, HttpRefusal):
            return found
        return self._open_session(self._password_sessions, key, found, address)

    def find(self, key: bytes, address: str) -> Session | None:
        """Return the page's session with a key, used from an address; None if there is none."""
        return self._page_sessions.find(key, address)

    def end(self, key: bytes) -> None:
        """End the page's session with a key, if there is one."""
        self._page_sessions.end(key)

    async def confirm(self, key: bytes, session: Session, *, modifies: bool) -> bool:
        """Confirm the role of a session's user, if that is due; end the session if it has none.

        Args:
            key: the key of the page's session.
            session: the session.
            modifies: whether the request changes something; a confirmation is then always due.

        Returns:
            Whether the session is still valid.

        Raises:
            PenstockError: the broker does not answer.
        """
        if await self._is_confirmed(session, modifies=modifies):
            return True
        self._page_sessions.end(key)
        return False

    def is_confirmed(self, session: Session) -> bool:
        """Return whether a session was confirmed within ``CONFIRM_S``, or is one of a token."""
        return session.is_confirmed(self._page_sessions.now_s())

    async def _is_confirmed(self, session: Session, *, modifies: bool) -> bool:
        asked_s = self._page_sessions.now_s()
        if session.password_fingerprint is None or (not modifies and session.is_confirmed(asked_s)):
            return True
        name = session.grant.name
        role = await self._broker.confirm(
            ConfirmLogin(name, session.password_fingerprint, session.address)
        )
        if role:
            session.grant = AdminGrant(name, role)
            session.confirmed_s = asked_s
        return bool(role)

    async def _check_password(
        self, user: str, password: str, address: str, via: str
    ) -> LoginOutcome | HttpRefusal:
        if not self._has_users:
            return _REFUSALS[WRONG_LOGIN]
        found = await self._broker.log_in(LogIn(user, password, address, via))
        return _REFUSALS.get(found.refused, _UNAVAILABLE) if found.refused else found

    def _open_session(
        self, sessions: Sessions, key: bytes, found: LoginOutcome, address: str
    ) -> Session:
        grant = AdminGrant(found.user, found.role)
        return sessions.open(key, grant, address, found.password_fingerprint, found.lasts_s)

    def _hash(self, user: str, password: str, address: str) -> bytes:
        digest = hashlib.blake2b(key=self._key)
        for part in (address.encode(), user.encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        digest.update(password.encode())
        return digest.digest()


def address_of(request: Request) -> str:
    """Return the address that a request comes from; an IPv4-mapped IPv6 address as IPv4."""
    if request.client is None:
        return ""
    host = request.client.host
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return host if mapped is None else str(mapped)


def _rate_limit_key(address: str) -> str:
    """Return the key of a login's rate limit: an IPv4 address, or the /64 network of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((int(found), _IPV6_SITE_BITS), strict=False))
