"""Logins of operators by name and password, and the sessions that come of them.

::

      form of the page ─▶ not too often? ─▶ a token, or the broker's word ─▶ session, by a cookie
      Basic on the API ─▶ right lately? ───▶ its session, by a hash of the password
                             ╰── else as the form

The broker checks passwords and knows the roles (``services.operator_logins``). It is asked again
about a session before each act, and every ``CONFIRM_S``: who was removed or banned is out.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from typing import Final, NamedTuple, final

from starlette.requests import Request

from penstock.admin.broker import Broker
from penstock.admin.rate_limiter import LOGINS_AT_ONCE, LOGINS_PER_S, RateLimiter
from penstock.admin.sessions import SECRET_BYTES, Session, Sessions, key_of, new_secret
from penstock.auth.admin_tokens import AdminGrant, AdminTokens
from penstock.control.login_requests import (
    BANNED,
    NO_ROLE,
    TOO_OFTEN,
    WRONG_LOGIN,
    ConfirmLogin,
    LogIn,
    Login,
)

PAGE_IDLE_S: Final = 1800.0
PAGE_AGE_S: Final = 43_200.0
"""A session of the page ends after so long without use, and at this age, seconds."""

PASSWORD_IDLE_S: Final = 60.0
PASSWORD_AGE_S: Final = 300.0
"""A password on the API is checked again after so long, seconds."""

_IPV6_SITE_BITS: Final = 64


class HttpRefusal(NamedTuple):
    """The reason why nothing is done: a status of HTTP, a sentence, and headers."""

    status: int
    why: str
    headers: dict[str, str] | None = None


_REFUSALS: Final = {
    WRONG_LOGIN: HttpRefusal(401, "the user name or the password is wrong"),
    BANNED: HttpRefusal(403, "this user or address is banned"),
    TOO_OFTEN: HttpRefusal(429, "too many passwords were wrong, or wait", {"Retry-After": "10"}),
    NO_ROLE: HttpRefusal(403, "this user has no role in admin.users"),
}
_UNAVAILABLE: Final = HttpRefusal(503, "the password cannot be checked now")
ASKED_TOO_OFTEN: Final = HttpRefusal(429, "the token or user asked too often", {"Retry-After": "1"})
_TOO_MANY: Final = HttpRefusal(
    429, "there were too many logins from this address", {"Retry-After": "2"}
)


@final
class Logins:
    """Lets operators in.

    Args:
        broker: checks passwords.
        tokens: tokens that may log in on the page, without a name.
        has_users: whether the broker has operators among its users.
    """

    def __init__(self, broker: Broker, tokens: AdminTokens | None, has_users: bool) -> None:
        self._broker = broker
        self._tokens = tokens
        self._has_users = has_users
        self._page = Sessions(PAGE_IDLE_S, PAGE_AGE_S)
        self._by_password = Sessions(PASSWORD_IDLE_S, PASSWORD_AGE_S)
        self._key = secrets.token_bytes(SECRET_BYTES)  # of the hashes of passwords
        self._limiter = RateLimiter(LOGINS_PER_S, LOGINS_AT_ONCE)

    async def log_in(
        self, user: str, password: str, address: str
    ) -> tuple[str, Session] | HttpRefusal:
        """Begin a session of the page; return the secret for its cookie, and it.

        Raises:
            PenstockError: the broker does not answer.
        """
        if not self._limiter.allow(_source(address)):
            return _TOO_MANY
        secret = new_secret()
        grant = None if user or self._tokens is None else self._tokens.grant(password)
        if grant is not None:
            return secret, self._page.open(key_of(secret), grant, address, None)
        found = await self._ask(user, password, address, "page")
        if isinstance(found, HttpRefusal):
            return found
        return secret, self._opened(self._page, key_of(secret), found, address)

    async def by_password(
        self, user: str, password: str, address: str, limiter: RateLimiter | None, *, acts: bool
    ) -> Session | HttpRefusal:
        """Return the session of a user that shows its password with each request.

        Args:
            user: the user name.
            password: the password.
            address: the address of whoever asks.
            limiter: counts the requests of its user, before the broker is asked; None: they are not
                counted.
            acts: whether the request changes something.

        Raises:
            PenstockError: the broker does not answer.
        """
        key = self._hash(user, password, address)
        session = self._by_password.find(key, address)
        if session is not None:
            if limiter is not None and not limiter.allow(session.grant.name):
                return ASKED_TOO_OFTEN
            if await self._is_confirmed(session, acts=acts):
                return session
        self._by_password.end(key)
        if not self._limiter.allow(_source(address)):
            return _TOO_MANY
        found = await self._ask(user, password, address, "API")
        if isinstance(found, HttpRefusal):
            return found
        return self._opened(self._by_password, key, found, address)

    def find(self, key: bytes, address: str) -> Session | None:
        """Return a session of the page; None where there is none."""
        return self._page.find(key, address)

    def end(self, key: bytes) -> None:
        """End a session of the page."""
        self._page.end(key)

    async def confirm(self, key: bytes, session: Session, *, acts: bool) -> bool:
        """Return whether a session of the page goes on; end it where not.

        Raises:
            PenstockError: the broker does not answer.
        """
        if await self._is_confirmed(session, acts=acts):
            return True
        self._page.end(key)
        return False

    def is_confirmed(self, session: Session) -> bool:
        """Return whether a session was confirmed lately."""
        return session.is_confirmed(self._page.now_s())

    async def _is_confirmed(self, session: Session, *, acts: bool) -> bool:
        asked_s = self._page.now_s()
        if session.password_fingerprint is None or (not acts and session.is_confirmed(asked_s)):
            return True
        name = session.grant.name
        role = await self._broker.confirm(
            ConfirmLogin(name, session.password_fingerprint, session.address)
        )
        if role:
            session.grant = AdminGrant(name, role)
            session.confirmed_s = asked_s
        return bool(role)

    async def _ask(self, user: str, password: str, address: str, via: str) -> Login | HttpRefusal:
        if not self._has_users:
            return _REFUSALS[WRONG_LOGIN]
        found = await self._broker.log_in(LogIn(user, password, address, via))
        return _REFUSALS.get(found.refused, _UNAVAILABLE) if found.refused else found

    def _opened(self, sessions: Sessions, key: bytes, found: Login, address: str) -> Session:
        grant = AdminGrant(found.user, found.role)
        return sessions.open(key, grant, address, found.password_fingerprint, found.lasts_s)

    def _hash(self, user: str, password: str, address: str) -> bytes:
        digest = hashlib.blake2b(key=self._key)
        for part in (address.encode(), user.encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        digest.update(password.encode())
        return digest.digest()


def address_of(request: Request) -> str:
    """Return the address that a request comes from; an IPv4 address of an IPv6 socket as it is."""
    if request.client is None:
        return ""
    host = request.client.host
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return host if mapped is None else str(mapped)


def _source(address: str) -> str:
    """Return the source whose logins count together: an address, or a site of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((int(found), _IPV6_SITE_BITS), strict=False))
