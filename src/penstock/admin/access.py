"""Authentication of HTTP requests: by a token, a password, or the cookie of a session.

=============================  ===================================  ========  ================
configured                     health checks                        metrics   API and page
=============================  ===================================  ========  ================
tokens or users                for everyone; reasons need a login   a login   a login
neither (loopback only)        for everyone, with reasons           everyone  refused
=============================  ===================================  ========  ================

A request is authenticated in one of three ways::

      Authorization: Bearer TOKEN ───────────────────────────────────────▶ the token's role
      Authorization: Basic USER:PASSWORD ─▶ checked recently, or by the broker ─▶ the user's role
      the page's cookie ─▶ its session ────────────────╮
      a CSRF token, if the request changes something ──┴─▶ the user's role

If neither tokens nor users are set, the ``Host`` header must name this machine. Otherwise a web
page in a browser on this machine could resolve its own name to the loopback address, and read the
responses (DNS rebinding).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final, NamedTuple, final

from starlette.requests import Request

from penstock.admin.logins import TOO_MANY_REQUESTS, HttpRefusal, Logins, address_of
from penstock.admin.rate_limiter import RateLimiter
from penstock.admin.sessions import Session, key_of
from penstock.auth.admin_tokens import AdminGrant, AdminTokens
from penstock.errors import PenstockError

COOKIE: Final = "penstock_session"
SECURE_COOKIE: Final = "__Host-penstock_session"
CSRF_HEADER: Final = "x-csrf-token"
"""The header with the session's CSRF token, in requests of the page that change something."""

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAME_SITE_VALUES: Final = frozenset({"", "same-origin", "none"})
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="penstock"'}


class Principal(NamedTuple):
    """The token or user that a request was authenticated with.

    Attributes:
        grant: the name and the role of the token or user.
        by: name, address and kind of access, for the log and the event: "alice at 10.0.0.7 (API)".
    """

    grant: AdminGrant
    by: str


@final
class Gate:
    """Authenticates requests, and refuses requests from pages of other sites.

    Args:
        tokens: the accepted tokens; None if there are none.
        logins: the sessions of users and tokens; None if neither tokens nor users are set.
        host: the address that the process listens on, in the form of a URL.
    """

    def __init__(self, tokens: AdminTokens | None, logins: Logins | None, host: str) -> None:
        self._tokens = tokens
        self._logins = logins
        self._names = _LOOPBACK_NAMES | {host.lower()}

    @property
    def requires_credentials(self) -> bool:
        """Return whether tokens or users are set, so that requests need credentials."""
        return self._logins is not None

    def accepts_host(self, host: str) -> bool:
        """Return whether a request with this ``Host`` header may be answered."""
        if self.requires_credentials:
            return True  # a page under another name has no credentials to send
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name.lower() in self._names

    def may_see_reasons(self, request: Request) -> bool:
        """Return whether the response to a health check may say why the check fails.

        It may if no credentials are required, or if the request has a valid token, or the cookie of
        a session that was confirmed within ``CONFIRM_S``. No request is sent to the broker.
        """
        if self._logins is None:
            return True
        scheme, shown = _authorization(request)
        if scheme == "bearer":
            return self._token_grant(shown) is not None
        found = self._logins.find(cookie_key(request), address_of(request))
        return found is not None and self._logins.is_confirmed(found)

    async def admit(
        self, request: Request, limiter: RateLimiter | None = None, *, modifies: bool
    ) -> Principal | HttpRefusal:
        """Authenticate a request; return its token or user, or the reason for a refusal.

        Args:
            request: the request.
            limiter: limits the rate of requests of each token or user; None for no limit.
            modifies: whether the request changes something; the broker then confirms the user's
                role for this request, instead of every ``CONFIRM_S``.
        """
        logins = self._logins
        if logins is None:
            return HttpRefusal(403, "nobody has access: set admin.users or admin.token_file")
        address = address_of(request)
        scheme, shown = _authorization(request)
        try:
            if scheme == "bearer":
                grant = self._token_grant(shown)
                if grant is not None:
                    if limiter is not None and not limiter.allow(grant.name):
                        return TOO_MANY_REQUESTS
                    return Principal(grant, f"{grant.name} at {address} (API)")
            elif scheme == "basic":
                pair = _name_and_password(shown)
                if pair is not None:
                    found = await logins.authenticate_password(
                        *pair, address, limiter, modifies=modifies
                    )
                    if isinstance(found, HttpRefusal):
                        return found
                    return Principal(found.grant, f"{found.grant.name} at {address} (API)")
            else:
                return await self._admit_cookie(
                    request, logins, address, limiter, modifies=modifies
                )
        except PenstockError as error:
            return HttpRefusal(503, str(error))
        return HttpRefusal(401, "the token or the user name and password are wrong", _CHALLENGE)

    async def _admit_cookie(
        self,
        request: Request,
        logins: Logins,
        address: str,
        limiter: RateLimiter | None,
        *,
        modifies: bool,
    ) -> Principal | HttpRefusal:
        key = cookie_key(request)
        session = logins.find(key, address)
        if session is None:
            return HttpRefusal(401, "this needs a token or a login", _CHALLENGE)
        if not is_same_site(request):
            return HttpRefusal(403, "the request comes from a page of another site")
        if modifies and not has_csrf_token(request, session):
            return HttpRefusal(403, f"the {CSRF_HEADER} header is missing or wrong")
        if limiter is not None and not limiter.allow(session.grant.name):
            return TOO_MANY_REQUESTS
        if not await logins.confirm(key, session, modifies=modifies):
            return HttpRefusal(401, "the session ended: its user has lost access", _CHALLENGE)
        return Principal(session.grant, f"{session.grant.name} at {address} (page)")

    def _token_grant(self, token: str) -> AdminGrant | None:
        return None if self._tokens is None else self._tokens.grant(token)


def is_same_site(request: Request) -> bool:
    """Return whether a request comes from our own page, or from no page (``Sec-Fetch-Site``)."""
    return request.headers.get("sec-fetch-site", "") in _SAME_SITE_VALUES


def has_csrf_token(request: Request, session: Session) -> bool:
    """Return whether a request has its session's CSRF token; compare in constant time."""
    shown = request.headers.get(CSRF_HEADER, "").encode("utf-8", "surrogatepass")
    return hmac.compare_digest(shown, session.csrf_token.encode())


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie; over TLS it has the prefix ``__Host-``."""
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE


def cookie_key(request: Request) -> bytes:
    """Return the key of a request's session: the hash of its cookie, or of "" without one."""
    return key_of(request.cookies.get(cookie_name(request), ""))


def _authorization(request: Request) -> tuple[str, str]:
    """Return the scheme of the ``Authorization`` header, in lower case, and its credentials."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    return scheme.lower(), shown.strip()


def _name_and_password(shown: str) -> tuple[str, str] | None:
    """Return user name and password of a Basic header (RFC 7617); None if it is malformed."""
    try:
        text = base64.b64decode(shown, validate=True).decode()
    except (ValueError, binascii.Error):
        return None
    name, colon, password = text.partition(":")
    return (name, password) if colon else None
